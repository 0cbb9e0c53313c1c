-- +goose NO TRANSACTION
-- +goose Up
-- The program runs without this migration.
-- Made while traffic goes on. What an interrupted run has left is dropped first,
-- so that the run can be repeated.
SET lock_timeout = '60s';
-- A deep page counts the rows before it in the index alone, so what a list is
-- filtered by besides its index's own order lies in that index too.
DROP INDEX CONCURRENTLY IF EXISTS tickets_of_opener;
CREATE INDEX CONCURRENTLY tickets_of_opener ON tickets (guild_id, opener_id, created_at DESC, id DESC) INCLUDE (status, claimed_by_id);
DROP INDEX CONCURRENTLY IF EXISTS tickets_by_opener;
DROP INDEX CONCURRENTLY IF EXISTS tickets_of_claim;
CREATE INDEX CONCURRENTLY tickets_of_claim ON tickets (guild_id, claimed_by_id, created_at DESC, id DESC) INCLUDE (status)
    WHERE claimed_by_id IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS tickets_by_claim;
-- What nobody has claimed.
DROP INDEX CONCURRENTLY IF EXISTS tickets_unclaimed;
CREATE INDEX CONCURRENTLY tickets_unclaimed ON tickets (guild_id, created_at DESC, id DESC) WHERE claimed_by_id IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS tickets_unclaimed_by_status;
CREATE INDEX CONCURRENTLY tickets_unclaimed_by_status ON tickets (guild_id, status, created_at DESC, id DESC) WHERE claimed_by_id IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS tickets_of_channel;
CREATE INDEX CONCURRENTLY tickets_of_channel ON tickets (guild_id, channel_id) WHERE channel_id IS NOT NULL;
-- What was written in last.
DROP INDEX CONCURRENTLY IF EXISTS tickets_active;
CREATE INDEX CONCURRENTLY tickets_active ON tickets (guild_id, last_message_at DESC NULLS LAST, id DESC) INCLUDE (claimed_by_id);
DROP INDEX CONCURRENTLY IF EXISTS tickets_active_by_status;
CREATE INDEX CONCURRENTLY tickets_active_by_status ON tickets (guild_id, status, last_message_at DESC NULLS LAST, id DESC) INCLUDE (claimed_by_id);
-- What has changed since an instant, in the order of its changes.
DROP INDEX CONCURRENTLY IF EXISTS tickets_changed;
CREATE INDEX CONCURRENTLY tickets_changed ON tickets (guild_id, updated_at, id);
RESET lock_timeout;

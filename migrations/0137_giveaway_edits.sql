-- +goose NO TRANSACTION
-- +goose Up
-- The program runs without this migration.
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS giveaways_to_edit;
CREATE INDEX CONCURRENTLY giveaways_to_edit ON giveaways (guild_id, edit_at) WHERE edit_at IS NOT NULL;
RESET lock_timeout;

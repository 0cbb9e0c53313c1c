-- +goose NO TRANSACTION
-- +goose Up
-- The program runs without this migration.
-- The guilds of which the platform is asked next, the longest due first.
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS guilds_facts_due;
CREATE INDEX CONCURRENTLY guilds_facts_due ON guilds (facts_due_at, id) WHERE removed_at IS NULL;
RESET lock_timeout;

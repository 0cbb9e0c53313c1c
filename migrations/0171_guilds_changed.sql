-- +goose NO TRANSACTION
-- +goose Up
-- The program runs without this migration.
-- A bot reads its guilds in the order in which they have changed.
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS guilds_changed;
CREATE INDEX CONCURRENTLY guilds_changed ON guilds (updated_at, id);
RESET lock_timeout;

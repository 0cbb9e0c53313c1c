-- +goose NO TRANSACTION
-- +goose Up
-- The program runs without this migration.
-- What waits for a stream in each guild, so that a fetch finds it behind what waits for
-- others; made while traffic goes on, after what an interrupted run has left invalid.
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS stream_deliveries_guild;
CREATE INDEX CONCURRENTLY stream_deliveries_guild ON stream_deliveries (stream_id, guild_id, due_at, event_id);
RESET lock_timeout;

-- +goose NO TRANSACTION
-- +goose Up
-- The program runs without this migration.
-- On distributed tables an event of a stream is looked up by its id and its guild. With
-- statistics of a time when little waited, Postgres took the guild alone to be as good,
-- and read all of it for each event. Made while traffic goes on, after what an
-- interrupted run has left invalid.
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS stream_deliveries_of_event;
CREATE INDEX CONCURRENTLY stream_deliveries_of_event ON stream_deliveries (event_id, guild_id);
DROP INDEX CONCURRENTLY IF EXISTS stream_deliveries_event;
RESET lock_timeout;

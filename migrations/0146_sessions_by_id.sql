-- +goose NO TRANSACTION
-- +goose Up
-- The program runs without this migration.
-- Operators end a session by its id.
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS dashboard_sessions_id;
CREATE INDEX CONCURRENTLY dashboard_sessions_id ON dashboard_sessions (id);
RESET lock_timeout;

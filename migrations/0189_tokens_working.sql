-- +goose NO TRANSACTION
-- +goose Up
-- The program runs without this migration.
-- The tokens of a guild that work are few; those that were revoked or have expired pile
-- up. Made while traffic goes on, after what an interrupted run has left invalid.
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS api_tokens_working;
CREATE INDEX CONCURRENTLY api_tokens_working ON api_tokens (guild_id, coalesce(expires_at, 'infinity')) WHERE revoked_at IS NULL;
RESET lock_timeout;

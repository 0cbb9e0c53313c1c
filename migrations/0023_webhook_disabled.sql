-- +goose NO TRANSACTION
-- +goose Up
-- Ids are random: what tells guilds apart is the primary key. The command line
-- still finds an endpoint by its id alone.
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS webhook_endpoints_disabled;
CREATE INDEX CONCURRENTLY webhook_endpoints_disabled ON webhook_endpoints (guild_id) WHERE NOT enabled AND disabled_reason IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS webhook_endpoints_by_id;
CREATE INDEX CONCURRENTLY webhook_endpoints_by_id ON webhook_endpoints (id);
SET lock_timeout = '2s';
ALTER TABLE webhook_endpoints DROP CONSTRAINT IF EXISTS webhook_endpoints_id_key;
RESET lock_timeout;

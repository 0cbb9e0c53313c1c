-- +goose NO TRANSACTION
-- +goose Up
-- Made while traffic goes on. What an interrupted run has left invalid is
-- dropped first, so that the run can be repeated.
SET lock_timeout = '60s';

-- The log of one endpoint by state, newest first.
DROP INDEX CONCURRENTLY IF EXISTS webhook_deliveries_state_log;
CREATE INDEX CONCURRENTLY webhook_deliveries_state_log ON webhook_deliveries (guild_id, endpoint_id, state, created_at, id);

-- The command line finds an endpoint by its id alone. Its uniqueness stands in
-- the primary key, with the guild.
DROP INDEX CONCURRENTLY IF EXISTS webhook_endpoints_by_id;
CREATE INDEX CONCURRENTLY webhook_endpoints_by_id ON webhook_endpoints (id);
ALTER TABLE webhook_endpoints DROP CONSTRAINT IF EXISTS webhook_endpoints_id_key;
RESET lock_timeout;

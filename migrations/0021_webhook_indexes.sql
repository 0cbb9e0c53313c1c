-- +goose NO TRANSACTION
-- +goose Up
-- Made while traffic goes on. What an interrupted run has left invalid is
-- dropped first, so that the run can be repeated.
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS webhook_deliveries_fresh;
CREATE INDEX CONCURRENTLY webhook_deliveries_fresh ON webhook_deliveries (guild_id, endpoint_id) WHERE fresh AND state = 'pending';
DROP INDEX CONCURRENTLY IF EXISTS webhook_deliveries_leased;
CREATE INDEX CONCURRENTLY webhook_deliveries_leased ON webhook_deliveries (lease_until) WHERE lease_until IS NOT NULL AND state = 'pending';
DROP INDEX CONCURRENTLY IF EXISTS webhook_deliveries_urgent;
CREATE INDEX CONCURRENTLY webhook_deliveries_urgent ON webhook_deliveries (guild_id, endpoint_id, due_at, id) WHERE urgent AND state = 'pending';
DROP INDEX CONCURRENTLY IF EXISTS webhook_deliveries_held_age;
CREATE INDEX CONCURRENTLY webhook_deliveries_held_age ON webhook_deliveries (event_at) WHERE state = 'held';
DROP INDEX CONCURRENTLY IF EXISTS webhook_deliveries_event_age;
CREATE INDEX CONCURRENTLY webhook_deliveries_event_age ON webhook_deliveries (event_at);
DROP INDEX CONCURRENTLY IF EXISTS webhook_deliveries_type;
CREATE INDEX CONCURRENTLY webhook_deliveries_type ON webhook_deliveries (guild_id, endpoint_id, event_type, created_at, id);
DROP INDEX CONCURRENTLY IF EXISTS webhook_deliveries_failed;
CREATE INDEX CONCURRENTLY webhook_deliveries_failed ON webhook_deliveries (guild_id, endpoint_id, created_at, id) WHERE state = 'failed';
DROP INDEX CONCURRENTLY IF EXISTS webhook_deliveries_class;
CREATE INDEX CONCURRENTLY webhook_deliveries_class ON webhook_deliveries (guild_id, endpoint_id, response_class, created_at, id) WHERE response_class <> '2xx';
RESET lock_timeout;

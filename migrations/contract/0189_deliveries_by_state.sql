-- +goose NO TRANSACTION
-- +goose Up
-- The log of an endpoint, and what it has lost, are read by webhook_deliveries_state_log.
-- Each index costs an entry for each delivery, and another one for each of its changes.
-- The release before reads these two.
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS webhook_deliveries_log;
DROP INDEX CONCURRENTLY IF EXISTS webhook_deliveries_failed;
RESET lock_timeout;

-- +goose NO TRANSACTION
-- +goose Up
-- The program runs without this migration.
-- Made while traffic goes on. What an interrupted run has left invalid is
-- dropped first, so that the run can be repeated.
SET lock_timeout = '60s';
-- Leads to the endpoints that nobody has fetched from for longest.
DROP INDEX CONCURRENTLY IF EXISTS webhook_schedule_fetched;
CREATE INDEX CONCURRENTLY webhook_schedule_fetched ON webhook_schedule (fetched_at) WHERE disposition = 'pull';
RESET lock_timeout;

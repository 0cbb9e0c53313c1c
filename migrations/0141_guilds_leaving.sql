-- +goose NO TRANSACTION
-- +goose Up
-- Made while traffic goes on. What an interrupted run has left invalid is
-- dropped first, so that the run can be repeated.
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS guilds_leaving;
CREATE INDEX CONCURRENTLY guilds_leaving ON guilds (removed_after) WHERE removed_after IS NOT NULL;
RESET lock_timeout;

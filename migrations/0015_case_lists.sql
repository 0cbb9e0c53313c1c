-- +goose NO TRANSACTION
-- +goose Up
-- Made while traffic goes on. What an interrupted run has left invalid is
-- dropped first, so that the run can be repeated.
SET lock_timeout = '60s';
-- A deep page counts the rows before it in the index alone, so what a list is
-- filtered by besides its index's own order lies in that index too.
DROP INDEX CONCURRENTLY IF EXISTS cases_of_user;
CREATE INDEX CONCURRENTLY cases_of_user ON cases (guild_id, user_id, created_at DESC, id DESC) INCLUDE (type, status, moderator_id);
DROP INDEX CONCURRENTLY IF EXISTS cases_by_user;
DROP INDEX CONCURRENTLY IF EXISTS cases_of_moderator;
CREATE INDEX CONCURRENTLY cases_of_moderator ON cases (guild_id, moderator_id, created_at DESC, id DESC) INCLUDE (type, status);
-- What has changed since an instant, in the order of its changes.
DROP INDEX CONCURRENTLY IF EXISTS cases_changed;
CREATE INDEX CONCURRENTLY cases_changed ON cases (guild_id, updated_at, id);
RESET lock_timeout;

-- +goose NO TRANSACTION
-- +goose Up
-- The program runs without this migration.
-- Made while traffic goes on. What an interrupted run has left invalid is
-- dropped first, so that the run can be repeated.
SET lock_timeout = '60s';
-- A page of a leaderboard is read from its index alone, which therefore holds
-- what it shows.
DROP INDEX CONCURRENTLY IF EXISTS wallets_ranked;
CREATE INDEX CONCURRENTLY wallets_ranked ON wallets (guild_id, (-balance), length(user_id), user_id) INCLUDE (balance);
DROP INDEX CONCURRENTLY IF EXISTS wallets_leaderboard;
DROP INDEX CONCURRENTLY IF EXISTS levels_ranked;
CREATE INDEX CONCURRENTLY levels_ranked ON levels (guild_id, (-total_xp), length(user_id), user_id) INCLUDE (total_xp);
DROP INDEX CONCURRENTLY IF EXISTS levels_leaderboard;
RESET lock_timeout;

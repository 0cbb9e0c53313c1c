-- +goose NO TRANSACTION
-- +goose Up
-- The program runs without this migration.
-- Made while traffic goes on. What an interrupted run has left is dropped first,
-- so that the run can be repeated.
SET lock_timeout = '60s';
-- What changed since, for the guild and for one status of it.
DROP INDEX CONCURRENTLY IF EXISTS giveaways_changed;
CREATE INDEX CONCURRENTLY giveaways_changed ON giveaways (guild_id, updated_at, id);
DROP INDEX CONCURRENTLY IF EXISTS giveaways_changed_by_status;
CREATE INDEX CONCURRENTLY giveaways_changed_by_status ON giveaways (guild_id, status, updated_at, id);
-- What is due, guild by guild, so that one guild with much to do keeps no other
-- waiting. (giveaways_drawing is for the release before this one.)
DROP INDEX CONCURRENTLY IF EXISTS giveaways_to_draw;
CREATE INDEX CONCURRENTLY giveaways_to_draw ON giveaways (guild_id, redraw_at) WHERE status = 'drawing' AND pot <> 'gathering';
DROP INDEX CONCURRENTLY IF EXISTS giveaways_to_gather;
CREATE INDEX CONCURRENTLY giveaways_to_gather ON giveaways (guild_id, redraw_at) WHERE status = 'drawing' AND pot = 'gathering';
DROP INDEX CONCURRENTLY IF EXISTS giveaways_to_react;
CREATE INDEX CONCURRENTLY giveaways_to_react ON giveaways (guild_id, react_at) WHERE react_at IS NOT NULL;
-- What the bot was to say and could not.
DROP INDEX CONCURRENTLY IF EXISTS chat_intents_unposted;
CREATE INDEX CONCURRENTLY chat_intents_unposted ON chat_intents (settled_at)
    WHERE state IN ('refused', 'unknown') AND kind <> 'ticket_message';
RESET lock_timeout;

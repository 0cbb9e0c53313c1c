-- +goose NO TRANSACTION
-- +goose Up
-- What a member has written, to be forgotten with them. Made while traffic goes on;
-- what an interrupted run has left invalid is dropped first.
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS ticket_messages_author;
CREATE INDEX CONCURRENTLY ticket_messages_author ON ticket_messages (guild_id, author_id) WHERE author_id IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS chat_intents_author;
CREATE INDEX CONCURRENTLY chat_intents_author ON chat_intents (guild_id, author_id) WHERE author_id IS NOT NULL;
RESET lock_timeout;

-- +goose NO TRANSACTION
-- +goose Up
-- The entry of a message on the platform, made while traffic goes on; what an
-- interrupted run has left invalid is dropped first.
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS ticket_messages_of_channel;
CREATE INDEX CONCURRENTLY ticket_messages_of_channel ON ticket_messages (guild_id, channel_message_id) WHERE channel_message_id IS NOT NULL;
RESET lock_timeout;

-- +goose Up
-- What the bot has been asked to say, one row per message. The row is committed
-- before the platform is called, so a crash leaves a trace that says what may
-- have been posted. The nonce is the message's name on the platform.
CREATE TABLE chat_intents (
    guild_id      text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    id            text COLLATE "C" NOT NULL,
    kind          text        NOT NULL
        CONSTRAINT chat_intents_kind CHECK (kind IN ('ticket_message', 'giveaway_ended', 'giveaway_rerolled')),
    subject_id    text COLLATE "C" NOT NULL, -- the ticket or giveaway
    channel_id    text COLLATE "C" NOT NULL,
    reply_to      text COLLATE "C",
    content       text        NOT NULL,
    author_id     text COLLATE "C",          -- whom a ticket message is attributed to
    token_id      text COLLATE "C",          -- the token that asked
    key           text COLLATE "C",          -- and its Idempotency-Key, if it sent one
    fingerprint   bytea,
    nonce         text COLLATE "C" NOT NULL CONSTRAINT chat_intents_nonce UNIQUE,
    -- pending: nobody has tried. sending: tried under a lease. sent: posted and
    -- accounted for. refused: certainly not posted. unknown: perhaps posted,
    -- and whoever asked was told that it failed.
    state         text        NOT NULL DEFAULT 'pending'
        CONSTRAINT chat_intents_state CHECK (state IN ('pending', 'sending', 'sent', 'refused', 'unknown')),
    first_sent_at timestamptz,
    message_id    text COLLATE "C",
    lease_until   timestamptz,
    lease_gen     bigint      NOT NULL DEFAULT 0,
    created_at    timestamptz NOT NULL DEFAULT now(),
    settled_at    timestamptz,
    PRIMARY KEY (guild_id, id)
);

CREATE INDEX chat_intents_unsettled ON chat_intents (created_at) WHERE state IN ('pending', 'sending');
CREATE INDEX chat_intents_key ON chat_intents (token_id, key) WHERE key IS NOT NULL;
CREATE INDEX chat_intents_posted ON chat_intents (channel_id, message_id) WHERE message_id IS NOT NULL;
CREATE INDEX chat_intents_age ON chat_intents (created_at);

-- +goose Up
-- A message that is to be posted on the chat platform. The row is committed before the
-- platform is called, so that after a crash it says what may have been posted.
CREATE TABLE chat_intents (
    guild_id      text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    id            text COLLATE "C" NOT NULL,
    kind          text        NOT NULL
        CONSTRAINT chat_intents_kind
        CHECK (kind IN ('ticket_message', 'giveaway_started', 'giveaway_resumed', 'giveaway_ended', 'giveaway_rerolled')),
    subject_id    text COLLATE "C" NOT NULL,              -- the ticket or giveaway
    channel_id    text COLLATE "C" NOT NULL,
    reply_to      text COLLATE "C",
    content       text        NOT NULL,
    mentions      text[]      NOT NULL DEFAULT '{}',      -- the members that the message may notify
    author_id     text COLLATE "C",                       -- the member to whom a ticket message is attributed
    token_id      text COLLATE "C",                       -- the token that asked, and its Idempotency-Key, if it sent one
    key           text COLLATE "C",
    fingerprint   bytea,
    nonce         text COLLATE "C" NOT NULL,              -- names the message on the platform; derived from the id
    -- pending: not tried yet. sending: tried under a lease. sent: posted, and recorded.
    -- refused: certainly not posted. unknown: perhaps posted, and the caller was told
    -- that posting failed.
    state         text        NOT NULL DEFAULT 'pending'
        CONSTRAINT chat_intents_state CHECK (state IN ('pending', 'sending', 'sent', 'refused', 'unknown')),
    first_sent_at timestamptz,                            -- from then on the message may have been posted
    message_id    text COLLATE "C",
    lease_until   timestamptz,
    lease_gen     bigint      NOT NULL DEFAULT 0,
    -- When a lane posts the message or tries again, and how often posting has failed. Null
    -- for messages of tickets, for what is posted or given up, and while the operator's bot
    -- has been asked and has not answered.
    try_at        timestamptz,
    tries         integer     NOT NULL DEFAULT 0,
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, id)
);

CREATE INDEX chat_intents_unsettled ON chat_intents (created_at) WHERE state IN ('pending', 'sending');
CREATE INDEX chat_intents_to_try ON chat_intents (guild_id, try_at) WHERE try_at IS NOT NULL;
CREATE INDEX chat_intents_key ON chat_intents (token_id, key) WHERE key IS NOT NULL;
CREATE INDEX chat_intents_posted ON chat_intents (channel_id, message_id) WHERE message_id IS NOT NULL;
CREATE INDEX chat_intents_author ON chat_intents (guild_id, author_id) WHERE author_id IS NOT NULL;
CREATE INDEX chat_intents_age ON chat_intents (created_at);

-- Something that the operator's bot is asked to do on the chat platform. An event in the
-- stream of work asks for it, and the bot's answer completes both rows.
CREATE TABLE bot_work (
    guild_id    text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    id          text COLLATE "C" NOT NULL, -- for a message the nonce of its intent
    kind        text COLLATE "C" NOT NULL,
    subject_id  text COLLATE "C" NOT NULL, -- the ticket or giveaway
    intent_id   text COLLATE "C",          -- the message to post; null where there is none
    event_id    text COLLATE "C" NOT NULL,
    created_at  timestamptz NOT NULL,
    deadline    timestamptz NOT NULL,
    result      text CHECK (result IN ('done', 'refused')), -- null: not answered
    message_id  text COLLATE "C",
    reason      text,
    answered_at timestamptz,
    answered_by text COLLATE "C",
    PRIMARY KEY (guild_id, id)
);

CREATE INDEX bot_work_answer ON bot_work (id);
CREATE INDEX bot_work_open ON bot_work (guild_id, subject_id) WHERE result IS NULL;
CREATE INDEX bot_work_due ON bot_work (deadline) WHERE result IS NULL;
CREATE INDEX bot_work_age ON bot_work (created_at);

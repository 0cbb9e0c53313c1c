-- +goose Up
-- Something that the operator's bot is asked to do on the chat platform. It is asked by
-- an event in the stream work, and its answer settles both.
--   id          what it is asked by; for a message the nonce of its intent
--   subject_id  the ticket or giveaway
--   intent_id   the message that is to be posted; null: it is none
--   result      done or refused; null: nobody has answered
CREATE TABLE bot_work (
    guild_id text COLLATE "C" NOT NULL REFERENCES guilds ON DELETE CASCADE,
    id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    subject_id text COLLATE "C" NOT NULL,
    intent_id text COLLATE "C",
    event_id text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    deadline timestamptz NOT NULL,
    result text CHECK (result IN ('done', 'refused')),
    message_id text COLLATE "C",
    reason text,
    answered_at timestamptz,
    answered_by text COLLATE "C",
    PRIMARY KEY (guild_id, id)
);
CREATE INDEX bot_work_answer ON bot_work (id);
CREATE INDEX bot_work_age ON bot_work (created_at);
CREATE INDEX bot_work_open ON bot_work (guild_id, subject_id) WHERE result IS NULL;
CREATE INDEX bot_work_due ON bot_work (deadline) WHERE result IS NULL;

-- +goose Up
CREATE TABLE tickets (
    guild_id        text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    id              text COLLATE "C" NOT NULL,
    number          bigint      NOT NULL,
    status          text        NOT NULL DEFAULT 'open'
        CONSTRAINT tickets_status CHECK (status IN ('open', 'closed')),
    subject         text,
    opener_id       text COLLATE "C" NOT NULL,
    claimed_by_id   text COLLATE "C",
    channel_id      text COLLATE "C",
    close_reason    text,
    closed_by_id    text COLLATE "C",
    -- Both count messages of kind 'message' only.
    message_count   bigint      NOT NULL DEFAULT 0,
    last_message_at timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    closed_at       timestamptz,
    -- Set while the channel does not follow the ticket yet: the instant of the
    -- close or reopening that the bot has still to carry out.
    channel_due_at  timestamptz,
    PRIMARY KEY (guild_id, id),
    CONSTRAINT tickets_number UNIQUE (guild_id, number),
    CONSTRAINT tickets_closed CHECK ((status = 'closed') = (closed_at IS NOT NULL))
);

CREATE INDEX tickets_newest ON tickets (guild_id, created_at DESC, id DESC);
CREATE INDEX tickets_by_status ON tickets (guild_id, status, created_at DESC, id DESC);
CREATE INDEX tickets_by_opener ON tickets (guild_id, opener_id, created_at DESC, id DESC);
CREATE INDEX tickets_by_claim ON tickets (guild_id, claimed_by_id, created_at DESC, id DESC) WHERE claimed_by_id IS NOT NULL;
CREATE INDEX tickets_channel_due ON tickets (channel_due_at) WHERE channel_due_at IS NOT NULL;

-- The transcript. A message that was posted through the API has the id of its
-- chat intent, so an intent can never leave two rows.
CREATE TABLE ticket_messages (
    guild_id           text COLLATE "C" NOT NULL,
    ticket_id          text COLLATE "C" NOT NULL,
    id                 text COLLATE "C" NOT NULL,
    kind               text        NOT NULL DEFAULT 'message'
        CONSTRAINT ticket_messages_kind CHECK (kind IN ('message', 'note', 'open', 'close', 'claim', 'assign', 'reopen')),
    internal           boolean     NOT NULL DEFAULT false,
    author_id          text COLLATE "C",
    author_type        text        NOT NULL
        CONSTRAINT ticket_messages_author_type CHECK (author_type IN ('opener', 'staff', 'bot', 'system')),
    content            text        NOT NULL,
    channel_message_id text COLLATE "C",
    created_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, id),
    FOREIGN KEY (guild_id, ticket_id) REFERENCES tickets (guild_id, id) ON DELETE CASCADE,
    CONSTRAINT ticket_messages_internal CHECK (internal = (kind = 'note'))
);

CREATE INDEX ticket_messages_reading ON ticket_messages (guild_id, ticket_id, created_at, id);

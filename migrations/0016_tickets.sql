-- +goose Up
-- A support ticket.
CREATE TABLE tickets (
    guild_id            text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    id                  text COLLATE "C" NOT NULL,
    number              bigint      NOT NULL,
    status              text        NOT NULL DEFAULT 'open'
        CONSTRAINT tickets_status CHECK (status IN ('open', 'closed')),
    subject             text,
    opener_id           text COLLATE "C" NOT NULL,
    claimed_by_id       text COLLATE "C",
    channel_id          text COLLATE "C",
    close_reason        text,
    closed_by_id        text COLLATE "C",
    message_count       bigint      NOT NULL DEFAULT 0, -- this and last_message_at count entries of kind message alone
    last_message_at     timestamptz,
    metadata            jsonb       NOT NULL DEFAULT '{}',
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    closed_at           timestamptz,
    category            text,
    priority            text        NOT NULL DEFAULT 'normal'
        CONSTRAINT tickets_priority CHECK (priority IN ('low', 'normal', 'high', 'urgent')),
    -- Set until the channel on the platform follows the ticket: the instant of the close
    -- or reopening. One worker at a time brings the channel in line, under the lease.
    channel_due_at      timestamptz,
    -- When a lane brings the channel in line or tries again, and how often that has failed.
    -- Null while the operator's bot has been asked and has not answered.
    channel_try_at      timestamptz,
    channel_tries       integer     NOT NULL DEFAULT 0,
    channel_lease_until timestamptz,
    channel_lease_gen   bigint      NOT NULL DEFAULT 0,
    channel_lock        jsonb,      -- what archiving changed about the channel, as it was before: reopening restores it
    PRIMARY KEY (guild_id, id),
    CONSTRAINT tickets_number UNIQUE (guild_id, number),
    CONSTRAINT tickets_closed CHECK ((status = 'closed') = (closed_at IS NOT NULL))
);

-- One index for each filter of the list, as for cases.
CREATE INDEX tickets_newest ON tickets (guild_id, created_at DESC, id DESC);
CREATE INDEX tickets_by_status ON tickets (guild_id, status, created_at DESC, id DESC);
CREATE INDEX tickets_of_opener ON tickets (guild_id, opener_id, created_at DESC, id DESC) INCLUDE (status, claimed_by_id);
CREATE INDEX tickets_of_claim ON tickets (guild_id, claimed_by_id, created_at DESC, id DESC) INCLUDE (status)
    WHERE claimed_by_id IS NOT NULL;
CREATE INDEX tickets_unclaimed ON tickets (guild_id, created_at DESC, id DESC) WHERE claimed_by_id IS NULL;
CREATE INDEX tickets_unclaimed_by_status ON tickets (guild_id, status, created_at DESC, id DESC) WHERE claimed_by_id IS NULL;
CREATE INDEX tickets_of_category ON tickets (guild_id, category, created_at DESC, id DESC) INCLUDE (status, priority, claimed_by_id, opener_id)
    WHERE category IS NOT NULL;
CREATE INDEX tickets_of_priority ON tickets (guild_id, priority, created_at DESC, id DESC) INCLUDE (status, claimed_by_id, opener_id);
-- A channel has at most one open ticket: closing another one would archive or delete it.
CREATE UNIQUE INDEX tickets_open_channel ON tickets (guild_id, channel_id) WHERE status = 'open';
CREATE INDEX tickets_of_channel ON tickets (guild_id, channel_id) WHERE channel_id IS NOT NULL;
CREATE INDEX tickets_active ON tickets (guild_id, last_message_at DESC NULLS LAST, id DESC) INCLUDE (claimed_by_id);
CREATE INDEX tickets_active_by_status ON tickets (guild_id, status, last_message_at DESC NULLS LAST, id DESC) INCLUDE (claimed_by_id);
CREATE INDEX tickets_changed ON tickets (guild_id, updated_at, id);

-- The list by metadata. A key holds guild, name and value, so a lookup reads nothing of another
-- guild. With fastupdate each lookup would read a list of the newest keys of all guilds.
CREATE INDEX tickets_metadata ON tickets USING gin (jsonb_set('{}', ARRAY[guild_id], metadata) jsonb_path_ops)
    WITH (fastupdate = off) WHERE metadata <> '{}';

CREATE INDEX tickets_to_follow ON tickets (guild_id, channel_try_at) WHERE channel_try_at IS NOT NULL;

-- An entry of a ticket's transcript. A message that was posted through the API has the id
-- of its chat intent, so an intent never leaves two entries.
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
    posted             boolean     NOT NULL DEFAULT false, -- posted by the API: a record changes neither author nor kind
    attachments        jsonb       NOT NULL DEFAULT '[]',
    edited_at          timestamptz,
    deleted_at         timestamptz, -- on the platform; the entry stays for staff
    original_content   text,        -- what was first written, once the message was edited
    created_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, id),
    FOREIGN KEY (guild_id, ticket_id) REFERENCES tickets (guild_id, id) ON DELETE CASCADE,
    CONSTRAINT ticket_messages_internal CHECK (internal = (kind = 'note'))
);

CREATE INDEX ticket_messages_reading ON ticket_messages (guild_id, ticket_id, created_at, id);
CREATE INDEX ticket_messages_author ON ticket_messages (guild_id, author_id) WHERE author_id IS NOT NULL;
CREATE INDEX ticket_messages_of_channel ON ticket_messages (guild_id, channel_message_id) WHERE channel_message_id IS NOT NULL;

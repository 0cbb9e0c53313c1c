-- +goose Up
-- A moderation case.
CREATE TABLE cases (
    guild_id     text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    id           text COLLATE "C" NOT NULL,
    number       bigint      NOT NULL
        CONSTRAINT cases_number_positive CHECK (number >= 1),
    user_id      text COLLATE "C" NOT NULL,
    moderator_id text COLLATE "C" NOT NULL,
    type         text COLLATE "C" NOT NULL
        CONSTRAINT cases_type CHECK (type IN ('note', 'warn', 'kick', 'ban', 'timeout', 'mute')),
    reason       text        NOT NULL DEFAULT ''
        CONSTRAINT cases_reason_length CHECK (char_length(reason) <= 1000),
    status       text COLLATE "C" NOT NULL DEFAULT 'active'
        CONSTRAINT cases_status CHECK (status IN ('active', 'expired', 'revoked', 'deleted')),
    expires_at   timestamptz,
    source       text COLLATE "C" NOT NULL
        CONSTRAINT cases_source CHECK (source IN ('api', 'bot', 'dashboard')),
    metadata     jsonb       NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, id),
    CONSTRAINT cases_number UNIQUE (guild_id, number)
);

-- One index for each filter of the list, in the list's order. A deep page counts the rows
-- before it in the index alone, so an index includes what the list is filtered by besides.
CREATE INDEX cases_newest ON cases (guild_id, created_at DESC, id DESC);
CREATE INDEX cases_by_type ON cases (guild_id, type, created_at DESC, id DESC);
CREATE INDEX cases_by_status ON cases (guild_id, status, created_at DESC, id DESC);
CREATE INDEX cases_by_type_status ON cases (guild_id, type, status, created_at DESC, id DESC);
CREATE INDEX cases_of_user ON cases (guild_id, user_id, created_at DESC, id DESC) INCLUDE (type, status, moderator_id);
CREATE INDEX cases_of_moderator ON cases (guild_id, moderator_id, created_at DESC, id DESC) INCLUDE (type, status);
CREATE INDEX cases_changed ON cases (guild_id, updated_at, id);

-- The sweep that expires cases searches all guilds at once.
CREATE INDEX cases_due ON cases (expires_at) WHERE status = 'active' AND expires_at IS NOT NULL;

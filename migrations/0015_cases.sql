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

-- The list by metadata. A key holds guild, name and value, so a lookup reads nothing of another
-- guild. With fastupdate each lookup would read a list of the newest keys of all guilds.
CREATE INDEX cases_metadata ON cases USING gin (jsonb_set('{}', ARRAY[guild_id], metadata) jsonb_path_ops)
    WITH (fastupdate = off) WHERE metadata <> '{}';

-- The sweep that expires cases searches all guilds at once.
CREATE INDEX cases_due ON cases (expires_at) WHERE status = 'active' AND expires_at IS NOT NULL;

-- A change of a case. The creation has no changes. user_before and moderator_before are the
-- members that the change replaced: forgetting a member finds these rows by them.
CREATE TABLE case_changes (
    guild_id         text COLLATE "C" NOT NULL,
    case_id          text COLLATE "C" NOT NULL,
    at               timestamptz NOT NULL,
    origin           jsonb       NOT NULL,
    author_id        text COLLATE "C",
    changes          jsonb       NOT NULL,
    user_before      text COLLATE "C",
    moderator_before text COLLATE "C",
    PRIMARY KEY (guild_id, case_id, at),
    FOREIGN KEY (guild_id, case_id) REFERENCES cases (guild_id, id) ON DELETE CASCADE
);

-- Forgetting a member searches by these.
CREATE INDEX case_changes_of_author ON case_changes (guild_id, author_id) WHERE author_id IS NOT NULL;
CREATE INDEX case_changes_of_user ON case_changes (guild_id, user_before) WHERE user_before IS NOT NULL;
CREATE INDEX case_changes_of_moderator ON case_changes (guild_id, moderator_before) WHERE moderator_before IS NOT NULL;

-- +goose Up
-- A session of the dashboard. Only the SHA-256 of the cookie is stored. A session belongs
-- to a person, who may manage several guilds.
CREATE TABLE dashboard_sessions (
    hash       text COLLATE "C" PRIMARY KEY,
    id         text COLLATE "C" NOT NULL, -- names the session on the page that lists sessions, and on the command line
    account    text COLLATE "C" NOT NULL, -- empty before anybody has signed in
    data       bytea       NOT NULL,
    address    text        NOT NULL,
    agent      text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at    timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);

CREATE INDEX dashboard_sessions_account ON dashboard_sessions (account, created_at, id);
CREATE INDEX dashboard_sessions_id ON dashboard_sessions (id);
CREATE INDEX dashboard_sessions_expiry ON dashboard_sessions (expires_at);

-- A link with which an operator opens the dashboard of one guild once.
CREATE TABLE dashboard_links (
    guild_id   text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    hash       bytea       NOT NULL,
    id         text COLLATE "C" NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at    timestamptz,
    PRIMARY KEY (guild_id, hash)
);

CREATE INDEX dashboard_links_expiry ON dashboard_links (expires_at);

-- The key of something that may happen once: of a form that creates something in its
-- guild, and of the state of a sign-in, with an empty guild_id.
CREATE TABLE dashboard_once (
    guild_id text COLLATE "C" NOT NULL,
    key      bytea       NOT NULL,
    made_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, key)
);

CREATE INDEX dashboard_once_age ON dashboard_once (made_at);

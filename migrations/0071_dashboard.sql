-- +goose Up
-- Who is signed in to the dashboard. The cookie's value is kept as its SHA-256
-- only. Sessions belong to people, who may manage several guilds.
CREATE TABLE dashboard_sessions (
    hash       text COLLATE "C" PRIMARY KEY,
    id         text COLLATE "C" NOT NULL, -- names the session on the page that lists them
    account    text COLLATE "C" NOT NULL, -- whose it is; empty before anybody has signed in
    data       bytea       NOT NULL,
    address    text        NOT NULL,
    agent      text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at    timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);

CREATE INDEX dashboard_sessions_account ON dashboard_sessions (account, created_at, id);
CREATE INDEX dashboard_sessions_expiry ON dashboard_sessions (expires_at);

-- Links with which an operator opens the dashboard of one guild, once.
CREATE TABLE dashboard_links (
    guild_id   text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    hash       bytea       NOT NULL,
    id         text COLLATE "C" NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at    timestamptz,
    PRIMARY KEY (guild_id, hash)
);

CREATE INDEX dashboard_links_expiry ON dashboard_links (expires_at);

-- What may happen once: a form that makes something (in its guild), and the
-- state of a sign-in (in no guild).
CREATE TABLE dashboard_once (
    guild_id text COLLATE "C" NOT NULL,
    key      bytea       NOT NULL,
    made_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, key)
);

CREATE INDEX dashboard_once_age ON dashboard_once (made_at);

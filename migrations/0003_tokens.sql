-- +goose Up
-- An API token of a guild. Only the SHA-256 of the token is stored. Using a token does
-- not change its row: see api_token_uses.
CREATE TABLE api_tokens (
    id           text COLLATE "C" PRIMARY KEY,
    guild_id     text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    name         text        NOT NULL,
    preview      text        NOT NULL,
    hash         bytea       NOT NULL
        CONSTRAINT api_tokens_hash UNIQUE
        CONSTRAINT api_tokens_hash_size CHECK (length(hash) = 32),
    scopes       text[]      NOT NULL,
    ip_allowlist text[]      NOT NULL DEFAULT '{}',
    expires_at   timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    revoked_at   timestamptz,
    rate_read    text, -- as in 1200/1m or off, in place of GUILDHALL_RATE_READ
    rate_write   text  -- likewise, of GUILDHALL_RATE_WRITE
);

CREATE INDEX api_tokens_guild ON api_tokens (guild_id, created_at, id);
-- A guild has few working tokens among many that were revoked or have expired.
CREATE INDEX api_tokens_working ON api_tokens (guild_id, coalesce(expires_at, 'infinity')) WHERE revoked_at IS NULL;

CREATE INDEX api_tokens_expiring ON api_tokens (expires_at) WHERE revoked_at IS NULL AND expires_at IS NOT NULL;

-- An event was recorded for a token that expires within some days. This is not a column of
-- api_tokens, because a change of that table is announced to every node.
CREATE TABLE token_notices (
    token_id text COLLATE "C" REFERENCES api_tokens (id) ON DELETE CASCADE,
    days     integer,
    PRIMARY KEY (token_id, days)
);

-- When a token was last used. This is not a column of api_tokens, because a change of that table is
-- announced to every node and waits for other changes.
CREATE TABLE api_token_uses (
    token_id     text COLLATE "C" PRIMARY KEY REFERENCES api_tokens (id) ON DELETE CASCADE,
    last_used_at timestamptz NOT NULL
);

-- The number of changes of tokens and bot keys so far: one row. A writer locks it until
-- it commits, so the numbers rise in commit order, as notifications do.
CREATE TABLE auth_epoch (
    sole  boolean PRIMARY KEY DEFAULT true CONSTRAINT auth_epoch_sole CHECK (sole),
    epoch bigint  NOT NULL
);

INSERT INTO auth_epoch (epoch) VALUES (0);

-- A node that caches tokens: the last change it has seen, its heartbeat, and the newest
-- migration that its program knows.
CREATE TABLE auth_nodes (
    id             text COLLATE "C" PRIMARY KEY,
    connection     bigint      NOT NULL DEFAULT 0, -- the number of the node's newest connection
    epoch          bigint      NOT NULL,
    seen_at        timestamptz NOT NULL,
    schema_version bigint
);

-- Announces an inserted or deleted token or bot key to all nodes, whoever changes the
-- table: psql as well as the program. The payload is the new epoch and the hash of the
-- token, or * for all tokens. SECURITY DEFINER and the search path of the migration let
-- a writer do with the right to write the table alone.
-- +goose StatementBegin
CREATE FUNCTION api_tokens_announce() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    n bigint;
BEGIN
    UPDATE auth_epoch SET epoch = epoch + 1 RETURNING epoch INTO STRICT n;
    IF TG_OP = 'TRUNCATE' THEN
        PERFORM pg_notify('guildhall_tokens', n || ' *');
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        PERFORM pg_notify('guildhall_tokens', n || ' ' || encode(OLD.hash, 'hex'));
    END IF;
    IF TG_OP = 'INSERT' OR (TG_OP = 'UPDATE' AND NEW.hash <> OLD.hash) THEN
        PERFORM pg_notify('guildhall_tokens', n || ' ' || encode(NEW.hash, 'hex'));
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- Announces an update of tokens or bot keys once a statement: by the hash where one row
-- has changed, else with * for all. Row by row, a statement that revokes all tokens of
-- a guild would lock the epoch from its first row on and fill the notification queue.
--
-- Two hashes under one epoch would be wrong: a node that has heard the first would say
-- that it knows the epoch before it has heard the second.
-- +goose StatementBegin
CREATE FUNCTION api_tokens_announce_updates() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    n       bigint;
    changed bytea[];
BEGIN
    -- By all columns: rows that the statement left as they were cancel out.
    SELECT array_agg(hash) INTO changed
    FROM (SELECT hash FROM (SELECT * FROM before EXCEPT ALL SELECT * FROM after) AS was LIMIT 2) AS gone;
    IF changed IS NULL THEN
        RETURN NULL;
    END IF;
    UPDATE auth_epoch SET epoch = epoch + 1 RETURNING epoch INTO STRICT n;
    IF cardinality(changed) = 1 AND EXISTS (SELECT FROM after WHERE hash = changed[1]) THEN
        PERFORM pg_notify('guildhall_tokens', n || ' ' || encode(changed[1], 'hex'));
    ELSE
        PERFORM pg_notify('guildhall_tokens', n || ' *');
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER api_tokens_announce_change
    AFTER INSERT OR DELETE ON api_tokens
    FOR EACH ROW EXECUTE FUNCTION api_tokens_announce();

CREATE TRIGGER api_tokens_announce_update
    AFTER UPDATE ON api_tokens
    REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION api_tokens_announce_updates();

CREATE TRIGGER api_tokens_announce_truncate
    AFTER TRUNCATE ON api_tokens
    FOR EACH STATEMENT EXECUTE FUNCTION api_tokens_announce();

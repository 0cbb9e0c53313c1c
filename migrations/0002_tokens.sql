-- +goose Up
-- Only the SHA-256 of a token is kept. Nothing here changes when a token is
-- merely used: see api_token_uses.
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
    revoked_at   timestamptz
);

CREATE INDEX api_tokens_guild ON api_tokens (guild_id, created_at, id);

-- The last use has a table of its own, so that noting it neither announces a
-- change nor waits for one.
CREATE TABLE api_token_uses (
    token_id     text COLLATE "C" PRIMARY KEY REFERENCES api_tokens (id) ON DELETE CASCADE,
    last_used_at timestamptz NOT NULL
);

-- Counts the changes of api_tokens. Its one row is locked until the writer
-- commits, so the numbers rise in commit order, as notifications do.
CREATE TABLE auth_epoch (
    sole  boolean PRIMARY KEY DEFAULT true CONSTRAINT auth_epoch_sole CHECK (sole),
    epoch bigint  NOT NULL
);

INSERT INTO auth_epoch (epoch) VALUES (0);

-- The nodes that hold tokens in a cache, and the last change each has seen.
CREATE TABLE auth_nodes (
    id      text COLLATE "C" PRIMARY KEY,
    epoch   bigint      NOT NULL,
    seen_at timestamptz NOT NULL
);

-- Every writer of api_tokens announces what it changed, whoever it is. The
-- payload is the new epoch and the hash of the token, or * for all of them. It
-- runs with the rights and the search path of the migration, so that a writer
-- needs nothing but the right to write api_tokens.
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

CREATE TRIGGER api_tokens_announce_change
    AFTER INSERT OR DELETE ON api_tokens
    FOR EACH ROW EXECUTE FUNCTION api_tokens_announce();

CREATE TRIGGER api_tokens_announce_update
    AFTER UPDATE ON api_tokens
    FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION api_tokens_announce();

CREATE TRIGGER api_tokens_announce_truncate
    AFTER TRUNCATE ON api_tokens
    FOR EACH STATEMENT EXECUTE FUNCTION api_tokens_announce();

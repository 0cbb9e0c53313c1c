-- +goose Up
-- A key of the operator's own bot, for some guilds or for all. Only its SHA-256 is stored. A change
-- is announced to all nodes, as a change of a token is.
CREATE TABLE bot_keys (
    id           text COLLATE "C" PRIMARY KEY
        CONSTRAINT bot_keys_id CHECK (starts_with(id, 'bk_')),
    name         text        NOT NULL,
    preview      text        NOT NULL,
    hash         bytea       NOT NULL
        CONSTRAINT bot_keys_hash UNIQUE
        CONSTRAINT bot_keys_hash_size CHECK (length(hash) = 32),
    guild_ids    text[], -- null: every guild, future guilds too
    ip_allowlist text[]      NOT NULL DEFAULT '{}',
    expires_at   timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    revoked_at   timestamptz
);

CREATE INDEX bot_keys_guilds ON bot_keys USING gin (guild_ids);
CREATE INDEX bot_keys_every_guild ON bot_keys (created_at, id) WHERE guild_ids IS NULL;

-- When a bot key was last used.
CREATE TABLE bot_key_uses (
    key_id       text COLLATE "C" PRIMARY KEY REFERENCES bot_keys (id) ON DELETE CASCADE,
    last_used_at timestamptz NOT NULL
);

CREATE TRIGGER bot_keys_announce_change
    AFTER INSERT OR DELETE ON bot_keys
    FOR EACH ROW EXECUTE FUNCTION api_tokens_announce();

CREATE TRIGGER bot_keys_announce_update
    AFTER UPDATE ON bot_keys
    REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION api_tokens_announce_updates();

CREATE TRIGGER bot_keys_announce_truncate
    AFTER TRUNCATE ON bot_keys
    FOR EACH STATEMENT EXECUTE FUNCTION api_tokens_announce();

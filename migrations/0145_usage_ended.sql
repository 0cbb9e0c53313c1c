-- +goose Up
-- Requests with a token that had been revoked or had expired: by address, and with
-- an empty address by token. The newest rows of a guild are kept.
CREATE TABLE usage_ended (
    guild_id text COLLATE "C" NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    address  text COLLATE "C" NOT NULL, -- empty: the whole token
    requests bigint      NOT NULL,
    first_at timestamptz NOT NULL,
    seen_at  timestamptz NOT NULL,
    PRIMARY KEY (guild_id, token_id, address)
);

CREATE INDEX usage_ended_newest ON usage_ended (guild_id, seen_at);

CREATE INDEX usage_ended_age ON usage_ended (seen_at);

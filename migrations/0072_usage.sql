-- +goose Up
-- Requests of one hour. The row with an empty token_id is the whole guild's, so
-- that a month of a guild is read without going through its tokens.
CREATE TABLE usage_hours (
    guild_id  text COLLATE "C" NOT NULL,
    token_id  text COLLATE "C" NOT NULL,
    hour      timestamptz NOT NULL,
    operation text COLLATE "C" NOT NULL,
    class     smallint    NOT NULL, -- the first digit of the status
    requests  bigint      NOT NULL,
    PRIMARY KEY (guild_id, token_id, hour, operation, class)
);

CREATE INDEX usage_hours_age ON usage_hours (hour);

-- Addresses from which a token was used, by day.
CREATE TABLE usage_addresses (
    guild_id text COLLATE "C" NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    day      date        NOT NULL,
    address  text COLLATE "C" NOT NULL,
    requests bigint      NOT NULL,
    seen_at  timestamptz NOT NULL,
    PRIMARY KEY (guild_id, token_id, day, address)
);

CREATE INDEX usage_addresses_age ON usage_addresses (day);

-- The newest requests that were refused: no body and no query string. The
-- request id is a UUIDv7, so its order is that of the requests.
CREATE TABLE usage_refusals (
    guild_id   text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    at         timestamptz NOT NULL,
    token_id   text COLLATE "C" NOT NULL,
    operation  text COLLATE "C" NOT NULL,
    status     smallint    NOT NULL,
    code       text COLLATE "C" NOT NULL,
    address    text        NOT NULL,
    PRIMARY KEY (guild_id, request_id)
);

CREATE INDEX usage_refusals_token ON usage_refusals (guild_id, token_id, request_id);
CREATE INDEX usage_refusals_age ON usage_refusals (at);

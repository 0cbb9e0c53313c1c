-- +goose Up
-- The requests of a token in one hour, by operation and class of status. An empty
-- token_id stands for the whole guild, so that a guild's month is read without going
-- through its tokens.
CREATE TABLE usage_hours (
    guild_id  text COLLATE "C" NOT NULL,
    token_id  text COLLATE "C" NOT NULL, -- empty: the whole guild
    hour      timestamptz NOT NULL,
    operation text COLLATE "C" NOT NULL,
    class     smallint    NOT NULL,      -- the first digit of the status
    requests  bigint      NOT NULL,
    PRIMARY KEY (guild_id, token_id, hour, operation, class)
);

CREATE INDEX usage_hours_age ON usage_hours (hour);

-- The requests of a token in one hour, over all operations: the dashboard's plot of a
-- month reads these rows instead of those of every operation.
CREATE TABLE usage_totals (
    guild_id text COLLATE "C" NOT NULL,
    token_id text COLLATE "C" NOT NULL, -- empty: the whole guild
    hour     timestamptz NOT NULL,
    class    smallint    NOT NULL,
    requests bigint      NOT NULL,
    PRIMARY KEY (guild_id, token_id, hour, class)
);

CREATE INDEX usage_totals_age ON usage_totals (hour);

-- The requests of a token in one day, by operation: the dashboard's table of a month.
CREATE TABLE usage_days (
    guild_id  text COLLATE "C" NOT NULL,
    token_id  text COLLATE "C" NOT NULL, -- empty: the whole guild
    day       date        NOT NULL,      -- in UTC
    operation text COLLATE "C" NOT NULL,
    class     smallint    NOT NULL,
    requests  bigint      NOT NULL,
    PRIMARY KEY (guild_id, token_id, day, operation, class)
);

CREATE INDEX usage_days_age ON usage_days (day);

-- The addresses from which a token was used, by day.
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

-- A refused request, without its body and query. The newest of each guild are stored.
-- A request id is a UUIDv7, so ids stand in the order of the requests. The message is the
-- one that the caller read, escaped and cut to 300 characters: it may name a member.
CREATE TABLE usage_refusals (
    guild_id   text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    at         timestamptz NOT NULL,
    token_id   text COLLATE "C" NOT NULL,
    operation  text COLLATE "C" NOT NULL,
    status     smallint    NOT NULL,
    code       text COLLATE "C" NOT NULL,
    address    text        NOT NULL,
    message        text    NOT NULL DEFAULT '',
    required_scope text    NOT NULL DEFAULT '',
    PRIMARY KEY (guild_id, request_id)
);

CREATE INDEX usage_refusals_token ON usage_refusals (guild_id, token_id, request_id);
CREATE INDEX usage_refusals_age ON usage_refusals (at);

-- Requests with a token that had been revoked or had expired, by address. The newest
-- rows of each guild are kept.
CREATE TABLE usage_ended (
    guild_id text COLLATE "C" NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    address  text COLLATE "C" NOT NULL, -- empty: all addresses of the token
    requests bigint      NOT NULL,
    first_at timestamptz NOT NULL,
    seen_at  timestamptz NOT NULL,
    PRIMARY KEY (guild_id, token_id, address)
);

CREATE INDEX usage_ended_newest ON usage_ended (guild_id, seen_at);
CREATE INDEX usage_ended_age ON usage_ended (seen_at);

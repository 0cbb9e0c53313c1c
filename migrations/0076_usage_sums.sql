-- +goose Up
-- What the pages read of a month: a plot by hour, and a table by operation. From
-- usage_hours alone both would go through every operation of every hour.
CREATE TABLE usage_totals (
    guild_id text COLLATE "C" NOT NULL,
    token_id text COLLATE "C" NOT NULL, -- empty: the whole guild
    hour     timestamptz NOT NULL,
    class    smallint    NOT NULL,
    requests bigint      NOT NULL,
    PRIMARY KEY (guild_id, token_id, hour, class)
);

CREATE INDEX usage_totals_age ON usage_totals (hour);

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

INSERT INTO usage_totals (guild_id, token_id, hour, class, requests)
SELECT guild_id, token_id, hour, class, sum(requests)
FROM usage_hours
GROUP BY guild_id, token_id, hour, class;

INSERT INTO usage_days (guild_id, token_id, day, operation, class, requests)
SELECT guild_id, token_id, (hour AT TIME ZONE 'UTC')::date, operation, class, sum(requests)
FROM usage_hours
GROUP BY guild_id, token_id, (hour AT TIME ZONE 'UTC')::date, operation, class;

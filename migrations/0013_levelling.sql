-- +goose Up
-- A member's XP. The level is not stored: it follows from total_xp.
CREATE TABLE levels (
    guild_id    text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    user_id     text COLLATE "C" NOT NULL,
    total_xp    bigint      NOT NULL,
    -- total_xp before the last adjustment: one statement changes the XP and returns both.
    previous_xp bigint      NOT NULL DEFAULT 0,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, user_id),
    CONSTRAINT levels_not_negative CHECK (total_xp >= 0),
    CONSTRAINT levels_within_limit CHECK (total_xp <= 9007199254740991)
) WITH (fillfactor = 85);

-- The order of the leaderboard, as for wallets.
CREATE INDEX levels_ranked ON levels (guild_id, (-total_xp), length(user_id), user_id) INCLUDE (total_xp);

-- As for wallets: without it Postgres reads a guild whole to find some of its members.
ALTER TABLE levels ALTER COLUMN guild_id SET (n_distinct = 20);

-- Changes of XP in one guild that wait to be added to the sums of their week and month: who
-- gained how much. The statement of the changes inserts them where the guild has switched
-- periods on, and a sweep moves them into xp_periods. timezone is the guild's at that moment.
-- One row a statement: a row a member took a sixth longer.
CREATE TABLE xp_moves (
    guild_id text COLLATE "C" NOT NULL,
    at       timestamptz NOT NULL,
    timezone text        NOT NULL,
    users    text[]      NOT NULL,
    deltas   bigint[]    NOT NULL
);

CREATE INDEX xp_moves_guild ON xp_moves (guild_id);

-- By how much a member's XP changed in a calendar week (from Monday) or month of the guild's
-- time zone, without the changes that set it. starts is its first day.
CREATE TABLE xp_periods (
    guild_id   text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    user_id    text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL
        CONSTRAINT xp_periods_kind CHECK (kind IN ('week', 'month')),
    starts     date   NOT NULL,
    xp         bigint NOT NULL
        CONSTRAINT xp_periods_within_limit CHECK (xp BETWEEN -9007199254740991 AND 9007199254740991),
    kept_until date   NOT NULL,
    PRIMARY KEY (guild_id, user_id, kind, starts)
) WITH (fillfactor = 85);

-- The order of a period's leaderboard.
CREATE INDEX xp_periods_ranked ON xp_periods (guild_id, kind, starts, (-xp), length(user_id), user_id) INCLUDE (xp) WHERE xp > 0;
CREATE INDEX xp_periods_kept ON xp_periods (kept_until);

-- As for wallets.
ALTER TABLE xp_periods ALTER COLUMN guild_id SET (n_distinct = 20);

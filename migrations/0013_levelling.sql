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

-- +goose Up
CREATE TABLE levels (
    guild_id    text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    user_id     text COLLATE "C" NOT NULL,
    total_xp    bigint      NOT NULL,
    -- What the last adjustment found. It lets one statement change the XP and
    -- return both sides of the change, whoever else is changing it meanwhile.
    previous_xp bigint      NOT NULL DEFAULT 0,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, user_id),
    CONSTRAINT levels_not_negative CHECK (total_xp >= 0),
    CONSTRAINT levels_within_limit CHECK (total_xp <= 9007199254740991)
) WITH (fillfactor = 85);

-- The leaderboard's order; numeric order of a snowflake is length, then text.
-- The level itself is nowhere stored: it follows from total_xp.
CREATE INDEX levels_leaderboard ON levels (guild_id, (-total_xp), length(user_id), user_id);

-- +goose Up
-- What the bot or an integrator has sent about a person in a guild. joined_at and left_at only
-- increase. folded is the name after Unicode case folding, for searches by prefix: lower() would
-- depend on the database's locale.
CREATE TABLE members (
    guild_id   text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    user_id    text COLLATE "C" NOT NULL,
    name       text,
    folded     text COLLATE "C",
    avatar_url text,
    joined_at  timestamptz,
    left_at    timestamptz,
    metadata   jsonb       NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, user_id)
);

CREATE INDEX members_changed ON members (guild_id, updated_at, user_id);
CREATE INDEX members_named ON members (guild_id, folded, user_id) WHERE folded IS NOT NULL;
-- Those who have left: leaderboards look up each of their entries here (present=true).
CREATE INDEX members_left ON members (guild_id, user_id) WHERE left_at IS NOT NULL AND (joined_at IS NULL OR joined_at < left_at);

-- The list by metadata. A key holds guild, name and value, so a lookup reads nothing of another
-- guild. With fastupdate each lookup would read a list of the newest keys of all guilds.
CREATE INDEX members_metadata ON members USING gin (jsonb_set('{}', ARRAY[guild_id], metadata) jsonb_path_ops)
    WITH (fastupdate = off) WHERE metadata <> '{}';

-- +goose Up
-- Leaderboards that want a look of the keeper, because they have grown or rows
-- of theirs have moved: so it neither searches all guilds nor looks at all maps.
-- One change in 64 leaves a note, which is often enough. A leaderboard has at
-- most 256: if that many wait, no keeper has been there for some 16,000 changes,
-- and the map is given up, so that its moves do not pile up either. Without a
-- map the pages are the same, only slower; the next keeper makes a new one.
CREATE TABLE leaderboard_queue (
    guild_id text COLLATE "C" NOT NULL,
    board    text COLLATE "C" NOT NULL
        CONSTRAINT leaderboard_queue_board CHECK (board IN ('wallets', 'levels'))
);

CREATE INDEX leaderboard_queue_board ON leaderboard_queue (guild_id, board);

-- The keeper asks for drafts each second.
CREATE INDEX leaderboard_maps_drafts ON leaderboard_maps (id) WHERE state = 'draft';

-- +goose StatementBegin
CREATE FUNCTION ask_leaderboard_keeper(name text, guild text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO leaderboard_queue (guild_id, board)
    SELECT guild, name
    WHERE NOT EXISTS (SELECT FROM leaderboard_queue q WHERE q.guild_id = guild AND q.board = name OFFSET 255);
    IF NOT FOUND THEN
        DELETE FROM leaderboard_maps m WHERE m.board = name AND m.guild_id = guild;
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION wallet_moved() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        INSERT INTO leaderboard_moves (map_id, user_id, was, is_now)
        SELECT m.id, NEW.user_id, -OLD.balance, -NEW.balance
        FROM leaderboard_maps m
        WHERE m.board = 'wallets'
          AND m.guild_id = NEW.guild_id;
        IF FOUND AND random() < 1 / 64.0 THEN
            PERFORM ask_leaderboard_keeper('wallets', NEW.guild_id);
        END IF;
    ELSIF TG_OP = 'INSERT' THEN
        INSERT INTO leaderboard_moves (map_id, user_id, is_now)
        SELECT m.id, NEW.user_id, -NEW.balance
        FROM leaderboard_maps m
        WHERE m.board = 'wallets'
          AND m.guild_id = NEW.guild_id;
        IF random() < 1 / 64.0 THEN
            PERFORM ask_leaderboard_keeper('wallets', NEW.guild_id);
        END IF;
    ELSE
        INSERT INTO leaderboard_moves (map_id, user_id, was)
        SELECT m.id, OLD.user_id, -OLD.balance
        FROM leaderboard_maps m
        WHERE m.board = 'wallets'
          AND m.guild_id = OLD.guild_id;
        IF FOUND AND random() < 1 / 64.0 THEN
            PERFORM ask_leaderboard_keeper('wallets', OLD.guild_id);
        END IF;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION level_moved() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        INSERT INTO leaderboard_moves (map_id, user_id, was, is_now)
        SELECT m.id, NEW.user_id, -OLD.total_xp, -NEW.total_xp
        FROM leaderboard_maps m
        WHERE m.board = 'levels'
          AND m.guild_id = NEW.guild_id;
        IF FOUND AND random() < 1 / 64.0 THEN
            PERFORM ask_leaderboard_keeper('levels', NEW.guild_id);
        END IF;
    ELSIF TG_OP = 'INSERT' THEN
        INSERT INTO leaderboard_moves (map_id, user_id, is_now)
        SELECT m.id, NEW.user_id, -NEW.total_xp
        FROM leaderboard_maps m
        WHERE m.board = 'levels'
          AND m.guild_id = NEW.guild_id;
        IF random() < 1 / 64.0 THEN
            PERFORM ask_leaderboard_keeper('levels', NEW.guild_id);
        END IF;
    ELSE
        INSERT INTO leaderboard_moves (map_id, user_id, was)
        SELECT m.id, OLD.user_id, -OLD.total_xp
        FROM leaderboard_maps m
        WHERE m.board = 'levels'
          AND m.guild_id = OLD.guild_id;
        IF FOUND AND random() < 1 / 64.0 THEN
            PERFORM ask_leaderboard_keeper('levels', OLD.guild_id);
        END IF;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- What has grown and moved before this is looked at once.
INSERT INTO leaderboard_queue (guild_id, board)
SELECT g.id, b.name
FROM guilds g, (VALUES ('wallets'), ('levels')) AS b (name);

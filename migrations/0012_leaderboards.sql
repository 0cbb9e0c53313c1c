-- +goose Up
-- What lets a leaderboard of a million be opened on page 4,000 at about the cost
-- of page 1. A map of a leaderboard is a list of marks: places in its order,
-- some hundred rows apart, and how many rows lie ahead of each. A reader looks
-- up the last mark that is not behind its page and walks from there.
--
-- The counts are exact, not estimates, because whoever changes a row of a mapped
-- leaderboard notes from where to where it went, in the same transaction. A
-- reader sees rows, counts and notes in one snapshot, so they fit together,
-- whatever is being changed meanwhile. Notes are only ever added and never
-- waited for; the keeper (package leaderboard) adds them to the counts about
-- every second, so a reader has few of them to go through.
--
-- A row's place is (depth, length(user_id), user_id) where depth is the negated
-- balance or XP: all three ascend, so that one comparison of rows finds a place
-- in the index.

-- state draft: the marks are set and writers note moves, but nothing is counted
-- yet. That can be done exactly once every transaction that may not have seen
-- the map is over, which is when none is older than the horizon.
CREATE TABLE leaderboard_maps (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    board    text COLLATE "C" NOT NULL
        CONSTRAINT leaderboard_maps_board CHECK (board IN ('wallets', 'levels')),
    guild_id text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    state    text        NOT NULL DEFAULT 'draft'
        CONSTRAINT leaderboard_maps_state CHECK (state IN ('draft', 'live')),
    horizon  xid8,
    -- The n-th number is how many rows lie ahead of mark n, but for the moves
    -- that are noted and not yet added.
    ahead    bigint[]    NOT NULL DEFAULT '{}',
    made_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT leaderboard_maps_one UNIQUE (board, guild_id, state)
);

-- Every deep page reads the counts; unpacking them would take longer than that.
ALTER TABLE leaderboard_maps ALTER COLUMN ahead SET STORAGE EXTERNAL;

CREATE TABLE leaderboard_marks (
    map_id  bigint  NOT NULL REFERENCES leaderboard_maps (id) ON DELETE CASCADE,
    number  integer NOT NULL, -- from 1 in the leaderboard's order
    depth   bigint  NOT NULL,
    length  integer NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (map_id, number)
);

CREATE INDEX leaderboard_marks_place ON leaderboard_marks (map_id, depth, length, user_id, number);

-- The member's row went from one depth to another; null is having no row.
CREATE TABLE leaderboard_moves (
    map_id  bigint NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    was     bigint,
    is_now  bigint
);

CREATE INDEX leaderboard_moves_map ON leaderboard_moves (map_id);

-- The notes rely on READ COMMITTED, where each statement sees what was committed
-- before it: so a map counts from the moment it is there.
-- +goose StatementBegin
CREATE FUNCTION wallet_moved() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        INSERT INTO leaderboard_moves (map_id, user_id, was, is_now)
        SELECT m.id, NEW.user_id, -OLD.balance, -NEW.balance
        FROM leaderboard_maps m
        WHERE m.board = 'wallets'
          AND m.guild_id = NEW.guild_id;
    ELSIF TG_OP = 'INSERT' THEN
        INSERT INTO leaderboard_moves (map_id, user_id, is_now)
        SELECT m.id, NEW.user_id, -NEW.balance
        FROM leaderboard_maps m
        WHERE m.board = 'wallets'
          AND m.guild_id = NEW.guild_id;
    ELSE
        INSERT INTO leaderboard_moves (map_id, user_id, was)
        SELECT m.id, OLD.user_id, -OLD.balance
        FROM leaderboard_maps m
        WHERE m.board = 'wallets'
          AND m.guild_id = OLD.guild_id;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION level_moved() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        INSERT INTO leaderboard_moves (map_id, user_id, was, is_now)
        SELECT m.id, NEW.user_id, -OLD.total_xp, -NEW.total_xp
        FROM leaderboard_maps m
        WHERE m.board = 'levels'
          AND m.guild_id = NEW.guild_id;
    ELSIF TG_OP = 'INSERT' THEN
        INSERT INTO leaderboard_moves (map_id, user_id, is_now)
        SELECT m.id, NEW.user_id, -NEW.total_xp
        FROM leaderboard_maps m
        WHERE m.board = 'levels'
          AND m.guild_id = NEW.guild_id;
    ELSE
        INSERT INTO leaderboard_moves (map_id, user_id, was)
        SELECT m.id, OLD.user_id, -OLD.total_xp
        FROM leaderboard_maps m
        WHERE m.board = 'levels'
          AND m.guild_id = OLD.guild_id;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER wallet_moved AFTER UPDATE ON wallets
    FOR EACH ROW WHEN (OLD.balance <> NEW.balance) EXECUTE FUNCTION wallet_moved();
CREATE TRIGGER wallet_came_or_went AFTER INSERT OR DELETE ON wallets
    FOR EACH ROW EXECUTE FUNCTION wallet_moved();
CREATE TRIGGER level_moved AFTER UPDATE ON levels
    FOR EACH ROW WHEN (OLD.total_xp <> NEW.total_xp) EXECUTE FUNCTION level_moved();
CREATE TRIGGER level_came_or_went AFTER INSERT OR DELETE ON levels
    FOR EACH ROW EXECUTE FUNCTION level_moved();

-- A member's wallet and level stay the member's: the triggers above rely on it.
-- +goose StatementBegin
CREATE FUNCTION keep_leaderboard_owner() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% cannot be given to another member', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;
-- +goose StatementEnd

CREATE TRIGGER wallet_owner_kept BEFORE UPDATE OF guild_id, user_id ON wallets
    FOR EACH ROW WHEN ((OLD.guild_id, OLD.user_id) <> (NEW.guild_id, NEW.user_id))
    EXECUTE FUNCTION keep_leaderboard_owner();
CREATE TRIGGER level_owner_kept BEFORE UPDATE OF guild_id, user_id ON levels
    FOR EACH ROW WHEN ((OLD.guild_id, OLD.user_id) <> (NEW.guild_id, NEW.user_id))
    EXECUTE FUNCTION keep_leaderboard_owner();

-- leaderboard_start says from which place to walk, and how many rows to skip
-- there, to come to the row with the given number of rows ahead of it. Without
-- a map it is the leaderboard's beginning.
--
-- Rows ahead of a mark = its count + the rows that are noted to have gone ahead
-- of it - those noted to have left from there. The first guess leaves the notes
-- out; when they put that mark behind the wanted row, the second guess allows
-- for all of them.
--
-- It must be STABLE: it then sees what the statement that calls it sees.
-- +goose StatementBegin
CREATE FUNCTION leaderboard_start(name text, guild text, wanted bigint,
    OUT depth bigint, OUT length integer, OUT user_id text, OUT skip bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    map   leaderboard_maps;
    mark  record;
    moves bigint := 0;
    ahead bigint;
    n     integer;
BEGIN
    depth := -9223372036854775807; length := 0; user_id := ''; skip := wanted;
    SELECT * INTO map FROM leaderboard_maps m WHERE m.board = name AND m.guild_id = guild AND m.state = 'live';
    IF NOT FOUND OR map.ahead = '{}' THEN
        RETURN;
    END IF;
    LOOP
        n := width_bucket(wanted - moves, map.ahead);
        IF n = 0 THEN
            RETURN;
        END IF;
        SELECT k.depth, k.length, k.user_id INTO STRICT mark
        FROM leaderboard_marks k
        WHERE k.map_id = map.id AND k.number = n;
        SELECT map.ahead[n]
               + count(*) FILTER (WHERE (v.is_now, length(v.user_id), v.user_id) < (mark.depth, mark.length, mark.user_id))
               - count(*) FILTER (WHERE (v.was, length(v.user_id), v.user_id) < (mark.depth, mark.length, mark.user_id)),
               count(*)
        INTO ahead, moves
        FROM leaderboard_moves v
        WHERE v.map_id = map.id;
        EXIT WHEN ahead <= wanted;
    END LOOP;
    depth := mark.depth; length := mark.length; user_id := mark.user_id; skip := wanted - ahead;
END
$$;
-- +goose StatementEnd

-- The rows of a leaderboard after the first `wanted`. These are functions, and
-- not queries of the program, so that start and walk share one snapshot at the
-- price of one round trip, and so that the planner, which cannot know how little
-- is left to skip, is kept from sorting the table.
-- +goose StatementBegin
CREATE FUNCTION wallets_after(guild text, wanted bigint, most bigint)
RETURNS TABLE (user_id text, balance bigint)
LANGUAGE plpgsql STABLE ROWS 26
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    start record;
BEGIN
    SELECT * INTO start FROM leaderboard_start('wallets', guild, wanted);
    RETURN QUERY
    SELECT w.user_id, w.balance
    FROM wallets w
    WHERE w.guild_id = guild
      AND (-w.balance, length(w.user_id), w.user_id) >= (start.depth, start.length, start.user_id)
    ORDER BY -w.balance, length(w.user_id), w.user_id
    LIMIT most OFFSET start.skip;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION levels_after(guild text, wanted bigint, most bigint)
RETURNS TABLE (user_id text, total_xp bigint, previous_xp bigint, updated_at timestamptz)
LANGUAGE plpgsql STABLE ROWS 26
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    start record;
BEGIN
    SELECT * INTO start FROM leaderboard_start('levels', guild, wanted);
    RETURN QUERY
    SELECT l.user_id, l.total_xp, l.previous_xp, l.updated_at
    FROM levels l
    WHERE l.guild_id = guild
      AND (-l.total_xp, length(l.user_id), l.user_id) >= (start.depth, start.length, start.user_id)
    ORDER BY -l.total_xp, length(l.user_id), l.user_id
    LIMIT most OFFSET start.skip;
END
$$;
-- +goose StatementEnd

-- draft_leaderboard makes a new map of one guild's leaderboard, a mark each
-- `stretch` rows, and returns its id. Where the marks stand need not be exact,
-- only how many rows lie ahead of each; that is counted later.
-- +goose StatementBegin
CREATE FUNCTION draft_leaderboard(name text, guild text, stretch integer) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
DECLARE
    made bigint;
BEGIN
    INSERT INTO leaderboard_maps (board, guild_id) VALUES (name, guild) RETURNING id INTO made;
    IF name = 'wallets' THEN
        INSERT INTO leaderboard_marks (map_id, number, depth, length, user_id)
        SELECT made, n / stretch, -r.balance, length(r.user_id), r.user_id
        FROM (
            SELECT w.balance, w.user_id,
                   row_number() OVER (ORDER BY -w.balance, length(w.user_id), w.user_id) - 1 AS n
            FROM wallets w
            WHERE w.guild_id = guild
        ) r
        WHERE n % stretch = 0 AND n > 0;
    ELSE
        INSERT INTO leaderboard_marks (map_id, number, depth, length, user_id)
        SELECT made, n / stretch, -r.total_xp, length(r.user_id), r.user_id
        FROM (
            SELECT l.total_xp, l.user_id,
                   row_number() OVER (ORDER BY -l.total_xp, length(l.user_id), l.user_id) - 1 AS n
            FROM levels l
            WHERE l.guild_id = guild
        ) r
        WHERE n % stretch = 0 AND n > 0;
    END IF;
    RETURN made;
END
$$;
-- +goose StatementEnd

-- count_leaderboard counts the rows ahead of each mark of a map, in one walk
-- through the leaderboard and the marks side by side.
-- +goose StatementBegin
CREATE FUNCTION count_leaderboard(map bigint) RETURNS bigint[]
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
DECLARE
    name  text;
    guild text;
    marks CURSOR FOR SELECT k.depth, k.length, k.user_id FROM leaderboard_marks k WHERE k.map_id = map ORDER BY k.number;
    list  refcursor;
    mark  record;
    place record;
    n     bigint := 0;
    ahead bigint[] := '{}';
BEGIN
    SELECT m.board, m.guild_id INTO STRICT name, guild FROM leaderboard_maps m WHERE m.id = map;
    IF name = 'wallets' THEN
        OPEN list FOR
            SELECT -w.balance AS depth, length(w.user_id) AS length, w.user_id FROM wallets w
            WHERE w.guild_id = guild ORDER BY -w.balance, length(w.user_id), w.user_id;
    ELSE
        OPEN list FOR
            SELECT -l.total_xp AS depth, length(l.user_id) AS length, l.user_id FROM levels l
            WHERE l.guild_id = guild ORDER BY -l.total_xp, length(l.user_id), l.user_id;
    END IF;
    FETCH list INTO place;
    FOR mark IN marks LOOP
        WHILE place IS NOT NULL AND (place.depth, place.length, place.user_id) < (mark.depth, mark.length, mark.user_id) LOOP
            n := n + 1;
            FETCH list INTO place;
        END LOOP;
        ahead := ahead || n;
    END LOOP;
    RETURN ahead;
END
$$;
-- +goose StatementEnd

-- fold_leaderboard adds the noted moves of a map to its counts. The notes go and
-- the counts change in one statement, so every reader sees one or the other. A
-- row counts for every mark behind the stretch that it lies in, the stretch from
-- one mark to the next; before the first mark is stretch 0.
-- +goose StatementBegin
CREATE FUNCTION fold_leaderboard(map bigint) RETURNS void
LANGUAGE sql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
    WITH gone AS (
        DELETE FROM leaderboard_moves WHERE map_id = map RETURNING user_id, was, is_now
    ), placed AS (
        SELECT place.change, coalesce((
            SELECT k.number
            FROM leaderboard_marks k
            WHERE k.map_id = map
              AND (k.depth, k.length, k.user_id) <= (place.depth, length(gone.user_id), gone.user_id)
            ORDER BY k.depth DESC, k.length DESC, k.user_id DESC
            LIMIT 1
        ), 0) AS stretch
        FROM gone, LATERAL (VALUES (gone.was, -1), (gone.is_now, 1)) AS place (depth, change)
        WHERE place.depth IS NOT NULL
    ), net AS (
        SELECT stretch, sum(change) AS change FROM placed GROUP BY stretch
    ), counted AS (
        SELECT array_agg(n ORDER BY i) AS ahead
        FROM (
            SELECT a.i, a.n + coalesce(sum(net.change) OVER (ORDER BY a.i), 0)::bigint AS n
            FROM leaderboard_maps m, unnest(m.ahead) WITH ORDINALITY AS a (n, i)
            LEFT JOIN net ON net.stretch = a.i - 1
            WHERE m.id = map
        ) x
    )
    UPDATE leaderboard_maps SET ahead = counted.ahead FROM counted WHERE id = map AND counted.ahead IS NOT NULL;
$$;
-- +goose StatementEnd

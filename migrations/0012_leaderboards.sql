-- +goose Up
-- What lets a leaderboard of a million be opened on page 4,000 at about the cost
-- of page 1. A map of a leaderboard is a list of marks: places in its order,
-- some hundred rows apart, and how many rows lie ahead of each. A reader looks
-- up the last mark that is not behind its page and walks from there.
--
-- The counts are exact, not estimates, because whoever moves a row past a mark
-- notes that in leaderboard_moves, in the same transaction. A reader sees rows,
-- counts and moves in one snapshot, so they fit together, whatever is being
-- changed meanwhile. Notes are only ever added and never waited for; from time
-- to time the keeper (package leaderboard) adds them to the counts.
--
-- A row's place is (depth, length(user_id), user_id) where depth is the negated
-- balance or XP: all three ascend, so that one comparison of rows finds a place
-- in the index.

-- state draft: the marks are set and writers note moves past them, but they are
-- not counted yet. That can be done exactly once every transaction that may not
-- have seen the marks is over, which is when none is older than the horizon.
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

CREATE TABLE leaderboard_marks (
    board    text COLLATE "C" NOT NULL,
    guild_id text COLLATE "C" NOT NULL,
    map_id   bigint  NOT NULL REFERENCES leaderboard_maps (id) ON DELETE CASCADE,
    number   integer NOT NULL, -- from 1 in the leaderboard's order
    depth    bigint  NOT NULL,
    length   integer NOT NULL,
    user_id  text COLLATE "C" NOT NULL,
    PRIMARY KEY (map_id, number)
);

CREATE INDEX leaderboard_marks_place ON leaderboard_marks (board, guild_id, depth, length, user_id, map_id, number);

-- A row came to (+1) or left (-1) the stretch that begins at mark number, or the
-- one before the first mark, 0.
CREATE TABLE leaderboard_moves (
    map_id bigint   NOT NULL,
    number integer  NOT NULL,
    change smallint NOT NULL
);

CREATE INDEX leaderboard_moves_map ON leaderboard_moves (map_id) INCLUDE (number, change);

-- leaderboard_note notes that the member's row went from one depth to another;
-- null is having no row.
-- +goose StatementBegin
CREATE FUNCTION leaderboard_note(name text, guild text, member text, was bigint, is_now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO leaderboard_moves (map_id, number, change)
    SELECT m.id, coalesce((
        SELECT k.number
        FROM leaderboard_marks k
        WHERE k.board = name
          AND k.guild_id = guild
          AND k.map_id = m.id
          AND (k.depth, k.length, k.user_id) <= (place.depth, length(member), member)
        ORDER BY k.depth DESC, k.length DESC, k.user_id DESC
        LIMIT 1
    ), 0), place.change
    FROM leaderboard_maps m, (VALUES (was, -1), (is_now, 1)) AS place (depth, change)
    WHERE m.board = name
      AND m.guild_id = guild
      AND place.depth IS NOT NULL;
END
$$;
-- +goose StatementEnd

-- The usual change passes no mark, and finding that out is one look into an
-- index: the next mark behind the nearer of the two places lies behind the
-- farther one too.
--
-- These rely on READ COMMITTED, where each query sees what was committed before
-- it: so marks count from the moment they are there.
-- +goose StatementBegin
CREATE FUNCTION wallet_moved() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    size integer;
    mark record;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        size := length(NEW.user_id);
        SELECT k.depth, k.length, k.user_id INTO mark
        FROM leaderboard_marks k
        WHERE k.board = 'wallets'
          AND k.guild_id = NEW.guild_id
          AND (k.depth, k.length, k.user_id) > (-greatest(OLD.balance, NEW.balance), size, NEW.user_id)
        ORDER BY k.depth, k.length, k.user_id
        LIMIT 1;
        IF FOUND AND (mark.depth, mark.length, mark.user_id) <= (-least(OLD.balance, NEW.balance), size, NEW.user_id) THEN
            PERFORM leaderboard_note('wallets', NEW.guild_id, NEW.user_id, -OLD.balance, -NEW.balance);
        END IF;
    ELSIF TG_OP = 'INSERT' THEN
        IF EXISTS (SELECT FROM leaderboard_maps m WHERE m.board = 'wallets' AND m.guild_id = NEW.guild_id) THEN
            PERFORM leaderboard_note('wallets', NEW.guild_id, NEW.user_id, NULL, -NEW.balance);
        END IF;
    ELSE
        PERFORM leaderboard_note('wallets', OLD.guild_id, OLD.user_id, -OLD.balance, NULL);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION level_moved() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    size integer;
    mark record;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        size := length(NEW.user_id);
        SELECT k.depth, k.length, k.user_id INTO mark
        FROM leaderboard_marks k
        WHERE k.board = 'levels'
          AND k.guild_id = NEW.guild_id
          AND (k.depth, k.length, k.user_id) > (-greatest(OLD.total_xp, NEW.total_xp), size, NEW.user_id)
        ORDER BY k.depth, k.length, k.user_id
        LIMIT 1;
        IF FOUND AND (mark.depth, mark.length, mark.user_id) <= (-least(OLD.total_xp, NEW.total_xp), size, NEW.user_id) THEN
            PERFORM leaderboard_note('levels', NEW.guild_id, NEW.user_id, -OLD.total_xp, -NEW.total_xp);
        END IF;
    ELSIF TG_OP = 'INSERT' THEN
        IF EXISTS (SELECT FROM leaderboard_maps m WHERE m.board = 'levels' AND m.guild_id = NEW.guild_id) THEN
            PERFORM leaderboard_note('levels', NEW.guild_id, NEW.user_id, NULL, -NEW.total_xp);
        END IF;
    ELSE
        PERFORM leaderboard_note('levels', OLD.guild_id, OLD.user_id, -OLD.total_xp, NULL);
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
-- Rows ahead of a mark = its count + the changes noted for stretches before it.
-- The first guess leaves the moves out; when they put that mark behind the
-- wanted row, the second guess allows for all of them.
--
-- It must be STABLE: it then sees what the statement that calls it sees.
-- +goose StatementBegin
CREATE FUNCTION leaderboard_start(name text, guild text, wanted bigint,
    OUT depth bigint, OUT length integer, OUT user_id text, OUT skip bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    map   leaderboard_maps;
    moves bigint;
    n     integer;
    at    bigint;
BEGIN
    depth := -9223372036854775807; length := 0; user_id := ''; skip := wanted;
    SELECT * INTO map FROM leaderboard_maps m WHERE m.board = name AND m.guild_id = guild AND m.state = 'live';
    IF NOT FOUND OR map.ahead = '{}' THEN
        RETURN;
    END IF;
    n := width_bucket(wanted, map.ahead);
    IF n = 0 THEN
        RETURN;
    END IF;
    SELECT map.ahead[n] + coalesce(sum(v.change) FILTER (WHERE v.number < n), 0), count(*) INTO at, moves
    FROM leaderboard_moves v WHERE v.map_id = map.id;
    IF at > wanted THEN
        n := width_bucket(wanted - moves, map.ahead);
        IF n = 0 THEN
            RETURN;
        END IF;
        SELECT map.ahead[n] + coalesce(sum(v.change) FILTER (WHERE v.number < n), 0) INTO at
        FROM leaderboard_moves v WHERE v.map_id = map.id;
    END IF;
    SELECT k.depth, k.length, k.user_id INTO STRICT depth, length, user_id
    FROM leaderboard_marks k WHERE k.map_id = map.id AND k.number = n;
    skip := wanted - at;
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
        INSERT INTO leaderboard_marks (board, guild_id, map_id, number, depth, length, user_id)
        SELECT name, guild, made, n / stretch, -r.balance, length(r.user_id), r.user_id
        FROM (
            SELECT w.balance, w.user_id,
                   row_number() OVER (ORDER BY -w.balance, length(w.user_id), w.user_id) - 1 AS n
            FROM wallets w
            WHERE w.guild_id = guild
        ) r
        WHERE n % stretch = 0 AND n > 0;
    ELSE
        INSERT INTO leaderboard_marks (board, guild_id, map_id, number, depth, length, user_id)
        SELECT name, guild, made, n / stretch, -r.total_xp, length(r.user_id), r.user_id
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

-- fold_leaderboard adds the noted moves of a map to its counts. The moves go and
-- the counts change in one statement, so every reader sees one or the other.
-- +goose StatementBegin
CREATE FUNCTION fold_leaderboard(map bigint) RETURNS void
LANGUAGE sql AS $$
    WITH gone AS (
        DELETE FROM leaderboard_moves WHERE map_id = map RETURNING number, change
    ), net AS (
        SELECT number, sum(change) AS change FROM gone GROUP BY number
    ), counted AS (
        SELECT array_agg(n ORDER BY i) AS ahead
        FROM (
            SELECT a.i, a.n + coalesce(sum(net.change) OVER (ORDER BY a.i), 0)::bigint AS n
            FROM leaderboard_maps m, unnest(m.ahead) WITH ORDINALITY AS a (n, i)
            LEFT JOIN net ON net.number = a.i - 1
            WHERE m.id = map
        ) x
    )
    UPDATE leaderboard_maps SET ahead = counted.ahead FROM counted WHERE id = map;
$$;
-- +goose StatementEnd

-- +goose Up
-- The maps of leaderboards as package leaderboard keeps them, without functions
-- and triggers: a statement that changes a balance or XP notes itself where the
-- row went. Each key begins with the guild. The tables leaderboard_*, with their
-- functions and triggers, serve the release before until it has stopped.

-- state draft: the marks are set and writers note moves, but nothing is counted
-- yet. That can be done exactly once every transaction is over that may have
-- changed rows without seeing the map: awaited, by their virtual ids; null until
-- they are known.
CREATE TABLE rank_maps (
    guild_id text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    board    text COLLATE "C" NOT NULL
        CONSTRAINT rank_maps_board CHECK (board IN ('wallets', 'levels')),
    version  bigint   NOT NULL,
    state    text     NOT NULL DEFAULT 'draft'
        CONSTRAINT rank_maps_state CHECK (state IN ('draft', 'live')),
    awaited  text[],
    -- The n-th number is how many rows lie ahead of mark n, but for the moves
    -- that are noted and not yet added.
    ahead    bigint[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (guild_id, board, version),
    CONSTRAINT rank_maps_one UNIQUE (guild_id, board, state)
);

-- Every deep page reads the counts; unpacking them would take longer than that.
ALTER TABLE rank_maps ALTER COLUMN ahead SET STORAGE EXTERNAL;

-- The keeper asks for drafts each second.
CREATE INDEX rank_maps_drafts ON rank_maps (guild_id, board) WHERE state = 'draft';

CREATE TABLE rank_marks (
    guild_id text COLLATE "C" NOT NULL,
    board    text COLLATE "C" NOT NULL,
    version  bigint  NOT NULL,
    number   integer NOT NULL, -- from 1 in the leaderboard's order
    depth    bigint  NOT NULL,
    length   integer NOT NULL,
    user_id  text COLLATE "C" NOT NULL,
    PRIMARY KEY (guild_id, board, version, number),
    FOREIGN KEY (guild_id, board, version) REFERENCES rank_maps ON DELETE CASCADE
);

CREATE INDEX rank_marks_place ON rank_marks (guild_id, board, version, depth, length, user_id);

-- The member's row went from one depth to another; null is having no row.
CREATE TABLE rank_moves (
    guild_id text COLLATE "C" NOT NULL,
    board    text COLLATE "C" NOT NULL,
    version  bigint NOT NULL,
    user_id  text COLLATE "C" NOT NULL,
    was      bigint,
    is_now   bigint
);

CREATE INDEX rank_moves_map ON rank_moves (guild_id, board, version);

-- Leaderboards that want a look of the keeper, because they have grown or rows
-- of theirs have moved: so it neither searches all guilds nor looks at all maps.
CREATE TABLE rank_requests (
    guild_id text COLLATE "C" NOT NULL,
    board    text COLLATE "C" NOT NULL
        CONSTRAINT rank_requests_board CHECK (board IN ('wallets', 'levels'))
);

CREATE INDEX rank_requests_board ON rank_requests (guild_id, board);

-- A delivery's id is a UUIDv7, so that ids stand in the order in which deliveries
-- were made. This is webhook_delivery_id() without a function.
ALTER TABLE webhook_deliveries ALTER COLUMN id SET DEFAULT encode(
    set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
            PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
            FROM 1 FOR 6),
        52, 1), 53, 1),
    'hex')::uuid::text;

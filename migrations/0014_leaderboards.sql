-- +goose Up
-- The rank index of a large leaderboard: with it page 4,000 costs about as much as page 1.
-- It is a list of checkpoints some hundred rows apart, with the number of rows before
-- each. A reader finds the last checkpoint before its page and reads on from there.
--
-- The counts are exact: a statement that changes a row of the leaderboard stores in
-- rank_moves from where to where the row moved, in the same transaction. A reader sees
-- rows, counts and moves in one snapshot. The maintainer adds the moves to the counts
-- about once a second.
--
-- In state draft the checkpoints exist and moves are stored, but nothing is counted yet:
-- that waits until every transaction has ended that may have changed rows without seeing
-- the rank index. awaited holds their virtual ids; null until they are known.
CREATE TABLE rank_indexes (
    guild_id text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    board    text COLLATE "C" NOT NULL
        CONSTRAINT rank_indexes_board CHECK (board IN ('wallets', 'levels')),
    version  bigint   NOT NULL,
    state    text     NOT NULL DEFAULT 'draft'
        CONSTRAINT rank_indexes_state CHECK (state IN ('draft', 'live')),
    awaited  text[],
    -- The n-th number is how many rows lie before checkpoint n, without the moves that
    -- are stored and not yet added. Every deep page reads it; decompressing it would
    -- take longer than that, so it is stored as it is.
    ahead    bigint[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (guild_id, board, version),
    CONSTRAINT rank_indexes_one UNIQUE (guild_id, board, state)
);

ALTER TABLE rank_indexes ALTER COLUMN ahead SET STORAGE EXTERNAL;

CREATE INDEX rank_indexes_drafts ON rank_indexes (guild_id, board) WHERE state = 'draft';

-- A checkpoint of a rank index: a position in the leaderboard's order. depth is the
-- negated balance or XP, so that depth, length and user_id all ascend and one comparison
-- of rows finds a position in the index.
CREATE TABLE rank_checkpoints (
    guild_id text COLLATE "C" NOT NULL,
    board    text COLLATE "C" NOT NULL,
    version  bigint  NOT NULL,
    number   integer NOT NULL, -- from 1, in the leaderboard's order
    depth    bigint  NOT NULL,
    length   integer NOT NULL,
    user_id  text COLLATE "C" NOT NULL,
    PRIMARY KEY (guild_id, board, version, number),
    FOREIGN KEY (guild_id, board, version) REFERENCES rank_indexes (guild_id, board, version) ON DELETE CASCADE
);

CREATE INDEX rank_checkpoints_place ON rank_checkpoints (guild_id, board, version, depth, length, user_id);

-- A member's row moved from one depth to another; null: there was or is no row.
CREATE TABLE rank_moves (
    guild_id text COLLATE "C" NOT NULL,
    board    text COLLATE "C" NOT NULL,
    version  bigint NOT NULL,
    user_id  text COLLATE "C" NOT NULL,
    was      bigint,
    is_now   bigint
);

CREATE INDEX rank_moves_map ON rank_moves (guild_id, board, version);

-- A leaderboard that the maintainer has to check, since it has grown or rows have moved. So the
-- maintainer neither scans all guilds nor reads all rank indexes.
CREATE TABLE rank_requests (
    guild_id text COLLATE "C" NOT NULL,
    board    text COLLATE "C" NOT NULL
        CONSTRAINT rank_requests_board CHECK (board IN ('wallets', 'levels'))
);

CREATE INDEX rank_requests_board ON rank_requests (guild_id, board);

-- +goose Up
CREATE TABLE giveaways (
    guild_id      text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    id            text COLLATE "C" NOT NULL,
    status        text COLLATE "C" NOT NULL
        CONSTRAINT giveaways_status CHECK (status IN ('scheduled', 'active', 'paused', 'drawing', 'ended')),
    prize         text        NOT NULL
        CONSTRAINT giveaways_prize_length CHECK (char_length(prize) BETWEEN 1 AND 200),
    description   text
        CONSTRAINT giveaways_description_length CHECK (char_length(description) <= 1000),
    winner_count  integer     NOT NULL
        CONSTRAINT giveaways_winner_count CHECK (winner_count BETWEEN 1 AND 100),
    -- Kept by the triggers below, so that showing a giveaway never counts.
    entrant_count bigint      NOT NULL DEFAULT 0,
    entry_count   bigint      NOT NULL DEFAULT 0
        CONSTRAINT giveaways_entry_count CHECK (entry_count BETWEEN 0 AND 9007199254740991),
    winners       text[]      NOT NULL DEFAULT '{}',
    host_id       text COLLATE "C",
    channel_id    text COLLATE "C" NOT NULL,
    message_id    text COLLATE "C",
    starts_at     timestamptz NOT NULL,
    ends_at       timestamptz NOT NULL,
    -- Since when it is paused; a resume moves ends_at by the time since then.
    paused_at     timestamptz,
    -- When a giveaway that is still in drawing gets another draw job. The
    -- default makes one that arrives in drawing, from an import, due at once.
    redraw_at     timestamptz NOT NULL DEFAULT now(),
    ended_at      timestamptz,
    -- How many draws it has had; each has its record in giveaway_draws.
    rounds        integer     NOT NULL DEFAULT 0,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, id)
) WITH (fillfactor = 85); -- room for the next version of a row whose counters move

CREATE INDEX giveaways_newest ON giveaways (guild_id, created_at DESC, id DESC);
CREATE INDEX giveaways_by_status ON giveaways (guild_id, status, created_at DESC, id DESC);

-- What moves by time is looked for over all guilds at once, so these do not
-- start with the guild. Each holds only the giveaways that still have to move.
CREATE INDEX giveaways_starting ON giveaways (starts_at) WHERE status = 'scheduled';
CREATE INDEX giveaways_ending ON giveaways (ends_at) WHERE status = 'active';
CREATE INDEX giveaways_drawing ON giveaways (redraw_at) WHERE status = 'drawing';

CREATE TABLE giveaway_entries (
    guild_id    text COLLATE "C" NOT NULL,
    giveaway_id text COLLATE "C" NOT NULL,
    user_id     text COLLATE "C" NOT NULL,
    entries     bigint      NOT NULL DEFAULT 1
        CONSTRAINT giveaway_entries_entries CHECK (entries BETWEEN 1 AND 9007199254740991),
    entered_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, giveaway_id, user_id)
);

-- The list's order; numeric order of a snowflake is length, then text.
CREATE INDEX giveaway_entries_oldest ON giveaway_entries
    (guild_id, giveaway_id, entered_at, length(user_id), user_id);

-- The counters follow the entries whoever writes them: the bot one at a time,
-- an import a million with one COPY. One statement costs one update of each
-- giveaway it touches. That update waits while a draw holds the giveaway, and a
-- draw waits for it, so a draw sees exactly the entries the counters count.
--
-- The update also proves that the giveaway exists, once per statement; a
-- foreign key would ask for each row, which takes longer than the rest of the
-- COPY.
-- +goose StatementBegin
CREATE FUNCTION count_giveaway_entries() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    strays bigint := 0;
BEGIN
    IF TG_OP = 'INSERT' THEN
        WITH change AS (
            SELECT guild_id, giveaway_id, count(*) AS entrants, sum(entries) AS entries
            FROM added
            GROUP BY guild_id, giveaway_id
        ), counted AS (
            UPDATE giveaways g
            SET entrant_count = g.entrant_count + change.entrants,
                entry_count = g.entry_count + change.entries
            FROM change
            WHERE g.guild_id = change.guild_id
              AND g.id = change.giveaway_id
            RETURNING 1
        )
        SELECT (SELECT count(*) FROM change) - (SELECT count(*) FROM counted) INTO strays;
    ELSIF TG_OP = 'UPDATE' THEN
        WITH change AS (
            SELECT guild_id, giveaway_id, sum(entrants) AS entrants, sum(entries) AS entries
            FROM (
                SELECT guild_id, giveaway_id, 1 AS entrants, entries FROM added
                UNION ALL
                SELECT guild_id, giveaway_id, -1, -entries FROM removed
            ) AS rows
            GROUP BY guild_id, giveaway_id
        ), counted AS (
            UPDATE giveaways g
            SET entrant_count = g.entrant_count + change.entrants,
                entry_count = g.entry_count + change.entries
            FROM change
            WHERE g.guild_id = change.guild_id
              AND g.id = change.giveaway_id
            RETURNING 1
        )
        SELECT (SELECT count(*) FROM change) - (SELECT count(*) FROM counted) INTO strays;
    ELSE
        WITH change AS (
            SELECT guild_id, giveaway_id, count(*) AS entrants, sum(entries) AS entries
            FROM removed
            GROUP BY guild_id, giveaway_id
        )
        UPDATE giveaways g
        SET entrant_count = g.entrant_count - change.entrants,
            entry_count = g.entry_count - change.entries
        FROM change
        WHERE g.guild_id = change.guild_id
          AND g.id = change.giveaway_id;
    END IF;
    IF strays > 0 THEN
        RAISE EXCEPTION 'an entry names a giveaway that does not exist'
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'giveaway_entries_giveaway';
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER giveaway_entries_added AFTER INSERT ON giveaway_entries
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION count_giveaway_entries();
CREATE TRIGGER giveaway_entries_removed AFTER DELETE ON giveaway_entries
    REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION count_giveaway_entries();
CREATE TRIGGER giveaway_entries_changed AFTER UPDATE ON giveaway_entries
    REFERENCING OLD TABLE AS removed NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION count_giveaway_entries();

-- The entries go with their giveaway.
-- +goose StatementBegin
CREATE FUNCTION drop_giveaway_entries() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM giveaway_entries e
    USING gone
    WHERE e.guild_id = gone.guild_id
      AND e.giveaway_id = gone.id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER giveaways_gone AFTER DELETE ON giveaways
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION drop_giveaway_entries();

-- The record of every draw. With it and the entries anyone can repeat the draw:
-- winners of the round are drawn from the entrants who are neither in
-- past_winners nor in excluded, by the seed, as internal/service/giveaways documents.
CREATE TABLE giveaway_draws (
    guild_id     text COLLATE "C" NOT NULL,
    giveaway_id  text COLLATE "C" NOT NULL,
    round        integer     NOT NULL
        CONSTRAINT giveaway_draws_round CHECK (round >= 1),
    seed         bytea       NOT NULL
        CONSTRAINT giveaway_draws_seed CHECK (octet_length(seed) = 32),
    entries_hash bytea       NOT NULL
        CONSTRAINT giveaway_draws_entries_hash CHECK (octet_length(entries_hash) = 32),
    past_winners text[]      NOT NULL, -- all who had ever won it before this round
    excluded     text[]      NOT NULL, -- whom the caller of a reroll left out besides
    drawn        text[]      NOT NULL, -- this round's winners in the order of drawing
    replaced     text[]      NOT NULL, -- whose places they took
    winners      text[]      NOT NULL, -- the giveaway's winners after the round
    token_id     text COLLATE "C",     -- who asked for a reroll; null for the draw at the end
    reason       text,
    drawn_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, giveaway_id, round),
    FOREIGN KEY (guild_id, giveaway_id) REFERENCES giveaways (guild_id, id) ON DELETE CASCADE
);

-- A record stays as it was written, for as long as its giveaway exists.
-- +goose StatementBegin
CREATE FUNCTION keep_giveaway_draws() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND NOT EXISTS (
        SELECT FROM giveaways
        WHERE guild_id = OLD.guild_id
          AND id = OLD.giveaway_id
    ) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the record of a draw is never changed' USING ERRCODE = 'restrict_violation';
END
$$;
-- +goose StatementEnd

CREATE TRIGGER giveaway_draws_kept BEFORE UPDATE OR DELETE ON giveaway_draws
    FOR EACH ROW EXECUTE FUNCTION keep_giveaway_draws();

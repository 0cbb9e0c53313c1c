-- +goose Up
ALTER TABLE giveaways
    -- Who runs it: the API made it, then the bot posts its message and members
    -- enter by reacting to that; or it came from the bot, with its entries.
    ADD COLUMN source text NOT NULL DEFAULT 'bot' CONSTRAINT giveaways_source CHECK (source IN ('api', 'bot')),
    -- open: entries come and go. gathering: the reactions to the message are
    -- being read, nothing else is added. frozen: the entries never change again.
    ADD COLUMN pot text NOT NULL DEFAULT 'open' CONSTRAINT giveaways_pot CHECK (pot IN ('open', 'gathering', 'frozen')),
    ADD COLUMN post_id text COLLATE "C",            -- the intent of its message
    ADD COLUMN ended_by_token_id text COLLATE "C",  -- the token whose call ended it; null when its time was over
    ADD COLUMN drawing_at timestamptz,              -- when drawing began
    ADD COLUMN reaction_after text COLLATE "C" NOT NULL DEFAULT '', -- the reactions up to this user are read
    ADD COLUMN reaction_count bigint NOT NULL DEFAULT 0,            -- members found among them
    ADD COLUMN reactions_missed boolean NOT NULL DEFAULT false,     -- they could not all be read
    ADD COLUMN react_at timestamptz,                -- when the bot is to add its own reaction; null: nothing to do
    ADD COLUMN failures integer NOT NULL DEFAULT 0; -- of reading, reacting or drawing, in a row

UPDATE giveaways SET pot = 'frozen' WHERE status IN ('drawing', 'ended');

-- The entries in the pot of a round: without those of whoever was left out.
-- Draws of earlier releases have none; it is counted when they are shown.
ALTER TABLE giveaway_draws ADD COLUMN entry_count bigint
    CONSTRAINT giveaway_draws_entry_count CHECK (entry_count BETWEEN 0 AND 9007199254740991);

-- Whom a message may notify.
ALTER TABLE chat_intents ADD COLUMN mentions text[] NOT NULL DEFAULT '{}';
ALTER TABLE chat_intents DROP CONSTRAINT chat_intents_kind;
ALTER TABLE chat_intents ADD CONSTRAINT chat_intents_kind
    CHECK (kind IN ('ticket_message', 'giveaway_started', 'giveaway_resumed', 'giveaway_ended', 'giveaway_rerolled')) NOT VALID;

-- As before, and refuses to change the entries of a giveaway whose pot is not
-- open.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION count_giveaway_entries() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    strays bigint := 0;
    closed bigint := 0;
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
            RETURNING g.pot
        )
        SELECT (SELECT count(*) FROM change) - count(*), count(*) FILTER (WHERE pot <> 'open') FROM counted INTO strays, closed;
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
            RETURNING g.pot
        )
        SELECT (SELECT count(*) FROM change) - count(*), count(*) FILTER (WHERE pot <> 'open') FROM counted INTO strays, closed;
    ELSE
        WITH change AS (
            SELECT guild_id, giveaway_id, count(*) AS entrants, sum(entries) AS entries
            FROM removed
            GROUP BY guild_id, giveaway_id
        ), counted AS (
            UPDATE giveaways g
            SET entrant_count = g.entrant_count - change.entrants,
                entry_count = g.entry_count - change.entries
            FROM change
            WHERE g.guild_id = change.guild_id
              AND g.id = change.giveaway_id
            RETURNING g.pot
        )
        SELECT count(*) FILTER (WHERE pot <> 'open') FROM counted INTO closed;
    END IF;
    IF strays > 0 THEN
        RAISE EXCEPTION 'an entry names a giveaway that does not exist'
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'giveaway_entries_giveaway';
    END IF;
    IF closed > 0 THEN
        RAISE EXCEPTION 'the entries of a giveaway do not change any more once it is being drawn'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'giveaway_entries_frozen';
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

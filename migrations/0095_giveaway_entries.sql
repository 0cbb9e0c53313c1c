-- +goose Up
-- Whoever adds entries counts them in the same statement, and names the state of
-- the giveaway there. Nodes of the release before leave both to this function
-- until they have stopped (0102); it does nothing for those who say that they
-- count themselves.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION count_giveaway_entries() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    strays bigint := 0;
    closed bigint := 0;
BEGIN
    IF current_setting('guildhall.counts_entries', true) = 'on' THEN
        RETURN NULL;
    END IF;
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

-- The nonce is made from the intent's id, which the key holds with its guild.
ALTER TABLE chat_intents DROP CONSTRAINT chat_intents_nonce;

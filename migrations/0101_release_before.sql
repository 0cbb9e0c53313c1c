-- No node of the release before runs any more.
-- +goose Up
-- The program runs without this migration.
-- This one and the two behind it can be repeated: before the release they had lower
-- numbers, under which databases of its builds have run them.
-- What stood in functions and triggers stands in the program's statements; these
-- were left for the release before.

-- Nobody has made maps as long as triggers noted moves for other tables only, so
-- large leaderboards are looked at now.
INSERT INTO rank_requests (guild_id, board)
SELECT g.id, 'wallets' FROM guilds g WHERE EXISTS (SELECT FROM wallets WHERE guild_id = g.id OFFSET 4095)
UNION ALL
SELECT g.id, 'levels' FROM guilds g WHERE EXISTS (SELECT FROM levels WHERE guild_id = g.id OFFSET 4095);

DROP TRIGGER IF EXISTS wallet_moved ON wallets;
DROP TRIGGER IF EXISTS wallet_came_or_went ON wallets;
DROP TRIGGER IF EXISTS wallet_owner_kept ON wallets;
DROP TRIGGER IF EXISTS level_moved ON levels;
DROP TRIGGER IF EXISTS level_came_or_went ON levels;
DROP TRIGGER IF EXISTS level_owner_kept ON levels;
DROP FUNCTION IF EXISTS wallet_moved();
DROP FUNCTION IF EXISTS level_moved();
DROP FUNCTION IF EXISTS keep_leaderboard_owner();
DROP FUNCTION IF EXISTS ask_leaderboard_keeper(text, text);
DROP FUNCTION IF EXISTS wallets_after(text, bigint, bigint);
DROP FUNCTION IF EXISTS levels_after(text, bigint, bigint);
DROP FUNCTION IF EXISTS leaderboard_start(text, text, bigint);
DROP FUNCTION IF EXISTS draft_leaderboard(text, text, integer);
DROP FUNCTION IF EXISTS count_leaderboard(bigint);
DROP FUNCTION IF EXISTS fold_leaderboard(bigint);
DROP TABLE IF EXISTS leaderboard_queue;
DROP TABLE IF EXISTS leaderboard_moves;
DROP TABLE IF EXISTS leaderboard_marks;
DROP TABLE IF EXISTS leaderboard_maps;

DROP FUNCTION IF EXISTS record_event(text, text, text, text, text);
DROP FUNCTION IF EXISTS record_event(text, text, text, text, text, timestamptz);
DROP FUNCTION IF EXISTS webhook_payload(text, text, text, text, text);
DROP FUNCTION IF EXISTS webhook_payload(text, text, text, text, text, timestamptz);
DROP FUNCTION IF EXISTS webhook_delivery_id();
DROP FUNCTION IF EXISTS later(timestamptz);

-- The release before looks rows up by their ids.
-- +goose StatementBegin
DO $$
BEGIN
    IF to_regclass('ledger_entries_order') IS NOT NULL THEN
        ALTER TABLE ledger_entries
            DROP CONSTRAINT ledger_entries_pkey,
            ADD CONSTRAINT ledger_entries_pkey PRIMARY KEY USING INDEX ledger_entries_order;
    END IF;
END
$$;
-- +goose StatementEnd

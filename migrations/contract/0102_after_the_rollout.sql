-- +goose NO TRANSACTION
-- +goose Up
-- What nodes of the release before needed goes. What an interrupted run has left is dropped first, so
-- that the run can be repeated.
DROP TRIGGER IF EXISTS giveaway_entries_added ON giveaway_entries;
DROP TRIGGER IF EXISTS giveaway_entries_removed ON giveaway_entries;
DROP TRIGGER IF EXISTS giveaway_entries_changed ON giveaway_entries;
DROP FUNCTION IF EXISTS count_giveaway_entries();
DROP TRIGGER IF EXISTS giveaways_gone ON giveaways;
DROP FUNCTION IF EXISTS drop_giveaway_entries();
DROP TRIGGER IF EXISTS giveaway_draws_kept ON giveaway_draws;
DROP FUNCTION IF EXISTS keep_giveaway_draws();

-- Every kept answer has its guild now, but for those of tokens that went meanwhile.
DROP TRIGGER IF EXISTS idempotency_keys_guild ON idempotency_keys;
DROP FUNCTION IF EXISTS idempotency_keys_guild();
DELETE FROM idempotency_keys WHERE guild_id IS NULL;
ALTER TABLE idempotency_keys DROP CONSTRAINT IF EXISTS idempotency_keys_guild_known;
ALTER TABLE idempotency_keys ADD CONSTRAINT idempotency_keys_guild_known CHECK (guild_id IS NOT NULL) NOT VALID;
ALTER TABLE idempotency_keys VALIDATE CONSTRAINT idempotency_keys_guild_known;
ALTER TABLE idempotency_keys ALTER COLUMN guild_id SET NOT NULL;
ALTER TABLE idempotency_keys DROP CONSTRAINT idempotency_keys_guild_known;

SET lock_timeout = '60s'; -- making an index waits for transactions and keeps none waiting
DROP INDEX CONCURRENTLY IF EXISTS idempotency_keys_key;
CREATE UNIQUE INDEX CONCURRENTLY idempotency_keys_key ON idempotency_keys (guild_id, token_id, key);
RESET lock_timeout;
ALTER TABLE idempotency_keys
    DROP CONSTRAINT idempotency_keys_pkey,
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY USING INDEX idempotency_keys_key,
    DROP COLUMN IF EXISTS lease_gen,
    DROP COLUMN IF EXISTS recovery;

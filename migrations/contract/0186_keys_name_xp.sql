-- +goose NO TRANSACTION
-- +goose Up
-- Programs that do not know 0185 cannot replay a key that names a change of XP. Once
-- this is on its way (oldest_program), such keys are kept.
ALTER TABLE idempotency_keys DROP CONSTRAINT IF EXISTS idempotency_keys_answered;
ALTER TABLE idempotency_keys ADD CONSTRAINT idempotency_keys_answered
    CHECK (state = 'running' OR status IS NOT NULL AND (body IS NOT NULL OR entry_at IS NOT NULL
        AND (entry_id IS NOT NULL OR xp_of IS NOT NULL AND xp_before IS NOT NULL AND xp_after IS NOT NULL))) NOT VALID;
ALTER TABLE idempotency_keys VALIDATE CONSTRAINT idempotency_keys_answered;

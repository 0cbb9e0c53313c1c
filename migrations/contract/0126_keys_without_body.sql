-- +goose NO TRANSACTION
-- +goose Up
-- Programs that do not know 0125 replay nothing but bodies. Once this is on its way
-- (oldest_program), keys are kept that name a ledger entry and hold none.
ALTER TABLE idempotency_keys DROP CONSTRAINT IF EXISTS idempotency_keys_answered;
ALTER TABLE idempotency_keys ADD CONSTRAINT idempotency_keys_answered
    CHECK (state = 'running' OR status IS NOT NULL AND (body IS NOT NULL OR entry_id IS NOT NULL AND entry_at IS NOT NULL)) NOT VALID;
ALTER TABLE idempotency_keys VALIDATE CONSTRAINT idempotency_keys_answered;

-- +goose Up
-- A key may name the ledger entry that was made under it, by the entry's id and
-- instant, in place of holding the response: that one follows from the entry.
ALTER TABLE idempotency_keys
    ADD COLUMN entry_id text COLLATE "C",
    ADD COLUMN entry_at timestamptz;

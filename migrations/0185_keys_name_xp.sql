-- +goose Up
-- A key may name the change of a member's XP that was made under it, with its instant
-- in entry_at, in place of holding the response: that one follows from it.
ALTER TABLE idempotency_keys
    ADD COLUMN xp_of text COLLATE "C",
    ADD COLUMN xp_before bigint,
    ADD COLUMN xp_after bigint;

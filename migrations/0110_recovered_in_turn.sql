-- +goose Up
-- What recover has queued for an endpoint waits with one due_at, recovered_at, and goes
-- out in turn with everything else; while recovered_passes, past a block and a quiet
-- time. refused_at is when an address that is not allowed was last counted.
ALTER TABLE webhook_schedule
    ADD COLUMN recovered_at     timestamptz,
    ADD COLUMN recovered_passes boolean NOT NULL DEFAULT false,
    ADD COLUMN refused_at       timestamptz;

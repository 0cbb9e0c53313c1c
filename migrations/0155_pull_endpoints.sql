-- +goose Up
-- What an endpoint listens to is sent to it (push), or kept until its owner fetches it
-- (pull). fetched_at is when somebody last asked for it, to the minute, and fetched_by
-- the token or bot key that did; where it was never fetched, when it was registered or enabled.
-- Since complete_since, what it listens to is kept: it was enabled all the time.
ALTER TABLE webhook_endpoints
    ADD COLUMN delivery text NOT NULL DEFAULT 'push'
        CONSTRAINT webhook_endpoints_delivery CHECK (delivery IN ('push', 'pull'));
ALTER TABLE webhook_schedule
    ADD COLUMN fetched_at timestamptz,
    ADD COLUMN fetched_by text,
    ADD COLUMN complete_since timestamptz;

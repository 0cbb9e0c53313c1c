-- +goose Up
-- The traceparent of the request that has recorded the event, which its deliveries
-- carry on; null where nobody traces.
ALTER TABLE webhook_events ADD COLUMN trace text;

-- The three migrations behind this one had other numbers in builds before the
-- release: what has run under those does not run again.
INSERT INTO goose_db_version (version_id, is_applied)
SELECT version_id + 4, true FROM goose_db_version WHERE version_id IN (97, 98, 99) AND is_applied;

-- +goose Up
-- The traceparent of the request that has recorded the event, which its deliveries
-- carry on; null where nobody traces.
ALTER TABLE webhook_events ADD COLUMN trace text;

-- +goose NO TRANSACTION
-- +goose Up
-- Programs that do not know 0155 would send what waits for a pull endpoint. Once this
-- is on its way (oldest_program), such endpoints are made.
ALTER TABLE webhook_schedule DROP CONSTRAINT IF EXISTS webhook_schedule_disposition;
ALTER TABLE webhook_schedule ADD CONSTRAINT webhook_schedule_disposition
    CHECK (disposition IN ('send', 'pull', 'hold', 'drop')) NOT VALID;
ALTER TABLE webhook_schedule VALIDATE CONSTRAINT webhook_schedule_disposition;

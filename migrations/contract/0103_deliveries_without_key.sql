-- +goose Up
-- Each delivery is stored by the statement or the unit that stores its event, or
-- that has just read it; to look for it once more, and to lock it, was a twelfth
-- of what an event costs. What keeps the two together stands in internal/outbound/delivery.
ALTER TABLE webhook_deliveries DROP CONSTRAINT IF EXISTS webhook_deliveries_guild_id_event_id_fkey;

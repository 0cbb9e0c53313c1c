-- +goose Up
-- An event happens at the instant of its change, which is taken after the lock
-- that orders it, not when its transaction began. The forms without an instant
-- stay for the programs of the release before, which run beside this one while
-- it is rolled out.
-- +goose StatementBegin
CREATE FUNCTION webhook_payload(guild text, event_id text, event_type text, origin text, data text, at timestamptz) RETURNS bytea
LANGUAGE sql STABLE AS $$
    SELECT convert_to(
        '{"id":' || to_json(event_id)::text ||
        ',"type":' || to_json(event_type)::text ||
        ',"timestamp":"' || to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') ||
        '","guild_id":' || to_json(guild)::text ||
        ',"api_version":"v1","origin":' || origin ||
        ',"data":' || data || '}', 'UTF8')
$$;
-- +goose StatementEnd

-- record_event stores an event that happened at the given instant (null: at the
-- start of the transaction) and one delivery per enabled endpoint of the guild
-- that listens to its type, in the caller's transaction.
-- +goose StatementBegin
CREATE FUNCTION record_event(guild text, event_id text, event_type text, origin text, data text, at timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    instant timestamptz := coalesce(at, now());
BEGIN
    INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload)
    VALUES (guild, event_id, event_type, instant, webhook_payload(guild, event_id, event_type, origin, data, instant));
    INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id)
    SELECT e.guild_id, e.id, record_event.event_id
    FROM webhook_endpoints e
    WHERE e.guild_id = guild AND e.enabled AND event_type = ANY (e.events);
    RETURN event_id;
END
$$;
-- +goose StatementEnd

-- +goose Up
CREATE TABLE webhook_endpoints (
    id              text COLLATE "C" NOT NULL,
    guild_id        text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    url             text        NOT NULL,
    description     text,
    events          text[]      NOT NULL,
    enabled         boolean     NOT NULL DEFAULT true,
    disabled_reason text,
    secret_preview  text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, id)
);

CREATE TABLE webhook_events (
    id          text COLLATE "C" PRIMARY KEY,
    guild_id    text COLLATE "C" NOT NULL,
    type        text        NOT NULL,
    occurred_at timestamptz NOT NULL DEFAULT now(),
    payload     bytea       NOT NULL
);

CREATE TABLE webhook_deliveries (
    id          text COLLATE "C" PRIMARY KEY DEFAULT gen_random_uuid()::text,
    guild_id    text COLLATE "C" NOT NULL,
    endpoint_id text COLLATE "C" NOT NULL,
    event_id    text COLLATE "C" NOT NULL REFERENCES webhook_events (id),
    state       text        NOT NULL DEFAULT 'pending',
    attempt     integer     NOT NULL DEFAULT 0,
    due_at      timestamptz NOT NULL DEFAULT now(),
    created_at  timestamptz NOT NULL DEFAULT now()
);

-- record_event stores an event and one delivery per enabled endpoint of the
-- guild that listens to its type, in the caller's transaction. The payload is
-- the exact text every receiver gets; data and origin are JSON.
-- +goose StatementBegin
CREATE FUNCTION record_event(guild text, event_id text, event_type text, origin text, data text) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO webhook_events (id, guild_id, type, occurred_at, payload)
    VALUES (event_id, guild, event_type, now(), convert_to(
        '{"id":"' || event_id || '","type":"' || event_type ||
        '","timestamp":"' || to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') ||
        '","guild_id":"' || guild || '","api_version":"v1","origin":' || origin ||
        ',"data":' || data || '}', 'UTF8'));
    INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id)
    SELECT e.guild_id, e.id, record_event.event_id FROM webhook_endpoints e
    WHERE e.guild_id = guild AND e.enabled AND event_type = ANY (e.events);
    RETURN event_id;
END
$$;
-- +goose StatementEnd

-- +goose Up
CREATE TABLE webhook_endpoints (
    guild_id         text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    id               text COLLATE "C" NOT NULL,
    url              text        NOT NULL,
    description      text,
    events           text[]      NOT NULL,
    enabled          boolean     NOT NULL DEFAULT true,
    disabled_reason  text,
    -- Sealed under the service's key, bound to this row.
    secret           bytea       NOT NULL,
    secret_preview   text        NOT NULL,
    -- The secrets it replaced that still sign along: [{"sealed": base64, "until": instant}], newest first.
    old_secrets      jsonb       NOT NULL DEFAULT '[]',
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, id),
    UNIQUE (id)
);

-- What the workers know of an endpoint. A row of its own, so that they never
-- wait for a request that changes the endpoint, nor the other way round.
CREATE TABLE webhook_health (
    guild_id      text COLLATE "C" NOT NULL,
    endpoint_id   text COLLATE "C" NOT NULL,
    failures      integer     NOT NULL DEFAULT 0, -- in a row
    refusals      integer     NOT NULL DEFAULT 0, -- in a row, because of the address
    blocks        integer     NOT NULL DEFAULT 0, -- in a row
    blocked_until timestamptz,                    -- after too many failures
    quiet_until   timestamptz,                    -- the receiver asked for it
    failing_since timestamptz,
    warned        smallint    NOT NULL DEFAULT 0, -- percent of the way to being disabled
    PRIMARY KEY (guild_id, endpoint_id),
    FOREIGN KEY (guild_id, endpoint_id) REFERENCES webhook_endpoints (guild_id, id) ON DELETE CASCADE
) WITH (fillfactor = 70);

CREATE TABLE webhook_events (
    guild_id    text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    type        text        NOT NULL,
    occurred_at timestamptz NOT NULL DEFAULT now(),
    payload     bytea       NOT NULL, -- the exact bytes every receiver gets
    PRIMARY KEY (guild_id, id)
);

CREATE INDEX webhook_events_age ON webhook_events (occurred_at);

-- One row is one event on its way to one endpoint. It names no endpoint by a
-- foreign key: deleting an endpoint must not wait for its log.
CREATE TABLE webhook_deliveries (
    guild_id     text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    endpoint_id  text COLLATE "C" NOT NULL,
    event_id     text COLLATE "C" NOT NULL,
    cause        text        NOT NULL DEFAULT 'event'
        CONSTRAINT webhook_deliveries_cause CHECK (cause IN ('event', 'redelivery', 'test')),
    state        text        NOT NULL DEFAULT 'pending'
        CONSTRAINT webhook_deliveries_state CHECK (state IN ('pending', 'delivered', 'failed', 'held')),
    attempts     integer     NOT NULL DEFAULT 0, -- made in all
    step         integer     NOT NULL DEFAULT 0, -- made of the schedule; starts again when released
    due_at       timestamptz NOT NULL DEFAULT now(),
    lease_until  timestamptz,                    -- set while a worker has it
    lease_gen    integer     NOT NULL DEFAULT 0, -- counts the leases and fences the earlier ones
    unlogged     jsonb,                          -- attempts whose log row could not be written yet
    created_at   timestamptz NOT NULL DEFAULT now(),
    completed_at timestamptz,
    PRIMARY KEY (guild_id, id),
    FOREIGN KEY (guild_id, event_id) REFERENCES webhook_events (guild_id, id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_analyze_scale_factor = 0.05);

-- What is still to be sent, by endpoint: a worker hops from endpoint to
-- endpoint in it, so neither what is settled nor one endpoint's backlog costs
-- the others anything.
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (guild_id, endpoint_id, due_at, id) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_held ON webhook_deliveries (guild_id, endpoint_id, id) WHERE state = 'held';
CREATE INDEX webhook_deliveries_unlogged ON webhook_deliveries (guild_id, id) WHERE unlogged IS NOT NULL;
CREATE INDEX webhook_deliveries_log ON webhook_deliveries (guild_id, endpoint_id, created_at, id);
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (guild_id, event_id);
CREATE INDEX webhook_deliveries_age ON webhook_deliveries (completed_at) WHERE completed_at IS NOT NULL;

CREATE TABLE webhook_attempts (
    guild_id    text COLLATE "C" NOT NULL,
    delivery_id text COLLATE "C" NOT NULL,
    number      integer     NOT NULL, -- the lease it was made under: a gap is an attempt lost with its worker
    started_at  timestamptz NOT NULL,
    duration_ms integer     NOT NULL,
    outcome     text        NOT NULL,
    status      integer,
    excerpt     text,
    error       text,
    PRIMARY KEY (guild_id, delivery_id, number)
);

CREATE INDEX webhook_attempts_age ON webhook_attempts (started_at);

-- A UUIDv7: unique, and in the order of its making to the millisecond.
-- +goose StatementBegin
CREATE FUNCTION webhook_delivery_id() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                FROM 1 FOR 6),
            52, 1), 53, 1),
        'hex')::uuid::text
$$;
-- +goose StatementEnd

ALTER TABLE webhook_deliveries ALTER COLUMN id SET DEFAULT webhook_delivery_id();

-- The envelope of an event. origin and data are JSON already.
-- +goose StatementBegin
CREATE FUNCTION webhook_payload(guild text, event_id text, event_type text, origin text, data text) RETURNS bytea
LANGUAGE sql STABLE AS $$
    SELECT convert_to(
        '{"id":' || to_json(event_id)::text ||
        ',"type":' || to_json(event_type)::text ||
        ',"timestamp":"' || to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') ||
        '","guild_id":' || to_json(guild)::text ||
        ',"api_version":"v1","origin":' || origin ||
        ',"data":' || data || '}', 'UTF8')
$$;
-- +goose StatementEnd

-- record_event stores an event and one delivery per enabled endpoint of the
-- guild that listens to its type, in the caller's transaction: all of it
-- becomes real with the caller's commit, or none.
-- +goose StatementBegin
CREATE FUNCTION record_event(guild text, event_id text, event_type text, origin text, data text) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO webhook_events (guild_id, id, type, payload)
    VALUES (guild, event_id, event_type, webhook_payload(guild, event_id, event_type, origin, data));
    INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id)
    SELECT e.guild_id, e.id, record_event.event_id
    FROM webhook_endpoints e
    WHERE e.guild_id = guild AND e.enabled AND event_type = ANY (e.events);
    RETURN event_id;
END
$$;
-- +goose StatementEnd

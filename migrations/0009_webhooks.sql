-- +goose Up
-- An endpoint that a token registered: events are sent to its URL (push) or fetched (pull).
CREATE TABLE webhook_endpoints (
    guild_id        text COLLATE "C" NOT NULL REFERENCES guilds (id) ON DELETE CASCADE,
    id              text COLLATE "C" NOT NULL,
    delivery        text        NOT NULL DEFAULT 'push'
        CONSTRAINT webhook_endpoints_delivery CHECK (delivery IN ('push', 'pull')),
    url             text        NOT NULL,
    description     text,
    events          text[]      NOT NULL,
    enabled         boolean     NOT NULL DEFAULT true,
    disabled_reason text,
    secret          bytea       NOT NULL, -- sealed, bound to this row
    secret_preview  text        NOT NULL,
    -- The replaced secrets that still sign as well, newest first: [{"sealed": base64, "until": instant}].
    old_secrets     jsonb       NOT NULL DEFAULT '[]',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (guild_id, id)
);

-- The command line finds an endpoint by its id alone.
CREATE INDEX webhook_endpoints_by_id ON webhook_endpoints (id);
CREATE INDEX webhook_endpoints_disabled ON webhook_endpoints (guild_id) WHERE NOT enabled AND disabled_reason IS NOT NULL;

-- What the delivery engine knows of an endpoint: when it is next due, its health, and
-- whether its deliveries are sent. The row is separate from the endpoint, so that
-- workers and requests that change the endpoint never wait for each other, and has no
-- foreign key: the row of a deleted endpoint stays until its deliveries are given up.
CREATE TABLE webhook_schedule (
    guild_id         text COLLATE "C" NOT NULL,
    endpoint_id      text COLLATE "C" NOT NULL,
    -- What happens to waiting deliveries: they are sent, fetched, held or given up.
    disposition      text        NOT NULL DEFAULT 'send'
        CONSTRAINT webhook_schedule_disposition CHECK (disposition IN ('send', 'pull', 'hold', 'drop')),
    releasing        boolean     NOT NULL DEFAULT false, -- held deliveries become pending, in batches
    urgent           boolean     NOT NULL DEFAULT false, -- an urgent delivery waits, which passes a block and all others
    next_due         timestamptz,                        -- no later than the first queued delivery; null: none is queued
    failures         integer     NOT NULL DEFAULT 0,     -- in a row
    refusals         integer     NOT NULL DEFAULT 0,     -- in a row, because the address is not allowed
    refused_at       timestamptz,                        -- when such a refusal was last counted
    blocks           integer     NOT NULL DEFAULT 0,     -- in a row
    blocked_until    timestamptz,                        -- after too many failures
    quiet_until      timestamptz,                        -- the receiver asked for a pause
    failing_since    timestamptz,
    failed_attempts  integer     NOT NULL DEFAULT 0,     -- since failing_since
    warned           smallint    NOT NULL DEFAULT 0,     -- percent of the way to being disabled
    reported         boolean     NOT NULL DEFAULT false, -- webhook.failing was emitted since failing_since
    reported_at      timestamptz,                        -- when webhook.failing was last emitted
    -- The last failed attempt: {"at", "delivery_id", "status", "outcome", "error"}. It stays after a success.
    last_failure     jsonb,
    health_since     timestamptz,                        -- when the URL last changed: older successes are another receiver's
    overflowed_at    timestamptz,                        -- when its oldest deliveries were last deleted, since too many waited
    not_before       timestamptz GENERATED ALWAYS AS (greatest(blocked_until, quiet_until)) STORED,
    -- The queue that serves the endpoint: 0 urgent, 1 healthy, 2 failing, 3 was blocked, 4 not sent to.
    lane             smallint    NOT NULL GENERATED ALWAYS AS (
        CASE WHEN urgent THEN 0 WHEN disposition <> 'send' THEN 4 WHEN failing_since IS NULL THEN 1 WHEN blocks = 0 THEN 2 ELSE 3 END) STORED,
    -- Deliveries queued by a recovery share this due_at; with recovered_passes they pass a block.
    recovered_at     timestamptz,
    recovered_passes boolean     NOT NULL DEFAULT false,
    -- Of a pull endpoint: the last fetch, to the minute (before the first one: when the
    -- endpoint was registered or enabled), the token or bot key that fetched, and since
    -- when no event is missing.
    fetched_at       timestamptz,
    fetched_by       text,
    complete_since   timestamptz,
    PRIMARY KEY (guild_id, endpoint_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);

CREATE INDEX webhook_schedule_due ON webhook_schedule (lane, next_due) WHERE next_due IS NOT NULL;
CREATE INDEX webhook_schedule_releasing ON webhook_schedule (guild_id, endpoint_id) WHERE releasing;
CREATE INDEX webhook_schedule_failing ON webhook_schedule (failing_since) WHERE failing_since IS NOT NULL;
CREATE INDEX webhook_schedule_fetched ON webhook_schedule (fetched_at) WHERE disposition = 'pull';

-- An event that at least one endpoint or stream receives.
CREATE TABLE webhook_events (
    guild_id    text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    type        text        NOT NULL,
    occurred_at timestamptz NOT NULL DEFAULT now(),
    payload     bytea       NOT NULL, -- the exact bytes that every receiver gets
    trace       text,                 -- traceparent of the request that recorded the event
    PRIMARY KEY (guild_id, id)
);

CREATE INDEX webhook_events_age ON webhook_events (occurred_at);

-- One event on its way to one endpoint. A pending delivery is fresh until a worker has
-- seen it, then leased or queued. It has no foreign keys: deleting an endpoint must not
-- wait for its log, and the delivery is stored with its event, so checking the event
-- would cost a twelfth of an event for nothing.
CREATE TABLE webhook_deliveries (
    guild_id       text COLLATE "C" NOT NULL,
    -- A UUIDv7, so that ids stand in the order in which deliveries were stored.
    id             text COLLATE "C" NOT NULL DEFAULT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                FROM 1 FOR 6),
            52, 1), 53, 1),
        'hex')::uuid::text,
    endpoint_id    text COLLATE "C" NOT NULL,
    event_id       text COLLATE "C" NOT NULL,
    event_type     text,
    event_at       timestamptz DEFAULT now(),      -- the event's occurred_at: 30 days later the delivery is deleted
    cause          text        NOT NULL DEFAULT 'event'
        CONSTRAINT webhook_deliveries_cause CHECK (cause IN ('event', 'redelivery', 'test')),
    state          text        NOT NULL DEFAULT 'pending'
        CONSTRAINT webhook_deliveries_state CHECK (state IN ('pending', 'delivered', 'failed', 'held')),
    fresh          boolean     NOT NULL DEFAULT true,
    urgent         boolean     NOT NULL DEFAULT false,
    attempts       integer     NOT NULL DEFAULT 0, -- in all
    step           integer     NOT NULL DEFAULT 0, -- of the retry schedule; starts again when a held delivery is released
    due_at         timestamptz NOT NULL DEFAULT now(),
    lease_until    timestamptz,                    -- set while a worker holds the lease
    lease_gen      integer     NOT NULL DEFAULT 0, -- counts leases: a worker with an older lease writes nothing
    unlogged       jsonb,                          -- attempts whose log rows could not be written yet
    response_class text                            -- of the last attempt
        CONSTRAINT webhook_deliveries_response_class CHECK (response_class IN ('2xx', '3xx', '4xx', '5xx', 'none')),
    error          text,                           -- why the delivery failed, where no attempt says so
    created_at     timestamptz NOT NULL DEFAULT now(),
    completed_at   timestamptz,
    PRIMARY KEY (guild_id, id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_analyze_scale_factor = 0.05);

-- The due deliveries of an endpoint. Completed deliveries are in none of these indexes,
-- and one endpoint's backlog costs other endpoints nothing.
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (guild_id, endpoint_id, due_at, id) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_fresh ON webhook_deliveries (guild_id, endpoint_id) WHERE fresh AND state = 'pending';
CREATE INDEX webhook_deliveries_urgent ON webhook_deliveries (guild_id, endpoint_id, due_at, id) WHERE urgent AND state = 'pending';
CREATE INDEX webhook_deliveries_leased ON webhook_deliveries (lease_until) WHERE lease_until IS NOT NULL AND state = 'pending';
CREATE INDEX webhook_deliveries_held ON webhook_deliveries (guild_id, endpoint_id, id) WHERE state = 'held';
CREATE INDEX webhook_deliveries_held_age ON webhook_deliveries (event_at) WHERE state = 'held';
CREATE INDEX webhook_deliveries_unlogged ON webhook_deliveries (guild_id, id) WHERE unlogged IS NOT NULL;
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (guild_id, event_id);
CREATE INDEX webhook_deliveries_event_age ON webhook_deliveries (event_at);
-- The log of an endpoint, newest first: whole, and by each of its filters.
CREATE INDEX webhook_deliveries_log ON webhook_deliveries (guild_id, endpoint_id, created_at, id);
CREATE INDEX webhook_deliveries_state_log ON webhook_deliveries (guild_id, endpoint_id, state, created_at, id);
CREATE INDEX webhook_deliveries_type ON webhook_deliveries (guild_id, endpoint_id, event_type, created_at, id);
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (guild_id, endpoint_id, created_at, id) WHERE state = 'failed';
CREATE INDEX webhook_deliveries_class ON webhook_deliveries (guild_id, endpoint_id, response_class, created_at, id)
    WHERE response_class <> '2xx';

-- One attempt of a delivery.
CREATE TABLE webhook_attempts (
    guild_id    text COLLATE "C" NOT NULL,
    delivery_id text COLLATE "C" NOT NULL,
    number      integer     NOT NULL, -- lease_gen of the attempt: a gap is an attempt lost with its worker
    started_at  timestamptz NOT NULL,
    duration_ms integer     NOT NULL,
    outcome     text        NOT NULL,
    status      integer,
    excerpt     text,
    error       text,
    PRIMARY KEY (guild_id, delivery_id, number)
);

CREATE INDEX webhook_attempts_age ON webhook_attempts (started_at);

-- How many deliveries of an endpoint completed in an hour, by outcome, and how many of
-- their attempts failed. Attempts of deliveries that had not completed then count at the
-- outcome 'open'. The statement that records results writes these rows, so they agree with
-- the log.
CREATE TABLE webhook_hours (
    guild_id    text COLLATE "C" NOT NULL,
    endpoint_id text COLLATE "C" NOT NULL,
    hour        timestamptz NOT NULL,
    outcome     text COLLATE "C" NOT NULL
        CONSTRAINT webhook_hours_outcome CHECK (outcome IN ('delivered', 'failed', 'open')),
    deliveries  bigint      NOT NULL,
    last_at     timestamptz, -- when the last of them completed
    failed_attempts bigint  NOT NULL DEFAULT 0,
    PRIMARY KEY (guild_id, endpoint_id, hour, outcome)
) WITH (fillfactor = 50);

CREATE INDEX webhook_hours_age ON webhook_hours (hour);

-- +goose Up
-- One row per endpoint decides when something is next to be done for it, and
-- whether that may be sent. The claim of deliveries reads it, the settling of
-- attempts and the few functions that disable, enable or delete an endpoint
-- write it. It names no endpoint by a foreign key: the row of a deleted one
-- stays until nothing waits for it any more.
CREATE TABLE webhook_schedule (
    guild_id      text COLLATE "C" NOT NULL,
    endpoint_id   text COLLATE "C" NOT NULL,
    -- What becomes of what waits: it is sent, held, or given up.
    disposition   text        NOT NULL DEFAULT 'send'
        CONSTRAINT webhook_schedule_disposition CHECK (disposition IN ('send', 'hold', 'drop')),
    releasing     boolean     NOT NULL DEFAULT false, -- what is held becomes pending, step by step
    urgent        boolean     NOT NULL DEFAULT false, -- urgent deliveries wait, which pass a block and the others
    next_due      timestamptz,                        -- not later than the first queued delivery may go; null: none is queued
    failures      integer     NOT NULL DEFAULT 0,     -- in a row
    refusals      integer     NOT NULL DEFAULT 0,     -- in a row, because of the address
    blocks        integer     NOT NULL DEFAULT 0,     -- in a row
    blocked_until timestamptz,                        -- after too many failures
    quiet_until   timestamptz,                        -- the receiver asked for it
    failing_since timestamptz,
    warned        smallint    NOT NULL DEFAULT 0,     -- percent of the way to being disabled
    not_before    timestamptz GENERATED ALWAYS AS (greatest(blocked_until, quiet_until)) STORED,
    -- The line it stands in: 0 urgent, 1 well, 2 failing, 3 has been blocked, 4 not to be sent to.
    lane          smallint    NOT NULL GENERATED ALWAYS AS (
        CASE WHEN urgent THEN 0 WHEN disposition <> 'send' THEN 4 WHEN failing_since IS NULL THEN 1 WHEN blocks = 0 THEN 2 ELSE 3 END) STORED,
    PRIMARY KEY (guild_id, endpoint_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);

CREATE INDEX webhook_schedule_due ON webhook_schedule (lane, next_due) WHERE next_due IS NOT NULL;
CREATE INDEX webhook_schedule_releasing ON webhook_schedule (guild_id, endpoint_id) WHERE releasing;
CREATE INDEX webhook_schedule_failing ON webhook_schedule (failing_since) WHERE failing_since IS NOT NULL;

-- A pending delivery is fresh until a worker has seen it, then leased or
-- queued. The rows of before are queued; every row from now on starts fresh,
-- whichever version of the program writes it.
ALTER TABLE webhook_deliveries
    ADD COLUMN fresh boolean NOT NULL DEFAULT false,
    ADD COLUMN urgent boolean NOT NULL DEFAULT false,
    ADD COLUMN event_type text,
    ADD COLUMN event_at timestamptz,   -- when the event happened: 30 days later it is forgotten
    ADD COLUMN response_class text     -- of the last attempt: 2xx, 3xx, 4xx, 5xx or none
        CONSTRAINT webhook_deliveries_response_class CHECK (response_class IN ('2xx', '3xx', '4xx', '5xx', 'none')),
    ADD COLUMN error text;             -- why it failed, where no attempt says it
ALTER TABLE webhook_deliveries
    ALTER COLUMN fresh SET DEFAULT true,
    ALTER COLUMN event_at SET DEFAULT now();

-- record_event stores an event that happened at the given instant (null: at the
-- start of the transaction) and one delivery per enabled endpoint of the guild
-- that listens to its type, in the caller's transaction. Where nobody listens,
-- nothing is stored.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION record_event(guild text, event_id text, event_type text, origin text, data text, at timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    instant timestamptz := coalesce(at, now());
BEGIN
    WITH listener AS MATERIALIZED (
        SELECT e.guild_id, e.id
        FROM webhook_endpoints e
        WHERE e.guild_id = guild AND e.enabled AND record_event.event_type = ANY (e.events)
    ), recorded AS (
        INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload)
        SELECT guild, record_event.event_id, record_event.event_type, instant,
               webhook_payload(guild, record_event.event_id, record_event.event_type, origin, data, instant)
        WHERE EXISTS (SELECT FROM listener)
    )
    INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, event_at)
    SELECT l.guild_id, l.id, record_event.event_id, record_event.event_type, instant
    FROM listener l;
    RETURN event_id;
END
$$;
-- +goose StatementEnd

-- The form of the release before, which runs beside this one while it is rolled out.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION record_event(guild text, event_id text, event_type text, origin text, data text) RETURNS text
LANGUAGE sql AS $$
    SELECT record_event(guild, event_id, event_type, origin, data, NULL::timestamptz)
$$;
-- +goose StatementEnd

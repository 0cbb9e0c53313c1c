-- +goose Up
-- What became of an endpoint's deliveries, by the hour in which it was settled.
-- A row is written in the statement that settles, so it agrees with the log.
CREATE TABLE webhook_hours (
    guild_id    text COLLATE "C" NOT NULL,
    endpoint_id text COLLATE "C" NOT NULL,
    hour        timestamptz NOT NULL,
    outcome     text COLLATE "C" NOT NULL
        CONSTRAINT webhook_hours_outcome CHECK (outcome IN ('delivered', 'failed')),
    deliveries  bigint      NOT NULL,
    PRIMARY KEY (guild_id, endpoint_id, hour, outcome)
) WITH (fillfactor = 50);

CREATE INDEX webhook_hours_age ON webhook_hours (hour);

-- What happened in the last day, as far as an index leads to it.
INSERT INTO webhook_hours (guild_id, endpoint_id, hour, outcome, deliveries)
SELECT guild_id, endpoint_id, date_trunc('hour', completed_at), state, count(*)
FROM webhook_deliveries
WHERE event_at > now() - interval '25 hours'
  AND state IN ('delivered', 'failed')
  AND completed_at IS NOT NULL
GROUP BY guild_id, endpoint_id, date_trunc('hour', completed_at), state;

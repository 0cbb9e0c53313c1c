-- +goose NO TRANSACTION
-- +goose Up
-- The health that is known so far. The workers of the release before keep theirs
-- in webhook_health, which goes one release later.
INSERT INTO webhook_schedule (guild_id, endpoint_id, disposition, releasing, failures, refusals, blocks, blocked_until, quiet_until, failing_since, warned)
SELECT e.guild_id, e.id, CASE WHEN e.enabled THEN 'send' ELSE 'hold' END, e.enabled,
       coalesce(h.failures, 0), coalesce(h.refusals, 0), coalesce(h.blocks, 0), h.blocked_until, h.quiet_until, h.failing_since, coalesce(h.warned, 0)
FROM webhook_endpoints e
LEFT JOIN webhook_health h ON h.guild_id = e.guild_id AND h.endpoint_id = e.id
ON CONFLICT DO NOTHING;

-- Deliveries that still wait for an endpoint that is gone are given up.
INSERT INTO webhook_schedule (guild_id, endpoint_id, disposition, next_due)
SELECT DISTINCT d.guild_id, d.endpoint_id, 'drop', now()
FROM webhook_deliveries d
WHERE d.state IN ('pending', 'held')
ON CONFLICT DO NOTHING;

-- Everything recorded before the column fresh existed stands in its endpoint's queue.
UPDATE webhook_schedule s
SET next_due = now()
WHERE s.next_due IS NULL
  AND EXISTS (SELECT FROM webhook_deliveries d WHERE d.state = 'pending' AND d.guild_id = s.guild_id AND d.endpoint_id = s.endpoint_id);

-- Type, instant and class of what is in the log, a few thousand rows at a time,
-- each with its own commit.
-- +goose StatementBegin
DO $$
DECLARE
    last_guild text := '';
    last_id    text := '';
    step       record;
BEGIN
    LOOP
        WITH part AS MATERIALIZED (
            SELECT d.guild_id, d.id, d.event_id, d.attempts
            FROM webhook_deliveries d
            WHERE (d.guild_id, d.id) > (last_guild, last_id)
            ORDER BY d.guild_id, d.id
            LIMIT 5000
        ), filled AS (
            UPDATE webhook_deliveries d
            SET event_type = ev.type, event_at = ev.occurred_at,
                response_class = coalesce(d.response_class, CASE
                    WHEN a.status BETWEEN 200 AND 599 THEN left(a.status::text, 1) || 'xx'
                    WHEN a.number IS NOT NULL THEN 'none'
                END)
            FROM part
            JOIN webhook_events ev ON ev.guild_id = part.guild_id AND ev.id = part.event_id
            LEFT JOIN LATERAL (
                SELECT number, status
                FROM webhook_attempts a
                WHERE a.guild_id = part.guild_id AND a.delivery_id = part.id
                ORDER BY number DESC
                LIMIT 1
            ) a ON true
            WHERE d.guild_id = part.guild_id AND d.id = part.id AND d.event_type IS NULL
        )
        SELECT guild_id, id INTO step FROM part ORDER BY guild_id DESC, id DESC LIMIT 1;
        EXIT WHEN step.id IS NULL;
        last_guild := step.guild_id;
        last_id := step.id;
        COMMIT;
    END LOOP;
END
$$;
-- +goose StatementEnd

DROP INDEX CONCURRENTLY IF EXISTS webhook_deliveries_age;

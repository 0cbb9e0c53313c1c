-- The history of each guild in the table pasts: tokens, of which some are used, a month of usage
-- counters, an audit log, and deliveries spread over thirty days and all endpoints. One in fifty
-- has failed, and a few are waiting or held.

INSERT INTO guilds (id, name, owner_id) SELECT guild, 'A guild with a past', '1' FROM pasts;

INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes, expires_at)
SELECT guild || '-' || n, guild, 'token ' || n, 'svc_test_...', sha256(convert_to(guild || '-' || n, 'UTF8')),
       '{cases:read,economy:read,economy:write}', now() + n * interval '3 days'
FROM pasts, generate_series(1, tokens) n;

INSERT INTO usage_hours (guild_id, token_id, hour, operation, class, requests)
SELECT guild, CASE WHEN t > 0 THEN guild || '-' || t ELSE '' END, date_trunc('hour', now()) - h * interval '1 hour',
       'operation' || o, c, 10 + (h + o) % 50
FROM pasts, generate_series(0, used) t, generate_series(0, 719) h, generate_series(1, operations) o, unnest(ARRAY[2, 4]) c;

INSERT INTO usage_totals (guild_id, token_id, hour, class, requests)
SELECT guild_id, token_id, hour, class, sum(requests)
FROM usage_hours JOIN pasts ON guild = guild_id GROUP BY guild_id, token_id, hour, class;

INSERT INTO usage_days (guild_id, token_id, day, operation, class, requests)
SELECT guild_id, token_id, (hour AT TIME ZONE 'UTC')::date, operation, class, sum(requests)
FROM usage_hours JOIN pasts ON guild = guild_id GROUP BY guild_id, token_id, 3, operation, class;

INSERT INTO usage_addresses (guild_id, token_id, day, address, requests, seen_at)
SELECT guild, guild || '-' || t, current_date - d, '203.0.113.' || a, 100, now() - d * interval '1 day'
FROM pasts, generate_series(1, used) t, generate_series(0, 29) d, generate_series(1, 50) a;

INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address)
SELECT guild, lpad(n::text, 8, '0'), now() - n * interval '9 minutes', guild || '-' || 1 + n % tokens, 'operation' || n % 20, 404,
       (ARRAY['not_found', 'insufficient_scope', 'invalid_request'])[1 + n % 3], '203.0.113.9'
FROM pasts, generate_series(1, 50 * operations) n;

INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
SELECT guild, 'e' || n, 'https://receiver-' || n || '.example/', '{case.created,case.updated}', '', 'whsec_...'
FROM pasts, generate_series(0, endpoints - 1) n;

INSERT INTO webhook_schedule (guild_id, endpoint_id) SELECT guild, 'e' || n FROM pasts, generate_series(0, endpoints - 1) n;

INSERT INTO audit_log (guild_id, id, at, actor_type, actor_id, actor_name, address, request_id, action,
                       target_id, target_name, before, after)
SELECT guild, left(hex, 8) || '-' || right(hex, 4) || '-7000-8000-' || lpad(n::text, 12, '0'),
       at, 'user', 'u' || n % 20, 'Somebody', '', '',
       CASE n % 5 WHEN 0 THEN 'webhook.updated' ELSE 'token.created' END,
       'e' || n % 20, 'https://receiver.example/', '{"enabled": true}', '{"enabled": false}'
FROM pasts, generate_series(1, audit) n,
     LATERAL (SELECT now() - (audit - n) * interval '360 days' / audit AS at) x,
     LATERAL (SELECT lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') AS hex) y;

INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload)
SELECT guild, 'v' || n, CASE n % 3 WHEN 0 THEN 'case.updated' ELSE 'case.created' END, now() - n * interval '30 days' / deliveries,
       convert_to('{"id":"v' || n || '","type":"case.created","data":{"number":' || n || ',"reason":"Spam in #general"}}', 'UTF8')
FROM pasts, generate_series(0, deliveries - 1) n;

INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, state, attempts, created_at, completed_at, fresh,
                                event_type, event_at, response_class)
SELECT guild, 'd' || n, 'e' || (n / 7) % endpoints, 'v' || n,
       CASE WHEN n % 50 = 1 THEN 'failed' WHEN n % 997 = 2 THEN 'held' WHEN n % 997 = 3 THEN 'pending' ELSE 'delivered' END,
       1, at, at, false, CASE n % 3 WHEN 0 THEN 'case.updated' ELSE 'case.created' END, at,
       CASE WHEN n % 50 = 1 THEN CASE WHEN n % 100 = 1 THEN '5xx' ELSE 'none' END ELSE '2xx' END
FROM pasts, generate_series(0, deliveries - 1) n, LATERAL (SELECT now() - n * interval '30 days' / deliveries AS at) x;

INSERT INTO webhook_attempts (guild_id, delivery_id, number, started_at, duration_ms, outcome, status, error)
SELECT guild, 'd' || n, 1, now() - n * interval '30 days' / deliveries, n % 300,
       CASE WHEN n % 50 = 1 THEN 'server_error' ELSE 'delivered' END,
       CASE WHEN n % 50 = 1 THEN 500 ELSE 200 END, CASE WHEN n % 50 = 1 THEN 'The receiver answered 500.' END
FROM pasts, generate_series(0, deliveries - 1) n;

-- The delivery engine counts these when it records results.
INSERT INTO webhook_hours (guild_id, endpoint_id, hour, outcome, deliveries)
SELECT guild_id, endpoint_id, date_trunc('hour', completed_at), state, count(*)
FROM webhook_deliveries JOIN pasts ON guild = guild_id WHERE state IN ('delivered', 'failed') GROUP BY 1, 2, 3, 4;

TRUNCATE pasts;

-- As autovacuum would do in time.
ANALYZE;

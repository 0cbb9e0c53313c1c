-- The history of each guild in the table pasts: tokens, of which some are used, a month of usage
-- counters, an audit log, records, and deliveries spread over thirty days and all endpoints. One in
-- fifty has failed, and a few are waiting or held.

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

-- One in four fails since yesterday.
INSERT INTO webhook_schedule (guild_id, endpoint_id, failing_since, failed_attempts, last_failure)
SELECT guild, 'e' || n, CASE WHEN n % 4 = 0 THEN now() - interval '1 day' END, CASE WHEN n % 4 = 0 THEN 41 ELSE 0 END,
       jsonb_build_object('at', now(), 'delivery_id', 'd' || n * 7 + 1, 'status', 401, 'outcome', 'client_error', 'error', 'The receiver answered 401.')
FROM pasts, generate_series(0, endpoints - 1) n;

INSERT INTO audit_log (guild_id, id, at, actor_type, actor_id, actor_name, address, request_id, action,
                       target_id, target_name, before, after)
SELECT guild, left(hex, 8) || '-' || right(hex, 4) || '-7000-8000-' || lpad(n::text, 12, '0'),
       at, 'user', 'u' || n % 20, 'Somebody', '', '',
       CASE n % 5 WHEN 0 THEN 'webhook.updated' ELSE 'token.created' END,
       'e' || n % 20, 'https://receiver.example/', '{"enabled": true}', '{"enabled": false}'
FROM pasts, generate_series(1, audit) n,
     LATERAL (SELECT now() - (audit - n) * interval '360 days' / audit AS at) x,
     LATERAL (SELECT lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') AS hex) y;

-- Every tenth event is that of a case below.
CREATE TABLE told AS
SELECT guild, n, at, left(hex, 8) || '-' || right(hex, 4) || '-7000-8000-' || lpad(n::text, 12, '0') AS id
FROM pasts, generate_series(0, deliveries - 1) n,
     LATERAL (SELECT now() - n * interval '30 days' / deliveries AS at) x,
     LATERAL (SELECT lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') AS hex) y;

INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload)
SELECT guild, id, CASE n % 3 WHEN 0 THEN 'case.updated' ELSE 'case.created' END, at,
       convert_to('{"id":"' || id || '","type":"case.created","data":{"id":"c' || n / 10 || '","number":' || n || ',"reason":"Spam in #general"}}', 'UTF8')
FROM told;

INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, state, attempts, created_at, completed_at, fresh,
                                event_type, event_at, response_class)
SELECT guild, 'd' || n, 'e' || (n / 7) % endpoints, told.id,
       CASE WHEN n % 50 = 1 THEN 'failed' WHEN n % 997 = 2 THEN 'held' WHEN n % 997 = 3 THEN 'pending' ELSE 'delivered' END,
       1, at, at, false, CASE n % 3 WHEN 0 THEN 'case.updated' ELSE 'case.created' END, at,
       CASE WHEN n % 50 = 1 THEN CASE WHEN n % 100 = 1 THEN '5xx' ELSE 'none' END ELSE '2xx' END
FROM pasts JOIN told USING (guild);

INSERT INTO webhook_attempts (guild_id, delivery_id, number, started_at, duration_ms, outcome, status, error)
SELECT guild, 'd' || n, 1, now() - n * interval '30 days' / deliveries, n % 300,
       CASE WHEN n % 50 = 1 THEN 'server_error' ELSE 'delivered' END,
       CASE WHEN n % 50 = 1 THEN 500 ELSE 200 END, CASE WHEN n % 50 = 1 THEN 'The receiver answered 500.' END
FROM pasts, generate_series(0, deliveries - 1) n;

-- The delivery engine counts these when it records results.
INSERT INTO webhook_hours (guild_id, endpoint_id, hour, outcome, deliveries, last_at)
SELECT guild_id, endpoint_id, date_trunc('hour', completed_at), state, count(*), max(completed_at)
FROM webhook_deliveries JOIN pasts ON guild = guild_id WHERE state IN ('delivered', 'failed') GROUP BY 1, 2, 3, 4;

DROP TABLE told;

-- Members with wallets, XP and a ledger of a year; one in a hundred entries is the first member's.
INSERT INTO members (guild_id, user_id, name, folded, joined_at, metadata)
SELECT guild, (1000000000000000000 + n)::text, 'Member ' || n, 'member ' || n, now(), '{"shop.customer": "1"}'
FROM pasts, generate_series(1, members) n;

INSERT INTO wallets (guild_id, user_id, balance)
SELECT guild, (1000000000000000000 + n)::text, n * 7919::bigint % 1000003 FROM pasts, generate_series(1, members) n;

INSERT INTO levels (guild_id, user_id, total_xp)
SELECT guild, (1000000000000000000 + n)::text, n * 104729::bigint % 1000003 FROM pasts, generate_series(1, members) n;

INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, reason, note, reference, created_at, author_id)
SELECT guild, left(hex, 8) || '-' || right(hex, 4) || '-7000-8000-' || lpad(n::text, 12, '0'),
       (1000000000000000000 + CASE n % 100 WHEN 0 THEN 1 ELSE n END)::text, 10, 10 + n, 'A quest', 'api:token=' || guild || '-1',
       CASE n % 10 WHEN 0 THEN 'order-' || n END, at, '7'
FROM pasts, generate_series(1, members) n,
     LATERAL (SELECT now() - (members - n) * interval '360 days' / members AS at) x,
     LATERAL (SELECT lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') AS hex) y;

INSERT INTO ledger_references (guild_id, reference, entry_id)
SELECT guild_id, reference, id FROM ledger_entries JOIN pasts ON guild = guild_id WHERE reference IS NOT NULL;

-- Cases, a hundredth of them the first member's; the first has as many changes as are kept.
INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, status, source, metadata, created_at, updated_at)
SELECT guild, 'c' || n, n + 1, (1000000000000000000 + CASE n % 100 WHEN 0 THEN 1 ELSE 1 + n % members END)::text, (1000000000000000000 + n % 50)::text,
       (ARRAY['note', 'warn', 'mute', 'ban'])[1 + n % 4], 'Spam in #general', CASE n % 3 WHEN 0 THEN 'revoked' ELSE 'active' END, 'api',
       '{"channel": "general"}', at, at
FROM pasts, generate_series(0, cases - 1) n, LATERAL (SELECT now() - n * 10 * interval '30 days' / deliveries AS at) x;

INSERT INTO case_changes (guild_id, case_id, at, origin, author_id, changes)
SELECT guild_id, id, created_at + n * interval '1 second', jsonb_build_object('type', 'api', 'token_id', guild || '-1', 'key_id', NULL), '7',
       CASE n WHEN 0 THEN '[]' ELSE '[{"field": "reason", "before": "Spam", "after": "Spam in #general"}]'::jsonb END
FROM cases JOIN pasts ON guild = guild_id, generate_series(0, CASE id WHEN 'c0' THEN 500 ELSE 0 END) n;

-- Tickets, most of them the first member's to claim; the first has the long transcript.
INSERT INTO tickets (guild_id, id, number, subject, opener_id, claimed_by_id, status, closed_at, category, message_count, created_at, updated_at)
SELECT guild, 't' || n, n + 1, 'I cannot pay', (1000000000000000000 + CASE n % 100 WHEN 0 THEN 1 ELSE 1 + n % members END)::text,
       CASE WHEN n % 5 > 0 THEN '1000000000000000001' END, CASE n % 4 WHEN 0 THEN 'open' ELSE 'closed' END, CASE WHEN n % 4 > 0 THEN at END, 'help',
       CASE n WHEN 0 THEN messages ELSE 5 END, at, at
FROM pasts, generate_series(0, cases / 10) n, LATERAL (SELECT now() - n * interval '1 hour' AS at) x;

INSERT INTO ticket_messages (guild_id, ticket_id, id, kind, internal, author_id, author_type, content, original_content, edited_at, attachments, created_at)
SELECT guild_id, id, id || '-' || n, CASE n % 10 WHEN 3 THEN 'note' ELSE 'message' END, n % 10 = 3, (1000000000000000000 + n % members)::text, 'staff',
       repeat('What was written. ', 20), CASE n % 7 WHEN 0 THEN 'What was first written.' END, CASE n % 7 WHEN 0 THEN created_at END,
       CASE n % 5 WHEN 0 THEN '[{"name": "a.png", "url": "https://files.example/a.png", "size": 20480}]'::jsonb ELSE '[]' END,
       created_at + n * interval '1 second'
FROM tickets JOIN pasts ON guild = guild_id, generate_series(1, message_count) n;

-- Giveaways, each entered by the first member; of the first, as many have entered as the transcript has messages.
INSERT INTO giveaways (guild_id, id, status, pot, prize, winner_count, channel_id, starts_at, ends_at, entrant_count, entry_count, created_at, updated_at)
SELECT guild, 'g' || n, CASE n WHEN 0 THEN 'drawing' ELSE 'active' END, CASE n WHEN 0 THEN 'frozen' ELSE 'open' END, 'A prize', 100, '9', at,
       now() + CASE n WHEN 0 THEN interval '0' ELSE interval '10 days' END, many, many, at, at
FROM pasts, generate_series(0, cases / 500) n, LATERAL (SELECT now() - n * interval '1 day' AS at, CASE n WHEN 0 THEN messages ELSE 20 END AS many) x;

INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id, entered_at)
SELECT guild_id, id, (1000000000000000000 + n)::text, starts_at FROM giveaways JOIN pasts ON guild = guild_id, generate_series(1, entrant_count) n;

-- As an import does for the leaderboards that it has changed.
INSERT INTO rank_requests (guild_id, board) SELECT guild, board FROM pasts, unnest(ARRAY['wallets', 'levels']) board WHERE members >= 1000;

TRUNCATE pasts;

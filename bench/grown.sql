-- An installation: a few rows of each kind for each guild numbered in the table grown. Every tenth
-- guild has a rank index, as large guilds have. Nothing is due.

INSERT INTO guilds (id, name, owner_id, last_case, last_ticket)
SELECT (1000000 + n)::text, 'Growth', '1', 1, 1 FROM grown;

INSERT INTO wallets (guild_id, user_id, balance)
SELECT (1000000 + n)::text, u::text, 1000 FROM grown, generate_series(1, 2) u;

INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note)
SELECT (1000000 + n)::text, 'e' || u, u::text, 1000, 1000, 'import' FROM grown, generate_series(1, 2) u;

INSERT INTO levels (guild_id, user_id, total_xp)
SELECT (1000000 + n)::text, u::text, 1000 FROM grown, generate_series(1, 2) u;

INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, source, expires_at)
SELECT (1000000 + n)::text, 'c', 1, '1', '2', 'mute', 'bot', now() + interval '1 day' FROM grown;

INSERT INTO tickets (guild_id, id, number, opener_id, channel_id)
SELECT (1000000 + n)::text, 't', 1, '1', n::text FROM grown;

INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at)
SELECT (1000000 + n)::text, 'g', 'active', 'A prize', 1, n::text, n::text, now(), now() + interval '1 day'
FROM grown;

INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
SELECT (1000000 + n)::text, 'w', 'https://example.com', '{ticket.closed}', '', '' FROM grown;

INSERT INTO webhook_schedule (guild_id, endpoint_id) SELECT (1000000 + n)::text, 'w' FROM grown;

INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes)
SELECT 'tok' || n, (1000000 + n)::text, 'x', 'x', sha256(('tok' || n)::bytea), '{economy:read}' FROM grown;

INSERT INTO rank_indexes (guild_id, board, version, state, ahead)
SELECT (1000000 + n)::text, 'wallets', 1, 'live', '{0}' FROM grown WHERE n % 10 = 0;

INSERT INTO rank_checkpoints (guild_id, board, version, number, depth, length, user_id)
SELECT (1000000 + n)::text, 'wallets', 1, 1, -1000, 1, '1' FROM grown WHERE n % 10 = 0;

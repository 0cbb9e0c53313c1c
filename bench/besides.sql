-- A thousand further guilds with a hundred members each, and the other data of the guild that most
-- requests are about: a case, a ticket or a network listing of some members, one second apart.
CREATE TABLE loaded AS
SELECT guild_id, user_id, n, now() - interval '2 years' + n * interval '1 s' AS at
FROM (SELECT guild_id, user_id, row_number() OVER (ORDER BY user_id) AS n FROM wallets WHERE guild_id = '402187554310020096') AS numbered;

INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, source, created_at, updated_at)
SELECT guild_id, 'case-' || n, n / 20, user_id, '7', (ARRAY['note', 'warn', 'mute', 'ban'])[1 + n / 20 % 4], 'loaded', 'bot', at, at
FROM loaded WHERE n % 20 = 0;

INSERT INTO tickets (guild_id, id, number, subject, opener_id, created_at, updated_at)
SELECT guild_id, 'ticket-' || n, n / 50, 'Loaded', user_id, at, at FROM loaded WHERE n % 50 = 0;

INSERT INTO network_listings (user_id, trust_score, report_count, category, severity, first_reported_at, last_reported_at)
SELECT user_id, n / 100 % 100, 3, 'spam', 'low', at, at FROM loaded WHERE n % 100 = 0;

UPDATE guilds
SET last_case = (SELECT count(*) FROM cases WHERE guild_id = guilds.id), last_ticket = (SELECT count(*) FROM tickets WHERE guild_id = guilds.id);

INSERT INTO guilds (id, name, owner_id) SELECT (500000000000000000 + g)::text, 'Bench', '1' FROM generate_series(1, 1000) g;

INSERT INTO wallets (guild_id, user_id, balance)
SELECT (500000000000000000 + g)::text, (100000000000000000 + m * 7919)::text, 1000 FROM generate_series(1, 1000) g, generate_series(1, 100) m;

INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note)
SELECT guild_id, 'e' || user_id, user_id, balance, balance, 'import' FROM wallets WHERE guild_id > '5';

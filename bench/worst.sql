-- What the guild that most requests are about has besides: more cases, a ticket with a
-- transcript of 10,000, giveaways with as many entrants as entrants numbers, and the names of
-- members.

INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, source, created_at, updated_at)
SELECT guild_id, 'second-' || n, 1000000 + n, user_id, '7', 'warn', repeat('🎉', 1000), 'bot', at, at FROM loaded WHERE n % 20 = 1;

UPDATE tickets SET message_count = 10000 WHERE id = 'ticket-50';

INSERT INTO ticket_messages (guild_id, ticket_id, id, author_id, author_type, content, created_at)
SELECT guild_id, tickets.id, 'message-' || n, '7', 'staff', repeat('🎉', 2000), created_at + n * interval '1 s'
FROM tickets, generate_series(1, 10000) n
WHERE tickets.id = 'ticket-50';

UPDATE tickets SET status = 'closed', closed_at = now() WHERE id BETWEEN 'ticket-5000' AND 'ticket-5999' AND length(id) = 11;
UPDATE tickets SET channel_id = '8' || number WHERE length(id) = 10;

-- Those who pay others have enough.
UPDATE wallets SET balance = balance + 1000000
FROM loaded
WHERE loaded.n <= 100000 AND wallets.guild_id = loaded.guild_id AND wallets.user_id = loaded.user_id;

INSERT INTO giveaways (guild_id, id, status, prize, winner_count, entrant_count, entry_count, channel_id, message_id, starts_at, ends_at)
SELECT '402187554310020096', 'giveaway-' || n, 'active', 'A prize', 100, many, many, '9', '9', now() - interval '1 day', now() + interval '1 day'
FROM (VALUES (0), (1), (2), (50), (51), (52), (60), (61), (62), (70), (71), (72), (80), (81), (82), (99)) g (n), (SELECT count(*) AS many FROM entrants) e;

INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id, entered_at)
SELECT guild_id, giveaways.id, user_id, now() - interval '1 hour' FROM giveaways, entrants;

UPDATE giveaways SET status = 'paused', paused_at = now() WHERE id BETWEEN 'giveaway-60' AND 'giveaway-69';

-- One has ended, and was drawn.
UPDATE giveaways
SET status = 'ended', pot = 'frozen', ends_at = now(), ended_at = now(), rounds = 1, winners = (SELECT array_agg(user_id) FROM (SELECT user_id FROM entrants LIMIT 100) w)
WHERE id = 'giveaway-99';

INSERT INTO giveaway_draws (guild_id, giveaway_id, round, seed, entries_hash, entry_count, excluded, drawn, replaced)
SELECT guild_id, id, 1, sha256('seed'), sha256('entries'), entry_count, '{}', winners, '{}' FROM giveaways WHERE id = 'giveaway-99';

INSERT INTO bot_work (guild_id, id, kind, subject_id, event_id, created_at, deadline)
SELECT '402187554310020096', 'work-' || n, 'post_message', 'ticket-50', 'e', now(), now() + interval '1 day' FROM generate_series(0, 9) n;

INSERT INTO members (guild_id, user_id, name, folded, metadata)
SELECT guild_id, user_id, 'Member ' || n, 'member ' || n, '{"a": "b"}' FROM loaded WHERE n % 10 = 0;

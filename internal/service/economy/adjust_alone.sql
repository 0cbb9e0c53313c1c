WITH held AS MATERIALIZED (
	SELECT balance, updated_at FROM wallets WHERE guild_id = $1 AND user_id = $2 FOR NO KEY UPDATE
), spent AS MATERIALIZED (
	SELECT reference FROM ledger_references WHERE guild_id = $1 AND reference = $7
), ours AS MATERIALIZED (
	SELECT balance, updated_at FROM held
	UNION ALL
	SELECT 0, NULL WHERE NOT EXISTS (SELECT FROM held)
), instant AS MATERIALIZED (
	SELECT o.balance AS was, o.updated_at IS NOT NULL AS there, $7::text AS reference,
	       least(greatest(clock_timestamp(), (o.updated_at AT TIME ZONE 'UTC' + interval '1 millisecond') AT TIME ZONE 'UTC'), timestamptz '9999-12-31 23:59:59.999+00') AS at
	FROM ours o
	WHERE o.balance + $3::bigint BETWEEN 0 AND 9007199254740991 AND NOT EXISTS (SELECT FROM spent)
), allowed AS MATERIALIZED (
	SELECT i.*, overlay(lpad(to_hex((extract(epoch FROM i.at) * 1000000)::bigint / 1000), 12, '0') PLACING '-' FROM 9 FOR 0) || right($4::text, 23) AS id
	FROM instant i
), claimed AS (
	INSERT INTO ledger_references (guild_id, reference, entry_id)
	SELECT $1 /*: home.id */, a.reference, a.id
	FROM allowed a /*: a JOIN guilds home ON home.id = $1 */
	WHERE a.reference IS NOT NULL
	ON CONFLICT DO NOTHING
	RETURNING entry_id
), cleared AS MATERIALIZED (
	SELECT * FROM allowed WHERE reference IS NULL OR id IN (SELECT entry_id FROM claimed)
), changed AS MATERIALIZED (
	UPDATE wallets w
	SET balance = c.was + $3::bigint, updated_at = c.at
	FROM cleared c
	WHERE w.guild_id = $1 AND w.user_id = $2 AND c.there
	RETURNING c.was, w.balance AS is_now, w.updated_at, c.id
), made AS (
	INSERT INTO wallets (guild_id, user_id, balance, updated_at)
	SELECT $1 /*: home.id */, $2, $3::bigint, c.at
	FROM cleared c /*: c JOIN guilds home ON home.id = $1 */
	WHERE NOT c.there
	ON CONFLICT DO NOTHING
	RETURNING balance, updated_at
), moved AS MATERIALIZED (
	SELECT $2::text AS user_id, c.id, c.was, c.is_now, c.updated_at,
	       $3::bigint AS delta, $5::text AS reason, $6::text AS note, $7::text AS reference, $8::text AS event_id, $9::text AS origin, $10::text AS trace
	FROM (
		SELECT id, was, is_now, updated_at FROM changed
		UNION ALL
		SELECT c.id, NULL, m.balance, m.updated_at FROM made m, cleared c
	) c
), entered AS (
	INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, reason, note, created_at, reference)
	SELECT $1 /*: home.id */, m.id, m.user_id, m.delta, m.is_now, m.reason, m.note, m.updated_at, m.reference
	FROM moved m /*: m JOIN guilds home ON home.id = $1 */
), :rank, :told
SELECT m.id, o.balance, m.updated_at AS at, EXISTS (SELECT FROM event_listeners) AS told, EXISTS (SELECT FROM spent) AS spent
FROM ours o LEFT JOIN moved m ON true

WITH given AS MATERIALIZED (
	SELECT g.*, $9::text AS one_guild, (SELECT set_config('lock_timeout', '10ms', true)) AS soon
	FROM unnest((SELECT $1::text[]), $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::text[],
	            $10::bigint[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[])
	     WITH ORDINALITY AS g (guild_id, user_id, origin, token_id, key, fingerprint, minted, trace,
	                           delta, reason, note, reference, author_id, counterparty_id, number)
), held AS MATERIALIZED (
	SELECT g.*, w.balance,
	       least(greatest(clock_timestamp(), (w.updated_at AT TIME ZONE 'UTC' + interval '1 millisecond') AT TIME ZONE 'UTC'), timestamptz '9999-12-31 23:59:59.999+00') AS at,
	       w.balance + g.delta BETWEEN 0 AND 9007199254740991
	       AND (SELECT true FROM ledger_references r WHERE r.guild_id = g.guild_id /*: $9 */ AND r.reference = g.reference) IS NULL
	       AND (g.reference IS NULL OR g.number = (SELECT min(e.number) FROM given e WHERE e.guild_id = g.guild_id AND e.reference = g.reference))
	       AND (SELECT true FROM idempotency_keys k WHERE k.guild_id = g.guild_id /*: $9 */ AND k.token_id = g.token_id AND k.key = g.key) IS NULL AS allowed
	FROM given g
	CROSS JOIN LATERAL (
		SELECT balance, updated_at FROM wallets WHERE guild_id = g.guild_id /*: $9 */ AND user_id = g.user_id FOR NO KEY UPDATE
	) w
), decided AS MATERIALIZED (
	SELECT h.*, count(*) FILTER (WHERE h.allowed) OVER transfer AS sides, max(h.at) OVER transfer AS both_at
	FROM held h
	WINDOW transfer AS (PARTITION BY h.guild_id, least(h.user_id, h.counterparty_id))
), moved AS MATERIALIZED (
	UPDATE wallets w
	SET balance = g.balance + g.delta, updated_at = g.both_at
	FROM decided g
	WHERE w.guild_id = g.guild_id /*: $9 */ AND w.user_id = g.user_id AND g.number BETWEEN 1 AND 1000000 AND g.sides = 2
	RETURNING g.*, g.balance AS was, w.balance AS is_now, w.updated_at,
	          overlay(lpad(to_hex((extract(epoch FROM w.updated_at AT TIME ZONE 'UTC') * 1000000)::bigint / 1000), 12, '0') PLACING '-' FROM 9 FOR 0) || right(g.minted, 23) AS event_id
), :rank, 
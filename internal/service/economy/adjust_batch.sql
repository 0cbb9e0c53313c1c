WITH given AS MATERIALIZED (
	SELECT g.*, NULL::text AS counterparty_id, clock_timestamp() AS at, $9::text AS one_guild, (SELECT set_config('lock_timeout', '10ms', true)) AS soon
	FROM unnest((SELECT $1::text[]), $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::text[],
	            $10::bigint[], $11::text[], $12::text[], $13::text[], $14::text[])
	     WITH ORDINALITY AS g (guild_id, user_id, origin, token_id, key, fingerprint, minted, trace, delta, reason, note, reference, author_id, number)
), moved AS MATERIALIZED (
	UPDATE wallets w
	SET balance = w.balance + g.delta,
	    updated_at = least(greatest(g.at, (w.updated_at AT TIME ZONE 'UTC' + interval '1 millisecond') AT TIME ZONE 'UTC'), timestamptz '9999-12-31 23:59:59.999+00')
	FROM given g
	WHERE w.guild_id = g.guild_id /*: $9 */ AND w.user_id = g.user_id AND g.number BETWEEN 1 AND 1000000
	  AND w.balance + g.delta BETWEEN 0 AND 9007199254740991
	  AND (SELECT true FROM ledger_references r WHERE r.guild_id = g.guild_id /*: $9 */ AND r.reference = g.reference) IS NULL
	  AND (g.reference IS NULL OR g.number = (SELECT min(e.number) FROM given e WHERE e.guild_id = g.guild_id AND e.reference = g.reference))
	  AND (SELECT true FROM idempotency_keys k WHERE k.guild_id = g.guild_id /*: $9 */ AND k.token_id = g.token_id AND k.key = g.key) IS NULL
	RETURNING g.*, w.balance - g.delta AS was, w.balance AS is_now, w.updated_at,
	          overlay(lpad(to_hex((extract(epoch FROM w.updated_at AT TIME ZONE 'UTC') * 1000000)::bigint / 1000), 12, '0') PLACING '-' FROM 9 FOR 0) || right(g.minted, 23) AS event_id
), :rank, 
WITH given AS MATERIALIZED (
	SELECT g.*, clock_timestamp() AS at, $9::text AS one_guild, (SELECT set_config('lock_timeout', '10ms', true)) AS soon
	FROM unnest((SELECT $1::text[]), $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::text[],
	            $10::bigint[], $11::bigint[])
	     WITH ORDINALITY AS g (guild_id, user_id, origin, token_id, key, fingerprint, event_id, trace, kept, xp, number)
), moved AS MATERIALIZED (
	UPDATE levels l
	SET previous_xp = l.total_xp, total_xp = l.total_xp * g.kept + g.xp,
	    updated_at = least(greatest(g.at, (l.updated_at AT TIME ZONE 'UTC' + interval '1 millisecond') AT TIME ZONE 'UTC'), timestamptz '9999-12-31 23:59:59.999+00')
	FROM given g
	WHERE l.guild_id = g.guild_id /*: $9 */ AND l.user_id = g.user_id AND g.number BETWEEN 1 AND 1000000
	  AND l.total_xp * g.kept + g.xp BETWEEN 0 AND 9007199254740991
	  AND (SELECT true FROM idempotency_keys k WHERE k.guild_id = g.guild_id /*: $9 */ AND k.token_id = g.token_id AND k.key = g.key) IS NULL
	RETURNING g.*, l.previous_xp AS was, l.total_xp AS is_now, l.updated_at
), keyed AS (
	INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, state, status, xp_of, xp_before, xp_after, entry_at)
	SELECT m.guild_id /*: $9 */ /*: home.id */, m.token_id, m.key, m.fingerprint, 'done', 200, m.user_id, m.was, m.is_now, m.updated_at
	FROM moved m /*: m JOIN guilds home ON home.id = m.guild_id /*: $9 */ */
	WHERE m.key IS NOT NULL
), period_moves AS (
	INSERT INTO xp_moves (guild_id, at, timezone, users, deltas)
	SELECT m.guild_id /*: $9 */ /*: home.id */, m.at, s.timezone, m.users, m.deltas
	FROM (
		SELECT guild_id, min(at) AS at, array_agg(user_id) AS users, array_agg(xp) AS deltas
		FROM moved
		WHERE kept = 1 AND xp <> 0
		GROUP BY guild_id
	) m /*: m JOIN guilds home ON home.id = m.guild_id /*: $9 */ */
	CROSS JOIN LATERAL (
		SELECT timezone FROM guild_settings WHERE guild_id = m.guild_id /*: $9 */ AND xp_periods OFFSET 0
	) s
), :rank, stepped AS MATERIALIZED (
	SELECT s.*, CASE WHEN s.level > s.previous_level THEN 'xp.level_up' ELSE 'xp.level_down' END AS type
	FROM (SELECT moved.*, :level_was AS previous_level, :level_is AS level FROM moved OFFSET 0) s
	WHERE s.level <> s.previous_level
), :emit
SELECT number, user_id, was AS previous_xp, is_now AS total_xp, updated_at
FROM moved

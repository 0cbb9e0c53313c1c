WITH held AS MATERIALIZED (
	SELECT total_xp, updated_at FROM levels WHERE guild_id = $1 AND user_id = $2 FOR NO KEY UPDATE
), ours AS MATERIALIZED (
	SELECT total_xp AS was, updated_at, total_xp * $3::bigint + $4::bigint AS after FROM held
	UNION ALL
	SELECT 0, NULL, $4::bigint WHERE NOT EXISTS (SELECT FROM held)
), allowed AS MATERIALIZED (
	SELECT o.was, o.after, o.updated_at IS NOT NULL AS there,
	       least(greatest(clock_timestamp(), (o.updated_at AT TIME ZONE 'UTC' + interval '1 millisecond') AT TIME ZONE 'UTC'), timestamptz '9999-12-31 23:59:59.999+00') AS at
	FROM ours o
	WHERE o.after BETWEEN 0 AND 9007199254740991
), changed AS MATERIALIZED (
	UPDATE levels l
	SET previous_xp = a.was, total_xp = a.after, updated_at = a.at
	FROM allowed a
	WHERE l.guild_id = $1 AND l.user_id = $2 AND a.there
	RETURNING a.was, l.total_xp AS is_now, l.updated_at
), made AS (
	INSERT INTO levels (guild_id, user_id, total_xp, updated_at)
	SELECT $1 /*: home.id */, $2, a.after, a.at
	FROM allowed a /*: a JOIN guilds home ON home.id = $1 */
	WHERE NOT a.there
	ON CONFLICT DO NOTHING
	RETURNING total_xp, updated_at
), moved AS MATERIALIZED (
	SELECT $2::text AS user_id, c.was, c.is_now, c.updated_at
	FROM (
		SELECT was, is_now, updated_at FROM changed
		UNION ALL
		SELECT NULL, total_xp, updated_at FROM made
	) c
), :rank
SELECT o.was, o.after AS is_now, m.updated_at AS at,
       EXISTS (SELECT 1 FROM webhook_endpoints e WHERE e.guild_id = $1 AND e.enabled AND e.events && '{xp.level_up,xp.level_down}')
       OR EXISTS (SELECT 1 FROM stream_listeners s WHERE s.guild_id = $1 AND s.events && '{xp.level_up,xp.level_down}') AS told
FROM ours o LEFT JOIN moved m ON true

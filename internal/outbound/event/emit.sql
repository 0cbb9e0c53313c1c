event_listeners AS MATERIALIZED (
	SELECT :guild AS guild_id, :moved.event_id, :type AS type, :moved.updated_at, e.id AS endpoint_id,
	       left(:moved.event_id, 15) || right(gen_random_uuid()::text, 21) AS delivery_id, e.delivery = 'push' AS pushed, false AS streamed
	FROM :moved
	JOIN webhook_endpoints e ON e.guild_id = :guild AND e.enabled AND :type = ANY (e.events):except
	WHERE :moved.event_id IS NOT NULL
	UNION ALL
	SELECT :guild, :moved.event_id, :type, :moved.updated_at, s.stream_id, NULL, false, true
	FROM :moved
	JOIN stream_listeners s ON s.guild_id = :guild AND :type = ANY (s.events) AND (s.echo OR NOT starts_with(:moved.origin, '{"type":"bot"'))
	WHERE :moved.event_id IS NOT NULL
), event_stored AS (
	INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload, trace)
	SELECT :guild /*: home.id */, :moved.event_id, :type, :moved.updated_at, convert_to(:payload, 'UTF8'), nullif(:moved.trace, '')
	FROM :moved /*: :moved JOIN guilds home ON home.id = :guild */
	WHERE :moved.event_id IN (SELECT event_id FROM event_listeners)
), event_queued AS (
	INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, event_type, event_at, fresh)
	SELECT :guild /*: home.id */, :moved.delivery_id, :moved.endpoint_id, :moved.event_id, :moved.type, :moved.updated_at, :moved.pushed
	FROM event_listeners :moved /*: :moved JOIN guilds home ON home.id = :guild */
	WHERE NOT :moved.streamed
), event_streamed AS (
	INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at)
	SELECT :guild /*: home.id */, :moved.endpoint_id, :moved.event_id, :moved.updated_at
	FROM event_listeners :moved /*: :moved JOIN guilds home ON home.id = :guild */
	WHERE :moved.streamed
)

event_listeners AS MATERIALIZED (
	SELECT :moved.event_id, e.id AS endpoint_id, left(:moved.event_id, 15) || right(gen_random_uuid()::text, 21) AS delivery_id,
	       e.delivery = 'push' AS pushed, false AS streamed
	FROM :moved
	JOIN webhook_endpoints e ON e.guild_id = :guild AND e.enabled AND :type = ANY (e.events)
	UNION ALL
	SELECT :moved.event_id, s.stream_id, NULL, false, true
	FROM :moved
	JOIN stream_listeners s ON s.guild_id = :guild AND :type = ANY (s.events) AND (s.echo OR NOT starts_with(:moved.origin, '{"type":"bot"'))
), event_stored AS (
	INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload, trace)
	SELECT :guild /*: home.id */, :moved.event_id, :type, :moved.updated_at, convert_to(:payload, 'UTF8'), nullif(:moved.trace, '')
	FROM :moved /*: :moved JOIN guilds home ON home.id = :guild */
	WHERE :moved.event_id IN (SELECT event_id FROM event_listeners)
), event_queued AS (
	INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, event_type, event_at, fresh)
	SELECT :guild /*: home.id */, l.delivery_id, l.endpoint_id, l.event_id, :type, :moved.updated_at, l.pushed
	FROM :moved /*: :moved JOIN guilds home ON home.id = :guild */
	JOIN event_listeners l ON l.event_id = :moved.event_id
	WHERE NOT l.streamed
), event_streamed AS (
	INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at)
	SELECT :guild /*: home.id */, l.endpoint_id, l.event_id, :moved.updated_at
	FROM :moved /*: :moved JOIN guilds home ON home.id = :guild */
	JOIN event_listeners l ON l.event_id = :moved.event_id
	WHERE l.streamed
)

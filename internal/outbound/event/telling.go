package event

// Telling makes a statement tell of what it changes: an event for each row of
// one of its CTEs, with a delivery for each endpoint and each of the bot's streams that
// listens, or nothing at all where none does. A delivery for a pull endpoint is never
// fresh: no worker sends it. The fields other than Rows are SQL expressions over such a
// row, parameters or constants; a column is written with the CTE's name before it.
// Payload is text, and worked out only for what is stored. Origin is an Origin's JSON:
// what a bot key did is for those streams alone that want the echo.
//
// ID is a UUIDv7, and so are the deliveries' ids, which begin with its time: they
// stand in the order of events. The column's default, which mints one from
// nothing, takes Postgres an eighth of an adjustment to set up, even where there
// is nothing to deliver.
type Telling struct {
	Rows                         string // name of the CTE
	Guild, Type, ID, At, Payload string
	Origin                       string

	// Trace is the traceparent of who has made the change, or null. Without it the
	// statement stores none.
	Trace string
}

// CTEs are the statement's further CTEs, to be put behind that of Rows:
//
//	WITH moved AS (UPDATE …), ` + Telling{Rows: "moved", …}.CTEs() + `
//	SELECT …
func (t Telling) CTEs() string {
	home := t.Rows + ` /*: ` + t.Rows + ` JOIN guilds home ON home.id = ` + t.Guild + ` */`
	trace, traced := ``, ``
	if t.Trace != "" {
		trace, traced = `, trace`, `, `+t.Trace
	}
	return `event_listeners AS MATERIALIZED (
			SELECT ` + t.ID + ` AS event_id, e.id AS endpoint_id, left(` + t.ID + `, 15) || right(gen_random_uuid()::text, 21) AS delivery_id,
			       e.delivery = 'push' AS pushed, false AS streamed
			FROM ` + t.Rows + `
			JOIN webhook_endpoints e ON e.guild_id = ` + t.Guild + ` AND e.enabled AND ` + t.Type + ` = ANY (e.events)
			UNION ALL
			SELECT ` + t.ID + `, s.stream_id, NULL, false, true
			FROM ` + t.Rows + `
			JOIN stream_listeners s ON s.guild_id = ` + t.Guild + ` AND ` + t.Type + ` = ANY (s.events) AND (s.echo OR NOT ` + ByBot(t.Origin) + `)
		), event_stored AS (
			INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload` + trace + `)
			SELECT ` + t.Guild + ` /*: home.id */, ` + t.ID + `, ` + t.Type + `, ` + t.At + `, convert_to(` + t.Payload + `, 'UTF8')` + traced + `
			FROM ` + home + `
			WHERE ` + t.ID + ` IN (SELECT event_id FROM event_listeners)
		), event_queued AS (
			INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, event_type, event_at, fresh)
			SELECT ` + t.Guild + ` /*: home.id */, l.delivery_id, l.endpoint_id, l.event_id, ` + t.Type + `, ` + t.At + `, l.pushed
			FROM ` + home + `
			JOIN event_listeners l ON l.event_id = ` + t.ID + `
			WHERE NOT l.streamed
		), event_streamed AS (
			INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at)
			SELECT ` + t.Guild + ` /*: home.id */, l.endpoint_id, l.event_id, ` + t.At + `
			FROM ` + home + `
			JOIN event_listeners l ON l.event_id = ` + t.ID + `
			WHERE l.streamed
		)`
}

// ByBot says of an Origin's JSON, an SQL expression, whether a bot key is its cause.
func ByBot(origin string) string { return `starts_with(` + origin + `, '{"type":"bot"')` }

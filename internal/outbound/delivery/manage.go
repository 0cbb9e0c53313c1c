package delivery

import (
	"context"
	"encoding/json"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
)

// The webhooks service calls the functions of this file inside the unit of work of a request. Each
// function changes the one row of webhook_schedule of the endpoint, and so takes effect when the
// unit of work commits, however many deliveries are waiting; the states of the waiting deliveries
// follow in the background.
//
// The functions lock the endpoint's schedule. A unit of work that also locks the row of
// webhook_endpoints locks that row before it calls these functions.

// lostSince joins a delivery d with the delivery made after d for the same event and endpoint, and
// selects the failed deliveries of endpoint $2 of guild $1 since $3 that have no later delivery.
// OFFSET 0 makes Postgres look for the later delivery by the event alone: the index of the
// endpoint's log looks cheaper, but each lookup would read the rest of the log.
const lostSince = `LEFT JOIN LATERAL (
			    SELECT n.id
			    FROM (
			        SELECT w.id, w.endpoint_id, w.created_at
			        FROM webhook_deliveries w
			        WHERE w.guild_id = $1 AND w.event_id = d.event_id
			        OFFSET 0
			    ) n
			    WHERE n.endpoint_id = d.endpoint_id AND (n.created_at, n.id) > (d.created_at, d.id)
			    LIMIT 1
			) newer ON true
			WHERE d.guild_id = $1 AND d.endpoint_id = $2 AND d.state = 'failed' AND d.created_at >= $3
			  AND newer.id IS NULL`

// countLost counts the deliveries of lostSince.
const countLost = `SELECT count(*) FROM (
			SELECT 1 FROM webhook_deliveries d
			` + lostSince + `
			LIMIT $4) x`

// CountLost returns how many deliveries Recover would queue, at most limit.
func CountLost(ctx context.Context, q db.Querier, guild, endpoint string, since time.Time, limit int) (n int, err error) {
	n, err = db.Get[int](ctx, q, countLost, guild, endpoint, since, limit)
	return n, fault.Wrap(err, "count what endpoint", endpoint, "of guild", guild, "has lost")
}

// recoverStep bounds the rows that one statement of Recover inserts.
const recoverStep = 1000

var (
	noSuchEndpoint = fault.New(fault.NotFound, "not_found", "No such webhook endpoint.")
	noSuchDelivery = fault.New(fault.NotFound, "not_found", "No such delivery.")
)

// Register creates the schedule of a new endpoint, healthy and with nothing to send. The schedule
// of a pull endpoint only ever changes when the endpoint is disabled, enabled or deleted.
//
// A pull endpoint is complete since the commit of the unit of work. The unit of work cannot know
// the instant of its own commit: so complete_since is null until the first fetch, or the next step
// of follow, stores its own, later instant.
func Register(ctx context.Context, tx *db.Tx, guild, endpoint string, enabled, pull bool) error {
	_, err := db.Exec(ctx, tx, `
		INSERT INTO webhook_schedule (guild_id, endpoint_id, disposition, fetched_at, releasing)
		VALUES ($1, $2, CASE WHEN NOT $3 THEN 'hold' WHEN $4 THEN 'pull' ELSE 'send' END, CASE WHEN $4 THEN now() END, $3 AND $4)
		ON CONFLICT DO NOTHING`, guild, endpoint, enabled, pull)
	return fault.Wrap(err, "make the schedule of endpoint", endpoint, "of guild", guild)
}

// Disable disables an endpoint. reason is the service's reason, or empty if the owner disables the
// endpoint; an endpoint that is already disabled keeps its reason. No send to the endpoint starts
// after the commit of the unit of work, except test events. The waiting deliveries are held.
func Disable(ctx context.Context, tx *db.Tx, guild, endpoint, reason string) error {
	_, err := db.Exec(ctx, tx, `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE webhook_endpoints
		SET enabled = false, disabled_reason = nullif($3, ''), updated_at = `+db.Next("instant.at", "updated_at")+`
		FROM instant
		WHERE guild_id = $1 AND id = $2 AND enabled`, guild, endpoint, reason)
	if err != nil {
		return fault.Wrap(err, "disable endpoint", endpoint, "of guild", guild)
	}
	return setDisposition(ctx, tx, guild, endpoint, "hold")
}

// Enable enables an endpoint and resets its failures. Held deliveries are sent in the order of
// their creation, with new retry schedules.
func Enable(ctx context.Context, tx *db.Tx, guild, endpoint string) error {
	_, err := db.Exec(ctx, tx, `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE webhook_endpoints
		SET enabled = true, disabled_reason = NULL, updated_at = `+db.Next("instant.at", "updated_at")+`
		FROM instant
		WHERE guild_id = $1 AND id = $2 AND NOT enabled`, guild, endpoint)
	if err != nil {
		return fault.Wrap(err, "enable endpoint", endpoint, "of guild", guild)
	}
	if err := setDisposition(ctx, tx, guild, endpoint, "send"); err != nil {
		return err
	}
	return resetFailures(ctx, tx, guild, endpoint, false)
}

// Widen stores that an endpoint has subscribed to more events: a pull endpoint is complete since
// the commit of the unit of work, or since the endpoint is enabled.
func Widen(ctx context.Context, tx *db.Tx, guild, endpoint string) error {
	_, err := db.Exec(ctx, tx, `
		UPDATE webhook_schedule
		SET complete_since = NULL, releasing = true
		WHERE guild_id = $1 AND endpoint_id = $2 AND disposition = 'pull'`, guild, endpoint)
	return fault.Wrap(err, "note that endpoint", endpoint, "of guild", guild, "gets more")
}

// Forget drops all waiting deliveries of an endpoint that the unit of work deletes. No send to the
// endpoint starts after the commit of the unit of work.
func Forget(ctx context.Context, tx *db.Tx, guild, endpoint string) error {
	return setDisposition(ctx, tx, guild, endpoint, "drop")
}

// setDisposition stores what happens to the waiting deliveries of an endpoint. A concurrent claim
// holds the lock of the row, so the sends of that claim have started when setDisposition returns.
// For a pull endpoint, the disposition send becomes pull.
func setDisposition(ctx context.Context, tx *db.Tx, guild, endpoint, disposition string) error {
	if disposition == "send" {
		how, err := db.Get[string](ctx, tx, `SELECT delivery FROM webhook_endpoints WHERE guild_id = $1 AND id = $2`, guild, endpoint)
		if err != nil && !db.Missing(err) {
			return fault.Wrap(err, "see how endpoint", endpoint, "of guild", guild, "gets its events")
		}
		if how == Pull {
			disposition = "pull"
		}
	}
	_, err := db.Exec(ctx, tx, `
		INSERT INTO webhook_schedule AS s (guild_id, endpoint_id, disposition, releasing, next_due, fetched_at)
		VALUES ($1, $2, $3, $3 IN ('send', 'pull'), CASE WHEN $3 <> 'pull' THEN now() END, CASE WHEN $3 = 'pull' THEN now() END)
		ON CONFLICT (guild_id, endpoint_id) DO UPDATE
		SET disposition = excluded.disposition, releasing = excluded.releasing, next_due = excluded.next_due,
		    urgent = s.urgent AND excluded.disposition <> 'drop',
		    recovered_at = NULL, recovered_passes = false,
		    fetched_at = coalesce(excluded.fetched_at, s.fetched_at),
		    complete_since = CASE WHEN excluded.disposition <> 'pull' THEN s.complete_since END`,
		guild, endpoint, disposition)
	return fault.Wrap(err, "set the schedule of endpoint", endpoint, "of guild", guild, "to", disposition)
}

// ResetHealth resets what the attempts at an endpoint's old URL have shown: due deliveries are sent
// now, and the endpoint counts as never tried. A pull endpoint has no URL.
func ResetHealth(ctx context.Context, tx *db.Tx, guild, endpoint string) error {
	return resetFailures(ctx, tx, guild, endpoint, true)
}

// resetFailures resets an endpoint's failures, so that due deliveries are sent now. The last failed
// attempt stays visible unless anew is set.
func resetFailures(ctx context.Context, tx *db.Tx, guild, endpoint string, anew bool) error {
	_, err := db.Exec(ctx, tx, `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE webhook_schedule
		SET failures = 0, refusals = 0, refused_at = NULL, blocks = 0, blocked_until = NULL, quiet_until = NULL, failing_since = NULL,
		    failed_attempts = 0, warned = 0, reported = false,
		    last_failure = CASE WHEN NOT $3 THEN last_failure END, health_since = CASE WHEN $3 THEN instant.at ELSE health_since END,
		    next_due = least(next_due, instant.at)
		FROM instant
		WHERE guild_id = $1 AND endpoint_id = $2 AND disposition <> 'pull'`, guild, endpoint, anew)
	return fault.Wrap(err, "reset the health of endpoint", endpoint, "of guild", guild)
}

// Redeliver queues the event of a delivery again, with the same event id and a new retry schedule,
// and returns the id of the new delivery. The first attempt ignores a block and the order of the
// queue; while the endpoint is disabled, the delivery is held. If the endpoint does not have the
// delivery, or its event is about to be deleted, the error is NotFound.
func Redeliver(ctx context.Context, tx *db.Tx, guild, endpoint, delivery string) (string, error) {
	send, err := makeDue(ctx, tx, guild, endpoint, false)
	if err != nil {
		return "", err
	}
	fresh, err := db.Get[string](ctx, tx, `
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, event_at, cause, state, fresh, urgent)
		SELECT d.guild_id, d.endpoint_id, d.event_id, ev.type, ev.occurred_at, 'redelivery', CASE WHEN $4 THEN 'pending' ELSE 'held' END, false,
		       $4 AND e.delivery = 'push'
		FROM webhook_deliveries d
		JOIN webhook_events ev ON ev.guild_id = d.guild_id AND ev.id = d.event_id
		JOIN webhook_endpoints e ON e.guild_id = $1 AND e.id = $2
		WHERE d.guild_id = $1 AND d.endpoint_id = $2 AND d.id = $3 AND ev.occurred_at > now() - $5 * interval '1 second'
		RETURNING id`, guild, endpoint, delivery, send, (keep - lastCall).Seconds())
	if db.Missing(err) {
		return "", noSuchDelivery
	}
	return fresh, fault.Wrap(err, "redeliver", delivery, "of guild", guild)
}

// Recover queues again the events of failed deliveries that were created since the given instant,
// as Redeliver does, the oldest first and at most limit, and returns the number of queued events.
// The newest delivery of each event decides: if that delivery has succeeded or is waiting, the
// event is not queued again.
//
// A recovered delivery ignores a block and a pause that the receiver asked for. Tests and
// redeliveries are sent before recovered deliveries; the endpoint's other deliveries and the
// recovered ones alternate. After the first failed attempt of a recovered delivery, recovered
// deliveries no longer ignore the block: a receiver that asks for a pause does not get all of them
// first. If Recover is called again, the waiting deliveries of the first call ignore the block
// again, too, because their due_at is the same.
func Recover(ctx context.Context, tx *db.Tx, guild, endpoint string, since time.Time, limit int) (int, error) {
	send, err := makeDue(ctx, tx, guild, endpoint, false)
	if err != nil {
		return 0, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return 0, err
	}
	due, err := db.Get[time.Time](ctx, tx, `
		UPDATE webhook_schedule
		SET recovered_at = CASE WHEN $3 AND disposition = 'send' THEN coalesce(recovered_at, $4) END,
		    recovered_passes = $3
		WHERE guild_id = $1 AND endpoint_id = $2
		RETURNING coalesce(recovered_at, $4)`, guild, endpoint, send, now)
	if err != nil {
		return 0, fault.Wrap(err, "recover deliveries of endpoint", endpoint, "of guild", guild)
	}
	if err := planByIndexOrder(ctx, tx); err != nil {
		return 0, err
	}
	total := 0
	for total < limit {
		step := min(recoverStep, limit-total)
		n, err := db.Exec(ctx, tx, `
			INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, event_at, cause, state, fresh, due_at)
			SELECT d.guild_id, d.endpoint_id, d.event_id, ev.type, ev.occurred_at, 'redelivery', CASE WHEN $5 THEN 'pending' ELSE 'held' END, false, $7
			FROM webhook_deliveries d
			JOIN webhook_events ev ON ev.guild_id = $1 AND ev.id = d.event_id
			`+lostSince+`
			  AND ev.occurred_at > now() - $6 * interval '1 second'
			ORDER BY d.created_at, d.id
			LIMIT $4`, guild, endpoint, since, step, send, keep.Seconds(), due)
		if err != nil {
			return 0, fault.Wrap(err, "recover deliveries of endpoint", endpoint, "of guild", guild)
		}
		total += n
		if n < step {
			break
		}
	}
	return total, nil
}

// Ping queues a test event for one endpoint, whatever the endpoint subscribes to, and returns the
// id of the delivery. The first attempt is made now: the attempt ignores a block and the order of
// the queue, and is made even if the endpoint is disabled. For a pull endpoint, the test event
// waits to be fetched like every other event, and is held while the endpoint is disabled. If the
// guild does not have the endpoint, the error is NotFound.
func Ping(ctx context.Context, tx *db.Tx, by event.Origin, endpoint string) (string, error) {
	data, err := json.Marshal(map[string]string{"webhook_id": endpoint})
	if err != nil {
		return "", fault.Wrap(err, "render the data of a ping")
	}
	if _, err := makeDue(ctx, tx, by.GuildID, endpoint, true); err != nil {
		return "", err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return "", err
	}
	id, eventID := db.NewID(), db.NewID()
	_, err = db.Exec(ctx, tx, `
		INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload, trace)
		VALUES ($1, $2, $3, $4, convert_to($5, 'UTF8'), nullif($6, ''))`,
		by.GuildID, eventID, event.Ping, now, event.NewEnvelope(by, event.Ping).Payload(eventID, now, string(data)), by.Traceparent(ctx))
	if err != nil {
		return "", fault.Wrap(err, "record the test event for endpoint", endpoint, "of guild", by.GuildID)
	}
	n, err := db.Exec(ctx, tx, `
		INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, event_type, event_at, cause, state, fresh, urgent)
		SELECT e.guild_id, $3, e.id, $4, $5, $6, 'test', CASE WHEN e.enabled OR e.delivery = 'push' THEN 'pending' ELSE 'held' END,
		       false, e.delivery = 'push'
		FROM webhook_endpoints e
		WHERE e.guild_id = $1 AND e.id = $2`, by.GuildID, endpoint, id, eventID, event.Ping, now)
	if err != nil {
		return "", fault.Wrap(err, "test endpoint", endpoint)
	}
	if n == 0 {
		return "", noSuchEndpoint
	}
	return id, nil
}

// makeDue makes an endpoint due for the urgent deliveries that the unit of work is about to store.
// makeDue reports whether deliveries are sent to the endpoint now, or stored for a pull endpoint. A
// disabled endpoint stays unchanged unless evenDisabled is set; a pull endpoint is never due.
func makeDue(ctx context.Context, tx *db.Tx, guild, endpoint string, evenDisabled bool) (send bool, err error) {
	send, err = db.Get[bool](ctx, tx, `
		INSERT INTO webhook_schedule AS s (guild_id, endpoint_id, disposition, urgent, next_due)
		SELECT e.guild_id, e.id, CASE WHEN NOT e.enabled THEN 'hold' WHEN e.delivery = 'pull' THEN 'pull' ELSE 'send' END,
		       e.delivery = 'push' AND (e.enabled OR $3), CASE WHEN e.delivery = 'push' THEN now() END
		FROM webhook_endpoints e
		WHERE e.guild_id = $1 AND e.id = $2
		ON CONFLICT (guild_id, endpoint_id) DO UPDATE
		SET urgent = s.urgent OR excluded.next_due IS NOT NULL AND (s.disposition = 'send' OR $3),
		    next_due = coalesce(excluded.next_due, s.next_due)
		RETURNING disposition IN ('send', 'pull')`, guild, endpoint, evenDisabled)
	if db.Missing(err) {
		return false, noSuchEndpoint
	}
	return send, fault.Wrap(err, "make endpoint", endpoint, "of guild", guild, "due")
}

package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/event"
	"guildhall/internal/fault"
	"guildhall/internal/page"
)

// delivery is one event on its way to one endpoint, with its last attempt, as
// the log shows it.
type delivery struct {
	ID            string     `db:"id"`
	EventID       string     `db:"event_id"`
	EventType     string     `db:"event_type"`
	State         string     `db:"state"`
	Attempts      int        `db:"attempts"`
	NextAttemptAt *time.Time `db:"next_attempt_at"`
	CreatedAt     time.Time  `db:"created_at"`
	CompletedAt   *time.Time `db:"completed_at"`
	Status        *int       `db:"status"`
	Excerpt       *string    `db:"excerpt"`
	Error         *string    `db:"error"`
	DurationMs    *int       `db:"duration_ms"`
}

// attempt is one row of the attempt log.
type attempt struct {
	Number     int       `db:"number"`
	StartedAt  time.Time `db:"started_at"`
	DurationMs int       `db:"duration_ms"`
	Outcome    string    `db:"outcome"`
	Status     *int      `db:"status"`
	Excerpt    *string   `db:"excerpt"`
	Error      *string   `db:"error"`
}

var noSuchDelivery = fault.New(fault.NotFound, "not_found", "No such delivery.")

// deliveries returns a page of an endpoint's log, newest first, and one row
// more. An empty state is all of them.
func deliveries(ctx context.Context, q db.Querier, guild, endpoint string, state *string, p page.P) ([]delivery, error) {
	var rows []delivery
	err := q.SelectContext(ctx, &rows, `
		SELECT d.id, d.event_id, ev.type AS event_type, d.state, d.attempts,
		       CASE WHEN d.state = 'pending' THEN greatest(d.due_at, h.blocked_until, h.quiet_until) END AS next_attempt_at,
		       d.created_at, d.completed_at, a.status, a.excerpt, a.error, a.duration_ms
		FROM webhook_deliveries d
		JOIN webhook_events ev ON ev.guild_id = d.guild_id AND ev.id = d.event_id
		LEFT JOIN webhook_health h ON h.guild_id = d.guild_id AND h.endpoint_id = d.endpoint_id
		LEFT JOIN LATERAL (
			SELECT status, excerpt, error, duration_ms
			FROM webhook_attempts a
			WHERE a.guild_id = d.guild_id AND a.delivery_id = d.id
			ORDER BY number DESC
			LIMIT 1
		) a ON true
		WHERE d.guild_id = $1 AND d.endpoint_id = $2 AND ($3::text IS NULL OR d.state = $3)
		ORDER BY d.created_at DESC, d.id DESC
		LIMIT $4 OFFSET $5`, guild, endpoint, state, p.Limit(), p.Offset())
	if err != nil {
		return nil, fmt.Errorf("list deliveries of endpoint %s of guild %s: %w", endpoint, guild, err)
	}
	return rows, nil
}

// oneDelivery returns one delivery of the endpoint, or NotFound.
func oneDelivery(ctx context.Context, q db.Querier, guild, endpoint, id string) (delivery, error) {
	var d delivery
	err := q.GetContext(ctx, &d, `
		SELECT d.id, d.event_id, ev.type AS event_type, d.state, d.attempts,
		       CASE WHEN d.state = 'pending' THEN greatest(d.due_at, h.blocked_until, h.quiet_until) END AS next_attempt_at,
		       d.created_at, d.completed_at, a.status, a.excerpt, a.error, a.duration_ms
		FROM webhook_deliveries d
		JOIN webhook_events ev ON ev.guild_id = d.guild_id AND ev.id = d.event_id
		LEFT JOIN webhook_health h ON h.guild_id = d.guild_id AND h.endpoint_id = d.endpoint_id
		LEFT JOIN LATERAL (
			SELECT status, excerpt, error, duration_ms
			FROM webhook_attempts a
			WHERE a.guild_id = d.guild_id AND a.delivery_id = d.id
			ORDER BY number DESC
			LIMIT 1
		) a ON true
		WHERE d.guild_id = $1 AND d.endpoint_id = $2 AND d.id = $3`, guild, endpoint, id)
	if db.Missing(err) {
		return delivery{}, noSuchDelivery
	}
	if err != nil {
		return delivery{}, fmt.Errorf("read delivery %s of guild %s: %w", id, guild, err)
	}
	return d, nil
}

// payload returns the exact body of an event.
func payload(ctx context.Context, q db.Querier, guild, eventID string) ([]byte, error) {
	var body []byte
	if err := q.GetContext(ctx, &body, `SELECT payload FROM webhook_events WHERE guild_id = $1 AND id = $2`, guild, eventID); err != nil {
		return nil, fmt.Errorf("read event %s of guild %s: %w", eventID, guild, err)
	}
	return body, nil
}

// attempts returns the log of one delivery's attempts, oldest first.
func attempts(ctx context.Context, q db.Querier, guild, id string) ([]attempt, error) {
	var rows []attempt
	err := q.SelectContext(ctx, &rows, `
		SELECT number, started_at, duration_ms, outcome, status, excerpt, error
		FROM webhook_attempts
		WHERE guild_id = $1 AND delivery_id = $2
		ORDER BY number`, guild, id)
	if err != nil {
		return nil, fmt.Errorf("list attempts of delivery %s of guild %s: %w", id, guild, err)
	}
	return rows, nil
}

// redeliver queues the event of a delivery once more, with a schedule of its
// own, and returns the new delivery's id. It waits with the others when the
// endpoint is disabled.
func redeliver(ctx context.Context, tx *db.Tx, guild, endpoint, id string) (string, error) {
	var fresh string
	err := tx.GetContext(ctx, &fresh, `
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, cause, state)
		SELECT d.guild_id, d.endpoint_id, d.event_id, 'redelivery', CASE WHEN e.enabled THEN 'pending' ELSE 'held' END
		FROM webhook_deliveries d
		JOIN webhook_endpoints e ON e.guild_id = d.guild_id AND e.id = d.endpoint_id
		WHERE d.guild_id = $1 AND d.endpoint_id = $2 AND d.id = $3
		RETURNING id`, guild, endpoint, id)
	if db.Missing(err) {
		return "", noSuchDelivery
	}
	if err != nil {
		return "", fmt.Errorf("redeliver %s of guild %s: %w", id, guild, err)
	}
	return fresh, nil
}

// ping queues a test event for one endpoint, whatever it listens to, and
// returns the delivery's id.
func ping(ctx context.Context, tx *db.Tx, by event.Origin, endpoint string) (string, error) {
	data, err := json.Marshal(map[string]string{"webhook_id": endpoint})
	if err != nil {
		return "", fmt.Errorf("render the data of a ping: %w", err)
	}
	var id string
	err = tx.GetContext(ctx, &id, `
		WITH e AS (
			SELECT guild_id, id, enabled FROM webhook_endpoints WHERE guild_id = $1 AND id = $2
		), ev AS (
			INSERT INTO webhook_events (guild_id, id, type, payload)
			SELECT guild_id, $3, $4, webhook_payload(guild_id, $3, $4, $5, $6) FROM e
			RETURNING guild_id, id
		)
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, cause, state)
		SELECT e.guild_id, e.id, ev.id, 'test', CASE WHEN e.enabled THEN 'pending' ELSE 'held' END FROM e, ev
		RETURNING id`, by.GuildID, endpoint, db.NewID(), event.Ping, by.JSON(), string(data))
	if db.Missing(err) {
		return "", noSuchEndpoint
	}
	if err != nil {
		return "", fmt.Errorf("test endpoint %s of guild %s: %w", endpoint, by.GuildID, err)
	}
	return id, nil
}

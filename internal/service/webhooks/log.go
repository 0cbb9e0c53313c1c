package webhooks

import (
	"context"
	"fmt"
	"strings"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/delivery"
)

// Logged is a delivery, an event on its way to one endpoint, with its last attempt, as the log
// shows it.
type Logged struct {
	ID            string     `db:"id"`
	EventID       string     `db:"event_id"`
	EventType     string     `db:"event_type"`
	OccurredAt    time.Time  `db:"occurred_at"`
	Cause         string     `db:"cause"`
	State         string     `db:"state"`
	Attempts      int        `db:"attempts"`
	NextAttemptAt *time.Time `db:"next_attempt_at"`
	CreatedAt     time.Time  `db:"created_at"`
	CompletedAt   *time.Time `db:"completed_at"`
	Status        *int       `db:"status"`
	Excerpt       *string    `db:"excerpt"`
	Error         *string    `db:"error"`
	DurationMs    *int       `db:"duration_ms"`
	Outcome       *string    `db:"outcome"`     // of the last attempt; nil: none was made
	EndedEarly    bool       `db:"ended_early"` // Error is not the last attempt's, but why the delivery was given up
}

// Attempt is one row of the attempt log.
type Attempt struct {
	Number     int       `db:"number"`
	StartedAt  time.Time `db:"started_at"`
	DurationMs int       `db:"duration_ms"`
	Outcome    string    `db:"outcome"`
	Status     *int      `db:"status"`
	Excerpt    *string   `db:"excerpt"`
	Error      *string   `db:"error"`
}

// putOff reports whether the delivery is due but a worker has postponed it, because no attempt
// could be made.
func (d Logged) putOff() bool {
	return d.Attempts == 0 && d.State == delivery.StatePending && d.NextAttemptAt != nil && d.NextAttemptAt.After(d.CreatedAt)
}

var noSuchDelivery = fault.New(fault.NotFound, "not_found", "No such delivery.")

// The values of Filter.Status and Filter.ResponseClass.
var (
	Statuses        = []string{delivery.StatePending, delivery.StateDelivered, delivery.StateFailed, delivery.StateHeld}
	ResponseClasses = []string{"2xx", "3xx", "4xx", "5xx", "none"}
)

// Filter selects deliveries. The zero value selects all.
type Filter struct {
	Status        string
	EventType     string
	ResponseClass string    // of the last attempt
	Since         time.Time // created at this time or later
	// Tried selects the deliveries that were attempted. It does not combine with Status, EventType
	// and ResponseClass.
	Tried bool
	// Selects deliveries older than the one with this id, which was created at this time.
	BelowAt time.Time
	BelowID string
}

const (
	// nextAttempt is when a delivery is attempted next; null where it is not.
	nextAttempt = `CASE
		           WHEN d.state <> 'pending' THEN NULL
		           WHEN d.urgent OR s.recovered_passes AND d.due_at = s.recovered_at THEN d.due_at
		           ELSE greatest(d.due_at, s.not_before)
		       END`

	deliveryColumns = `
		SELECT d.id, d.event_id, coalesce(d.event_type, '') AS event_type, coalesce(d.event_at, d.created_at) AS occurred_at, d.cause, d.state, d.attempts,
		       ` + nextAttempt + ` AS next_attempt_at,
		       d.created_at, d.completed_at, a.status, a.excerpt, coalesce(d.error, a.error) AS error, a.duration_ms,
		       a.outcome, d.error IS NOT NULL AND d.error IS DISTINCT FROM a.error AS ended_early`

	deliveryJoins = `
		LEFT JOIN webhook_schedule s ON s.guild_id = $1 AND s.endpoint_id = d.endpoint_id
		LEFT JOIN LATERAL (
			SELECT status, excerpt, error, duration_ms, outcome
			FROM webhook_attempts a
			WHERE a.guild_id = $1 AND a.delivery_id = d.id
			ORDER BY number DESC
			LIMIT 1
		) a ON true`
)

// Log returns the newest of the endpoint's deliveries that match the filter, at most limit.
func Log(ctx context.Context, q db.Querier, guild, endpoint string, f Filter, limit int) ([]Logged, error) {
	return deliveries(ctx, q, guild, endpoint, f, limit, 0)
}

func deliveries(ctx context.Context, q db.Querier, guild, endpoint string, f Filter, limit, offset int) ([]Logged, error) {
	found, args := pageQuery(guild, endpoint, f, limit, offset)
	// Details are read only for the rows of the page.
	rows, err := db.Select[Logged](ctx, q, deliveryColumns+`
		FROM (`+found+`
		) found
		JOIN webhook_deliveries d ON d.guild_id = $1 AND d.id = found.id`+deliveryJoins+`
		ORDER BY d.created_at DESC, d.id DESC`, args...)
	return rows, fault.Wrap(err, "list deliveries of endpoint", endpoint, "of guild", guild)
}

// pageQuery is the statement that finds limit of an endpoint's deliveries that
// pass f, newest first, and its arguments. Each set of filters has a statement of
// its own: a prepared statement's plan has to hold for every value, and a
// condition that may be switched off cannot be looked up in an index.
func pageQuery(guild, endpoint string, f Filter, limit, offset int) (string, []any) {
	if f.Tried {
		return triedQuery(guild, endpoint, f, limit, offset)
	}
	class := f.ResponseClass
	if class == "2xx" && f.Status == "" {
		f.Status = delivery.StateDelivered // equivalent, and supported by an index
	}
	query, args := db.Where(`
			SELECT guild_id, id
			FROM webhook_deliveries
			WHERE guild_id = $1 AND endpoint_id = $2 AND created_at >= $3`, []any{guild, endpoint, f.Since, limit, offset},
		db.Condition{Compare: "state =", Value: f.Status},
		db.Condition{Compare: "event_type =", Value: f.EventType})
	if class == "2xx" {
		query += " AND response_class = '2xx'"
	} else {
		// The first comparison is the predicate of the partial index.
		query, args = db.Where(query, args, db.Condition{Compare: "response_class <> '2xx' AND response_class =", Value: class})
	}
	if f.BelowID != "" {
		args = append(args, f.BelowAt, f.BelowID)
		query += fmt.Sprintf(" AND (created_at, id) < ($%d, $%d)", len(args)-1, len(args))
	}
	return query + `
			ORDER BY created_at DESC, id DESC
			LIMIT $4 OFFSET $5`, args
}

// triedQuery is pageQuery for the deliveries that were attempted. It merges those that were
// delivered with those of each other class of responses, each read in the order of an index.
func triedQuery(guild, endpoint string, f Filter, limit, offset int) (string, []any) {
	args, below := []any{guild, endpoint, f.Since, limit, offset}, ""
	if f.BelowID != "" {
		args, below = append(args, f.BelowAt, f.BelowID), " AND (created_at, id) < ($6, $7)"
	}
	conditions := []string{"state = 'delivered'"}
	for _, class := range ResponseClasses[1:] {
		conditions = append(conditions, "state <> 'delivered' AND response_class <> '2xx' AND response_class = '"+class+"'")
	}
	var parts []string
	for _, tried := range conditions {
		parts = append(parts, `(
				SELECT guild_id, id, created_at
				FROM webhook_deliveries
				WHERE guild_id = $1 AND endpoint_id = $2 AND created_at >= $3 AND `+tried+below+`
				ORDER BY created_at DESC, id DESC
				LIMIT $4::bigint + $5::bigint)`)
	}
	return `
			SELECT guild_id, id
			FROM (` + strings.Join(parts, `
				UNION ALL `) + `
			) tried
			ORDER BY created_at DESC, id DESC
			LIMIT $4 OFFSET $5`, args
}

// Detail returns a delivery of the endpoint with the exact body of its event (nil if the event is
// deleted) and its attempts, or a NotFound fault.
func Detail(ctx context.Context, q db.Querier, guild, endpoint, id string) (Logged, []byte, []Attempt, error) {
	d, err := oneDelivery(ctx, q, guild, endpoint, id)
	if err != nil {
		return Logged{}, nil, nil, err
	}
	body, err := payload(ctx, q, guild, d.EventID)
	if err != nil {
		return Logged{}, nil, nil, err
	}
	log, err := attempts(ctx, q, guild, id)
	return d, body, log, err
}

// oneDelivery returns a delivery of the endpoint, or a NotFound fault.
func oneDelivery(ctx context.Context, q db.Querier, guild, endpoint, id string) (Logged, error) {
	d, err := db.Get[Logged](ctx, q, deliveryColumns+`
		FROM webhook_deliveries d`+deliveryJoins+`
		WHERE d.guild_id = $1 AND d.endpoint_id = $2 AND d.id = $3`, guild, endpoint, id)
	if db.Missing(err) {
		return Logged{}, noSuchDelivery
	}
	return d, fault.Wrap(err, "read delivery", id, "of guild", guild)
}

// AwaitAttempt waits until a delivery was attempted, postponed or completed, and returns it. If ctx
// ends first, it returns the delivery's last state and the error of ctx.
func AwaitAttempt(ctx context.Context, q db.Querier, guild, endpoint, id string) (Logged, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last Logged
	for {
		d, err := oneDelivery(ctx, q, guild, endpoint, id)
		switch {
		case err != nil && ctx.Err() != nil:
			return last, ctx.Err()
		case err != nil || d.Attempts > 0 || d.State != delivery.StatePending || d.putOff():
			return d, err
		}
		last = d
		select {
		case <-tick.C:
		case <-ctx.Done():
			return last, ctx.Err()
		}
	}
}

// readTypesInLog selects those of some event types that occur in an endpoint's log.
const readTypesInLog = `
	SELECT t
	FROM unnest($3::text[]) t
	WHERE EXISTS (
		SELECT FROM webhook_deliveries d
		WHERE d.guild_id = $1 AND d.endpoint_id = $2 AND d.event_type = t)`

// typesInLog returns those of the given event types that occur in the endpoint's log.
func typesInLog(ctx context.Context, q db.Querier, guild, endpoint string, types []string) ([]string, error) {
	in, err := db.Select[string](ctx, q, readTypesInLog, guild, endpoint, db.Array(types))
	return in, fault.Wrap(err, "find the event types of endpoint", endpoint, "of guild", guild)
}

// payload returns the exact body of an event, or nil if the event is deleted.
func payload(ctx context.Context, q db.Querier, guild, eventID string) ([]byte, error) {
	body, err := db.Get[[]byte](ctx, q, `SELECT payload FROM webhook_events WHERE guild_id = $1 AND id = $2`, guild, eventID)
	if db.Missing(err) {
		return nil, nil
	}
	return body, fault.Wrap(err, "read event", eventID, "of guild", guild)
}

// attempts returns the attempts of a delivery, oldest first.
func attempts(ctx context.Context, q db.Querier, guild, id string) ([]Attempt, error) {
	rows, err := db.Select[Attempt](ctx, q, `
		SELECT number, started_at, duration_ms, outcome, status, excerpt, error
		FROM webhook_attempts
		WHERE guild_id = $1 AND delivery_id = $2
		ORDER BY number`, guild, id)
	return rows, fault.Wrap(err, "list attempts of delivery", id, "of guild", guild)
}

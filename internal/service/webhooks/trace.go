package webhooks

import (
	"cmp"
	"context"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// Emitted is an event that was emitted for a change of a record, with the state of its deliveries.
type Emitted struct {
	ID         string    `db:"event_id"`
	Type       string    `db:"event_type"`
	OccurredAt time.Time `db:"occurred_at"`
	// Streams is how many streams of the operator's bot it waits in. Of an acknowledged event
	// nothing stays there.
	Streams int `db:"streams"`

	Outcomes []Outcome `db:"-"`
}

// Outcome is what became of an event at one endpoint: the delivery, and its last attempt.
type Outcome struct {
	DeliveryID    string
	EndpointID    string
	Endpoint      string // the endpoint's description, or else its URL; empty when the endpoint was removed
	Pull          bool
	Cause, State  string
	NextAttemptAt *time.Time
	CompletedAt   *time.Time
	Status        *int
	Error         *string
	DurationMs    *int
}

// traceRow is an event with one of its deliveries, if there is one.
type traceRow struct {
	Emitted
	DeliveryID    *string    `db:"delivery_id"`
	EndpointID    *string    `db:"endpoint_id"`
	Delivery      *string    `db:"delivery"`
	URL           *string    `db:"url"`
	Description   *string    `db:"description"`
	Cause         *string    `db:"cause"`
	State         *string    `db:"state"`
	NextAttemptAt *time.Time `db:"next_attempt_at"`
	CompletedAt   *time.Time `db:"completed_at"`
	Status        *int       `db:"status"`
	Error         *string    `db:"error"`
	DurationMs    *int       `db:"duration_ms"`
}

func (r traceRow) outcome() Outcome {
	return Outcome{
		DeliveryID: or(r.DeliveryID), EndpointID: or(r.EndpointID), Endpoint: cmp.Or(or(r.Description), or(r.URL), or(r.Delivery)),
		Pull: or(r.Delivery) == "pull", Cause: or(r.Cause), State: or(r.State), NextAttemptAt: r.NextAttemptAt, CompletedAt: r.CompletedAt,
		Status: r.Status, Error: r.Error, DurationMs: r.DurationMs,
	}
}

// or is *s, or the empty text.
func or(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Trace returns the events that were emitted for the changes of a record at some instants, in the order
// of the changes. family is what their types begin with, as in case. for case.created, and id
// the record's id. An event is kept for 31 days, and only where somebody listened.
func Trace(ctx context.Context, q db.Querier, guild, family, id string, instants ...time.Time) ([]Emitted, error) {
	var from, below []string
	seen := map[string]bool{}
	for _, at := range instants {
		if first, next := db.IDsWithin(at); !seen[first] {
			seen[first] = true
			from, below = append(from, first), append(below, next)
		}
	}
	rows, err := db.Select[traceRow](ctx, q, tracing, guild, family, id, db.Array(from), db.Array(below))
	var list []Emitted
	for _, r := range rows {
		if len(list) == 0 || list[len(list)-1].ID != r.ID {
			list = append(list, r.Emitted)
		}
		if r.DeliveryID != nil {
			e := &list[len(list)-1]
			e.Outcomes = append(e.Outcomes, r.outcome())
		}
	}
	return list, fault.Wrap(err, "trace", id, "of guild", guild)
}

// tracing finds events by the primary key: their ids begin with the instant of their change.
// The payload says which record an event is about. It is parsed for events of the family alone.
const tracing = `
		WITH emitted AS MATERIALIZED (
			SELECT e.id, e.type, e.occurred_at
			FROM unnest($4::text[], $5::text[]) AS within (from_id, below_id)
			CROSS JOIN LATERAL (
				SELECT v.id, v.type, v.occurred_at
				FROM webhook_events v
				WHERE v.guild_id = $1 AND v.id >= within.from_id AND v.id < within.below_id
				  AND CASE WHEN starts_with(v.type, $2) THEN
				          $3 IN (convert_from(v.payload, 'UTF8')::jsonb #>> '{data,id}', convert_from(v.payload, 'UTF8')::jsonb #>> '{data,ledger_entry_id}')
				      END
				OFFSET 0
			) e
		)
		SELECT e.id AS event_id, e.type AS event_type, e.occurred_at,
		       (SELECT count(*) FROM stream_deliveries w WHERE w.guild_id = $1 AND w.event_id = e.id) AS streams,
		       d.id AS delivery_id, d.endpoint_id, p.delivery, p.url, p.description, d.cause, d.state,
		       ` + nextAttempt + ` AS next_attempt_at, d.completed_at, a.status, coalesce(d.error, a.error) AS error, a.duration_ms
		FROM emitted e
		LEFT JOIN LATERAL (
			SELECT *
			FROM webhook_deliveries
			WHERE guild_id = $1 AND event_id = e.id
			OFFSET 0
		) d ON true
		LEFT JOIN webhook_endpoints p ON p.guild_id = $1 AND p.id = d.endpoint_id` + deliveryJoins + `
		ORDER BY e.occurred_at, e.id, d.id`

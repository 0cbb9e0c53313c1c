package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"guildhall/internal/db"
)

const (
	// lease is longer than an attempt may take. A row whose lease ran out is
	// due again: that alone recovers what a dead worker had in hand.
	lease = 20 * time.Second

	// claimLimit bounds one claim, and one settling.
	claimLimit = 64

	// healthySlots is how many sends a node has under way to one endpoint at
	// the same time; to one that fails, it is one.
	healthySlots = 4
)

// claimed is one delivery under this worker's lease, with all that sending it
// takes. URL is nil when the endpoint is gone.
type claimed struct {
	GuildID    string    `db:"guild_id"`
	ID         string    `db:"id"`
	EndpointID string    `db:"endpoint_id"`
	EventID    string    `db:"event_id"`
	Attempts   int       `db:"attempts"`
	Step       int       `db:"step"`
	LeaseGen   int       `db:"lease_gen"`
	Expired    bool      `db:"expired"` // an earlier lease ran out: its worker died or froze
	More       bool      `db:"more"`    // the endpoint has further rows that are due
	Type       string    `db:"type"`
	OccurredAt time.Time `db:"occurred_at"`
	Payload    []byte    `db:"payload"`
	URL        *string   `db:"url"`
	Enabled    *bool     `db:"enabled"`
	Secret     []byte    `db:"secret"`
	OldSecrets []byte    `db:"old_secrets"`
	Failures   int       `db:"failures"`
	Now        time.Time `db:"now"`
}

// allowance is what a node's own sends leave of an endpoint's slots.
type allowance struct {
	Busy int `json:"busy"` // sends under way
	Most int `json:"most"` // sends allowed, if the endpoint does not fail
}

// claim leases up to limit due deliveries, the oldest of each endpoint first
// and the endpoints in turn, so that none waits behind another's backlog.
// Endpoints that are blocked, quiet or at their allowance are passed over; an
// endpoint not named in known may have one send. At most suspects rows are of
// endpoints whose last attempt failed. Rows of endpoints that are disabled or
// gone are claimed as well, to be settled without a send.
//
// The commit does not wait for the disk: a lease that a crash of the database
// forgets is only a delivery that is made twice, under one id.
//
// The hops walk the index of pending rows from endpoint to endpoint, two probes
// each: neither settled rows nor the length of a backlog count.
func claim(ctx context.Context, tx *db.Tx, now *time.Time, lease time.Duration, known map[string]allowance, limit, suspects int) ([]claimed, error) {
	in, err := json.Marshal(known)
	if err != nil {
		return nil, fmt.Errorf("render what is under way: %w", err)
	}
	var rows []claimed
	err = tx.SelectContext(ctx, &rows, `
		WITH RECURSIVE hop AS (
			(
				SELECT guild_id, endpoint_id
				FROM webhook_deliveries
				WHERE state = 'pending'
				ORDER BY guild_id, endpoint_id
				LIMIT 1
			)
			UNION ALL
			SELECT next.guild_id, next.endpoint_id
			FROM hop
			CROSS JOIN LATERAL (
				SELECT d.guild_id, d.endpoint_id
				FROM webhook_deliveries d
				WHERE d.state = 'pending' AND (d.guild_id, d.endpoint_id) > (hop.guild_id, hop.endpoint_id)
				ORDER BY d.guild_id, d.endpoint_id
				LIMIT 1
			) next
		), lane AS MATERIALIZED (
			SELECT hop.guild_id, hop.endpoint_id, coalesce(h.failures, 0) > 0 AS suspect,
			       CASE WHEN h.failures > 0 THEN 1 ELSE coalesce((k.value ->> 'most')::int, 1) END
			         - coalesce((k.value ->> 'busy')::int, 0) AS free
			FROM hop
			LEFT JOIN webhook_health h ON h.guild_id = hop.guild_id AND h.endpoint_id = hop.endpoint_id
			LEFT JOIN jsonb_each($2::jsonb) k ON k.key = hop.endpoint_id
			WHERE coalesce(h.blocked_until <= coalesce($1::timestamptz, now()), true)
			  AND coalesce(h.quiet_until <= coalesce($1::timestamptz, now()), true)
		), due AS MATERIALIZED (
			SELECT lane.guild_id, lane.suspect, lane.free, d.id, d.due_at, d.expired, d.turn
			FROM lane
			CROSS JOIN LATERAL (
				SELECT o.id, o.due_at, o.expired, row_number() OVER (ORDER BY o.due_at, o.id) AS turn
				FROM (
					SELECT w.id, w.due_at, w.lease_until IS NOT NULL AS expired
					FROM webhook_deliveries w
					WHERE w.state = 'pending' AND w.guild_id = lane.guild_id AND w.endpoint_id = lane.endpoint_id
					  AND w.due_at <= coalesce($1::timestamptz, now())
					  AND (w.lease_until IS NULL OR w.lease_until <= coalesce($1::timestamptz, now()))
					ORDER BY w.due_at, w.id
					LIMIT greatest(lane.free, 0)
					FOR UPDATE SKIP LOCKED
				) o
			) d
			WHERE lane.free > 0
		), pick AS (
			SELECT guild_id, id, free, expired
			FROM (
				SELECT due.*, row_number() OVER (PARTITION BY suspect ORDER BY turn, due_at, id) AS place
				FROM due
			) placed
			WHERE NOT suspect OR place <= $4
			ORDER BY turn, due_at, id
			LIMIT $3
		), leased AS (
			UPDATE webhook_deliveries d
			SET lease_until = coalesce($1::timestamptz, now()) + $5 * interval '1 second', lease_gen = d.lease_gen + 1
			FROM pick
			WHERE d.guild_id = pick.guild_id AND d.id = pick.id
			RETURNING d.guild_id, d.id, d.endpoint_id, d.event_id, d.attempts, d.step, d.lease_gen, pick.expired, pick.free
		)
		SELECT l.guild_id, l.id, l.endpoint_id, l.event_id, l.attempts, l.step, l.lease_gen, l.expired,
		       EXISTS (
		           SELECT FROM webhook_deliveries w
		           WHERE w.state = 'pending' AND w.guild_id = l.guild_id AND w.endpoint_id = l.endpoint_id
		             AND w.due_at <= coalesce($1::timestamptz, now())
		             AND (w.lease_until IS NULL OR w.lease_until <= coalesce($1::timestamptz, now()))
		           ORDER BY w.due_at, w.id
		           OFFSET l.free
		       ) AS more,
		       ev.type, ev.occurred_at, ev.payload, e.url, e.enabled, e.secret, e.old_secrets,
		       coalesce(h.failures, 0) AS failures, coalesce($1::timestamptz, now()) AS now
		FROM leased l
		JOIN set_config('synchronous_commit', 'off', true) AS quick ON quick = 'off'
		JOIN webhook_events ev ON ev.guild_id = l.guild_id AND ev.id = l.event_id
		LEFT JOIN webhook_endpoints e ON e.guild_id = l.guild_id AND e.id = l.endpoint_id
		LEFT JOIN webhook_health h ON h.guild_id = l.guild_id AND h.endpoint_id = l.endpoint_id`,
		now, string(in), limit, suspects, lease.Seconds())
	if err != nil {
		return nil, fmt.Errorf("claim deliveries: %w", err)
	}
	return rows, nil
}

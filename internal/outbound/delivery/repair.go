package delivery

import (
	"context"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// followsWithin is how soon the schedule of a closed endpoint is due while something
// waits for it, with time to spare. A delivery that is due later is not found in its
// time.
const followsWithin = "5 s"

// repairWalk is where the next repair begins.
type repairWalk struct{ after endpointID }

// repair compares a chunk of the schedules with the endpoints they are of and
// with what is queued, and mends what differs. Nodes of the release before leave
// such rows, which run beside this one while it is rolled out.
func (d *Deliverer) repair(ctx context.Context, walk *repairWalk) error {
	type compared struct {
		backlog
		Differs bool `db:"differs"`
		Late    bool `db:"late"`
	}
	rows, err := db.Select[compared](ctx, d.db.Reader(), `
		SELECT s.guild_id, s.endpoint_id,
		       s.disposition <> CASE
		           WHEN e.enabled AND e.delivery = 'pull' THEN 'pull'
		           WHEN e.enabled THEN 'send'
		           WHEN e.enabled IS NULL THEN 'drop'
		           ELSE 'hold'
		       END AS differs,
		       CASE
		           WHEN s.disposition = 'pull' THEN false
		           WHEN s.disposition = 'send' THEN coalesce(s.next_due, 'infinity') > now() AND coalesce((
		               SELECT greatest(w.due_at, s.not_before)
		               FROM webhook_deliveries w
		               WHERE w.state = 'pending' AND w.guild_id = s.guild_id AND w.endpoint_id = s.endpoint_id
		                 AND w.lease_until IS NULL AND NOT w.fresh
		               ORDER BY w.due_at, w.id
		               LIMIT 1) < coalesce(s.next_due, 'infinity'), false)
		           ELSE coalesce(s.next_due, 'infinity') > now() + interval '`+followsWithin+`' AND (s.disposition = 'drop' OR EXISTS (
		               SELECT FROM webhook_deliveries w
		               WHERE w.state = 'pending' AND w.guild_id = s.guild_id AND w.endpoint_id = s.endpoint_id))
		       END AS late
		FROM webhook_schedule s
		LEFT JOIN webhook_endpoints e ON e.guild_id = s.guild_id AND e.id = s.endpoint_id
		WHERE (s.guild_id, s.endpoint_id) > ($1, $2)
		ORDER BY s.guild_id, s.endpoint_id
		LIMIT $3`, walk.after.guild, walk.after.endpoint, chunk)
	if err != nil {
		return fault.Wrap(err, "compare schedules")
	}
	walk.after = endpointID{}
	if len(rows) == chunk {
		walk.after = endpointID{rows[chunk-1].GuildID, rows[chunk-1].EndpointID}
	}
	for _, r := range rows {
		if !r.Differs && !r.Late {
			continue
		}
		if err := d.mend(ctx, r.backlog); err != nil {
			return err
		}
	}
	return nil
}

// nextWaiting steps through the endpoints after ($1, $2) for which something waits in
// a state, reading one index entry of each, and keeps those without a schedule.
func nextWaiting(state string) string {
	next := func(after string) string {
		return `
				SELECT w.guild_id, w.endpoint_id
				FROM webhook_deliveries w
				WHERE w.state = '` + state + `' AND (w.guild_id, w.endpoint_id) > ` + after + `
				ORDER BY w.guild_id, w.endpoint_id
				LIMIT 1`
	}
	return `
		WITH RECURSIVE waiting AS (
			SELECT x.guild_id, x.endpoint_id, 1 AS n
			FROM (` + next(`($1, $2)`) + `
			) x
			UNION ALL
			SELECT x.guild_id, x.endpoint_id, o.n + 1
			FROM waiting o
			CROSS JOIN LATERAL (` + next(`(o.guild_id, o.endpoint_id)`) + `
			) x
			WHERE o.n < $3
		)
		SELECT o.guild_id, o.endpoint_id, s.lane IS NOT NULL AS known
		FROM waiting o
		LEFT JOIN LATERAL (
			SELECT s.lane
			FROM webhook_schedule s
			WHERE s.guild_id = o.guild_id AND s.endpoint_id = o.endpoint_id
			LIMIT 1
		) s ON true
		ORDER BY o.guild_id, o.endpoint_id`
}

// waitingAcross is nextWaiting where the tables are distributed by guild: each
// machine reads all that waits in the state.
func waitingAcross(state string) string {
	return `
		SELECT DISTINCT w.guild_id, w.endpoint_id, s.endpoint_id IS NOT NULL AS known
		FROM webhook_deliveries w
		LEFT JOIN webhook_schedule s ON s.guild_id = w.guild_id AND s.endpoint_id = w.endpoint_id
		WHERE w.state = '` + state + `' AND (w.guild_id, w.endpoint_id) > ($1, $2)
		ORDER BY w.guild_id, w.endpoint_id
		LIMIT $3`
}

// findStrays makes the schedules that are missing of endpoints for which something
// is queued or held. Nothing else would lead there: a look goes by schedules, and
// finds fresh deliveries and leases that have run out only.
func (d *Deliverer) findStrays(ctx context.Context) error {
	waiting := nextWaiting
	if d.oneGuild {
		waiting = waitingAcross
	}
	for _, state := range []string{StatePending, StateHeld} {
		after := endpointID{}
		for ctx.Err() == nil {
			found, err := db.Select[struct {
				backlog
				Known bool `db:"known"`
			}](ctx, d.db.Reader(), waiting(state), after.guild, after.endpoint, chunk)
			if err != nil {
				return fault.Wrap(err, "look for endpoints without a schedule")
			}
			for _, e := range found {
				if e.Known {
					continue
				}
				d.log.Warn("deliveries wait for a webhook endpoint that had no schedule", "guild", e.GuildID, "endpoint", e.EndpointID)
				if err := d.mend(ctx, e.backlog); err != nil {
					return err
				}
			}
			if len(found) < chunk {
				break
			}
			last := found[len(found)-1]
			after = endpointID{last.GuildID, last.EndpointID}
		}
	}
	return nil
}

// mend gives an endpoint's schedule the disposition that the endpoint has, if it
// has another or there is none, and makes it due.
func (d *Deliverer) mend(ctx context.Context, b backlog) error {
	return d.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		disposition := "drop"
		enabled, err := db.Get[bool](ctx, tx, `
			SELECT enabled FROM webhook_endpoints
			WHERE guild_id = $1 AND id = $2
			FOR NO KEY UPDATE`, b.GuildID, b.EndpointID)
		switch {
		case db.Missing(err):
		case err != nil:
			return fault.Wrap(err, "lock endpoint", b.EndpointID)
		case enabled:
			disposition = "send"
		default:
			disposition = "hold"
		}
		n, err := db.Exec(ctx, tx, `
			UPDATE webhook_schedule
			SET next_due = least(next_due, now()), urgent = urgent AND $3 <> 'drop'
			WHERE guild_id = $1 AND endpoint_id = $2 AND disposition = $3`, b.GuildID, b.EndpointID, disposition)
		if err != nil {
			return fault.Wrap(err, "make endpoint", b.EndpointID, "due")
		}
		if n > 0 {
			return nil
		}
		return dispose(ctx, tx, b.GuildID, b.EndpointID, disposition)
	})
}

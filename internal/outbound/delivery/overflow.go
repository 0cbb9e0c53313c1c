package delivery

import (
	"context"
	"slices"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// MaxWaiting is the maximum number of waiting deliveries for an endpoint, or for a stream in one
// guild: four deliveries a second for three days. Beyond the maximum, the oldest deliveries are
// deleted, and recording events continues. The log of an endpoint keeps as many completed
// deliveries.
const MaxWaiting = 1_000_000

const (
	overflowInterval = time.Minute
	logInterval      = 10 * time.Minute

	// overflowStep bounds the deliveries of one endpoint that one pass deletes.
	overflowStep = 100_000
)

// full is an endpoint, or a stream in one guild, with more rows than the maximum.
type full struct {
	GuildID string `db:"guild_id"`
	ID      string `db:"id"`
	Excess  int    `db:"excess"`
}

// overflowing describes one kind of rows that have a maximum.
type overflowing struct {
	index []string // indexes whose estimated sizes decide whether to count at all
	find  string   // query for the holders with more than $1 rows
	ids   string   // query for the oldest $3 rows of holder $2 of guild $1
	drop  string   // statement that deletes rows $3 of holder $2 of guild $1 at $4, and returns when the newest of their events happened
}

// The oldest deliveries have the lowest ids, because an id begins with the instant of the event. A
// delivery that a worker is sending is not deleted. An event is deleted with its last delivery.
var (
	waitingPushed = overflowing{
		index: []string{"webhook_deliveries_pending", "webhook_deliveries_held"},
		find: `
			SELECT guild_id, endpoint_id AS id, count(*) - $1 AS excess
			FROM webhook_deliveries
			WHERE state IN ('pending', 'held')
			GROUP BY guild_id, endpoint_id
			HAVING count(*) > $1`,
		ids: `
			SELECT id
			FROM webhook_deliveries
			WHERE guild_id = $1 AND endpoint_id = $2 AND state IN ('pending', 'held') AND (lease_until IS NULL OR lease_until <= now())
			ORDER BY id
			LIMIT $3`,
		drop: dropDeliveries(`d.state IN ('pending', 'held') AND (d.lease_until IS NULL OR d.lease_until <= $4)`, `, counted AS (
			INSERT INTO webhook_hours AS h (guild_id, endpoint_id, hour, outcome, deliveries, last_at)
			SELECT home.id, gone.endpoint_id, date_trunc('hour', $4::timestamptz), 'failed', count(*), $4::timestamptz
			FROM gone
			JOIN guilds home ON home.id = $1
			GROUP BY home.id, gone.endpoint_id
			`+addToHour+`
		), noted AS (
			UPDATE webhook_schedule s
			SET overflowed_at = $4, complete_since = CASE WHEN s.complete_since IS NOT NULL THEN greatest(s.complete_since, newest.behind) END
			FROM (SELECT max(event_at) + interval '1 millisecond' AS behind FROM gone) newest
			WHERE s.guild_id = $1 AND s.endpoint_id = $2 AND newest.behind IS NOT NULL
		)`),
	}
	logged = overflowing{
		index: []string{"webhook_deliveries_log"},
		find: `
			SELECT guild_id, endpoint_id AS id, count(*) - $1 AS excess
			FROM webhook_deliveries
			WHERE state IN ('delivered', 'failed')
			GROUP BY guild_id, endpoint_id
			HAVING count(*) > $1`,
		ids: `
			SELECT id
			FROM webhook_deliveries
			WHERE guild_id = $1 AND endpoint_id = $2 AND state IN ('delivered', 'failed')
			ORDER BY created_at, id
			LIMIT $3`,
		drop: dropDeliveries(`d.state IN ('delivered', 'failed') AND $4::timestamptz IS NOT NULL`, ``),
	}
	waitingStreamed = overflowing{
		index: []string{"stream_deliveries_due"},
		find: `
			SELECT guild_id, stream_id AS id, count(*) - $1 AS excess
			FROM stream_deliveries
			GROUP BY guild_id, stream_id
			HAVING count(*) > $1`,
		ids: `
			SELECT event_id AS id
			FROM stream_deliveries
			WHERE guild_id = $1 AND stream_id = $2
			ORDER BY event_id
			LIMIT $3`,
		drop: `
			WITH gone AS (
				DELETE FROM stream_deliveries d
				WHERE d.guild_id = $1 AND d.stream_id = $2 AND d.event_id = ANY ($3) AND $4::timestamptz IS NOT NULL
				RETURNING d.event_id, d.event_at
			), forgotten AS (
				DELETE FROM webhook_events v
				WHERE v.guild_id = $1 AND v.id IN (SELECT event_id FROM gone)
				  AND NOT EXISTS (SELECT FROM webhook_deliveries d WHERE d.guild_id = $1 AND d.event_id = v.id)
				  AND NOT EXISTS (SELECT FROM stream_deliveries w WHERE w.guild_id = $1 AND w.event_id = v.id AND w.stream_id <> $2)
			)
			SELECT max(event_at) FROM gone`,
	}
)

// dropDeliveries returns a statement that deletes the deliveries $3 of an endpoint for which
// condition holds, with their attempts, and each event that has no other delivery. steps follow the
// CTE gone, which has a row for each deleted delivery.
func dropDeliveries(condition, steps string) string {
	return `
			WITH gone AS (
				DELETE FROM webhook_deliveries d
				WHERE d.guild_id = $1 AND d.endpoint_id = $2 AND d.id = ANY ($3) AND ` + condition + `
				RETURNING d.id, d.endpoint_id, d.event_id, d.event_at
			), attempts AS (
				DELETE FROM webhook_attempts a
				WHERE a.guild_id = $1 AND a.delivery_id IN (SELECT id FROM gone)
			), forgotten AS (
				DELETE FROM webhook_events v
				WHERE v.guild_id = $1 AND v.id IN (SELECT event_id FROM gone)
				  AND NOT EXISTS (
					SELECT FROM webhook_deliveries d WHERE d.guild_id = $1 AND d.event_id = v.id AND d.id NOT IN (SELECT id FROM gone))
				  AND NOT EXISTS (SELECT FROM stream_deliveries w WHERE w.guild_id = $1 AND w.event_id = v.id)
			)` + steps + `
			SELECT max(event_at) FROM gone`
}

// deleteOverflow deletes the oldest waiting deliveries of each endpoint and stream with more than
// MaxWaiting, and moves complete_since to the newest deleted event.
func (d *Deliverer) deleteOverflow(ctx context.Context) error {
	if err := d.bound(ctx, waitingPushed, d.overflowed); err != nil {
		return fault.Wrap(err, "delete what has waited for longest")
	}
	err := d.bound(ctx, waitingStreamed, func(ctx context.Context, tx *db.Tx, f full, newest time.Time) error {
		_, err := db.Exec(ctx, tx, `
			UPDATE bot_streams
			SET complete_since = greatest(complete_since, $2::timestamptz + interval '1 millisecond')
			WHERE id = $1 AND complete_since IS NOT NULL`, f.ID, newest)
		if err != nil {
			return err
		}
		return d.overflowed(ctx, tx, f, newest)
	})
	return fault.Wrap(err, "delete what has waited for longest in streams")
}

// overflowed logs that an endpoint, or a stream in one guild, has lost events, and sets the metric.
func (d *Deliverer) overflowed(_ context.Context, _ *db.Tx, f full, newest time.Time) error {
	d.metrics.overflow.WithLabelValues(f.GuildID, f.ID).Set(float64(d.time().Unix()))
	if d.quietly.Due("overflow "+f.ID, time.Now(), time.Hour) {
		d.log.Warn("too many deliveries waited, and the oldest were deleted", "guild", f.GuildID, "endpoint", f.ID, "most", d.most, "lost_until", newest)
	}
	return nil
}

// shortenLogs deletes the oldest completed deliveries of endpoints with more than MaxWaiting.
func (d *Deliverer) shortenLogs(ctx context.Context) error {
	err := d.bound(ctx, logged, func(context.Context, *db.Tx, full, time.Time) error { return nil })
	return fault.Wrap(err, "shorten the logs of endpoints")
}

// bound deletes the oldest rows of each holder with more rows than the maximum. dropped is called
// in the transaction of each deletion. Rows are counted only if the database estimates that the
// table has enough rows for one holder to exceed the maximum.
func (d *Deliverer) bound(ctx context.Context, o overflowing, dropped func(ctx context.Context, tx *db.Tx, f full, newest time.Time) error) error {
	rows, err := db.Get[float64](ctx, d.db.Reader(), `SELECT coalesce(sum(reltuples), 0)::float8 FROM pg_class WHERE relname = ANY ($1)`, db.Array(o.index))
	if err != nil || d.most == MaxWaiting && rows < MaxWaiting*3/4 && !d.db.Distributed() {
		return err
	}
	found, err := db.Select[full](ctx, d.db.Reader(), o.find, d.most)
	if err != nil {
		return err
	}
	for _, f := range found {
		ids, err := db.Select[string](ctx, d.db.Reader(), o.ids, f.GuildID, f.ID, min(f.Excess, overflowStep))
		if err != nil {
			return err
		}
		for part := range slices.Chunk(ids, chunk) {
			err := d.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
				if err := planByIndex(ctx, tx); err != nil {
					return err
				}
				at := d.now()
				if at == nil {
					now, err := tx.Now(ctx)
					if err != nil {
						return err
					}
					at = &now
				}
				newest, err := db.Get[*time.Time](ctx, tx, o.drop, f.GuildID, f.ID, db.Array(part), *at)
				if err != nil || newest == nil {
					return err
				}
				return dropped(ctx, tx, f, *newest)
			})
			if err != nil {
				return fault.Wrap(err, "guild", f.GuildID)
			}
		}
	}
	return nil
}

package delivery

import (
	"context"
	"fmt"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

const (
	// keep is the retention of an event and of the attempts of its deliveries. A delivery that is
	// still waiting at the end of keep fails. The deliveries are kept for expiredFor longer.
	keep       = 30 * 24 * time.Hour
	expiredFor = 24 * time.Hour

	// lastCall is the time before the deletion of an event in which no further delivery of the
	// event is stored: longer than any unit of work takes, because no foreign key protects the
	// event.
	lastCall = time.Hour
)

// prune deletes what is older than its retention, by the database's clock: first prune fails the
// deliveries that were held for too long, then deletes each kind of rows at its own age, so that a
// query does not read rows that stay. One node at a time runs prune.
func (d *Deliverer) prune(ctx context.Context) error {
	for _, step := range []func(context.Context, *db.Tx, *time.Time) (int, error){expireHeld, pruneAttempts, pruneDeliveries, pruneStreams, pruneEvents, pruneHours} {
		err := d.repeat(ctx, func(ctx context.Context, tx *db.Tx) (int, error) {
			mine, err := db.Get[bool](ctx, tx, `SELECT pg_try_advisory_xact_lock(hashtext('guildhall: prune webhooks'))`)
			if err != nil || !mine {
				return 0, err
			}
			return step(ctx, tx, d.now())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// expireHeld fails held deliveries whose events are too old.
func expireHeld(ctx context.Context, tx *db.Tx, now *time.Time) (int, error) {
	n, err := byGuild(ctx, tx, func(guild string, ids []string) error { return expire(ctx, tx, guild, ids, StateHeld, now) }, `
		SELECT guild_id, id
		FROM webhook_deliveries
		WHERE state = 'held' AND event_at < coalesce($1::timestamptz, now()) - $2 * interval '1 second'
		ORDER BY event_at
		LIMIT $3`, now, keep.Seconds())
	return n, fault.Wrap(err, "give up what is held for too long")
}

// expire fails the given deliveries of a guild that still have the given state.
func expire(ctx context.Context, tx *db.Tx, guild string, ids []string, state string, now *time.Time) error {
	_, err := db.Exec(ctx, tx, `
		WITH instant AS MATERIALIZED (SELECT coalesce($3::timestamptz, now()) AS at),
		d AS (
			UPDATE webhook_deliveries d
			SET state = 'failed', completed_at = instant.at, error = $4
			FROM instant
			WHERE d.guild_id = $1 AND d.id = ANY ($2) AND CASE WHEN d.state = $5 THEN true END
			RETURNING d.endpoint_id, d.completed_at
		), counted AS (
			INSERT INTO webhook_hours AS h (guild_id, endpoint_id, hour, outcome, deliveries, last_at)
			SELECT home.id, d.endpoint_id, date_trunc('hour', d.completed_at), 'failed', count(*), max(d.completed_at)
			FROM d JOIN guilds home ON home.id = $1
			GROUP BY home.id, d.endpoint_id, date_trunc('hour', d.completed_at)
			ORDER BY d.endpoint_id
			`+addToHour+`
		)
		SELECT count(*) FROM d`,
		guild, db.Array(ids), now, errorExpired, state)
	return err
}

func pruneAttempts(ctx context.Context, tx *db.Tx, now *time.Time) (int, error) {
	return db.Prune(ctx, tx, db.Expiry{Table: "webhook_attempts", Key: "delivery_id, number", Since: "started_at", Kept: interval(keep)}, now, chunk)
}

func pruneDeliveries(ctx context.Context, tx *db.Tx, now *time.Time) (int, error) {
	return db.Prune(ctx, tx, db.Expiry{Table: "webhook_deliveries", Key: "id", Since: "event_at", Kept: interval(keep + expiredFor)}, now, chunk)
}

// pruneStreams deletes events of streams that nobody has fetched for too long.
func pruneStreams(ctx context.Context, tx *db.Tx, now *time.Time) (int, error) {
	return db.Prune(ctx, tx, db.Expiry{Table: "stream_deliveries", Key: "stream_id, event_id", Since: "event_at", Kept: interval(keep)}, now, chunk)
}

func pruneHours(ctx context.Context, tx *db.Tx, now *time.Time) (int, error) {
	return db.Prune(ctx, tx, db.Expiry{Table: "webhook_hours", Key: "endpoint_id, hour, outcome", Since: "hour", Kept: interval(keep)}, now, chunk)
}

func pruneEvents(ctx context.Context, tx *db.Tx, now *time.Time) (int, error) {
	return db.Prune(ctx, tx, db.Expiry{Table: "webhook_events", Key: "id", Since: "occurred_at", Kept: interval(keep)}, now, chunk)
}

// interval returns a duration in the notation of Postgres.
func interval(d time.Duration) string { return fmt.Sprintf("%d seconds", int64(d.Seconds())) }

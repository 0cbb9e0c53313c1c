package webhooks

import (
	"context"
	"fmt"
	"time"

	"guildhall/internal/db"
)

const (
	// keep is how long attempts, settled deliveries and their events stay.
	keep = 30 * 24 * time.Hour

	pruneEvery  = 10 * time.Minute
	tidyEvery   = 5 * time.Second
	gaugesEvery = 15 * time.Second

	// chunk bounds the rows that one chore touches in one transaction.
	chunk = 1000
)

// choreLoop does what has time: it writes put-aside log rows, releases what was
// held for an endpoint that is enabled, reads the gauges and prunes the log.
func (d *Deliverer) choreLoop(ctx context.Context) {
	var pruned, tidied, measured time.Time
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		now := time.Now()
		if now.Sub(measured) >= gaugesEvery {
			measured = now
			d.chore(ctx, "read the webhook gauges", d.measure)
		}
		if now.Sub(tidied) >= tidyEvery {
			tidied = now
			d.chore(ctx, "tidy webhook deliveries", d.tidy)
		}
		if now.Sub(pruned) >= pruneEvery {
			pruned = now
			d.chore(ctx, "prune the webhook log", d.prune)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (d *Deliverer) chore(ctx context.Context, name string, do func(context.Context) error) {
	if err := do(ctx); err != nil && ctx.Err() == nil {
		d.log.Warn(name, "error", err)
	}
}

// repeat runs one step in transactions of their own until it has nothing left
// to do.
func (d *Deliverer) repeat(ctx context.Context, step func(context.Context, *db.Tx) (int, error)) error {
	for ctx.Err() == nil {
		n := 0
		err := d.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			var err error
			n, err = step(ctx, tx)
			return err
		})
		if err != nil || n < chunk {
			return err
		}
	}
	return ctx.Err()
}

func (d *Deliverer) tidy(ctx context.Context) error {
	err := d.repeat(ctx, func(ctx context.Context, tx *db.Tx) (int, error) { return moveUnlogged(ctx, tx, chunk) })
	if err != nil {
		return err
	}
	return d.repeat(ctx, releaseStragglers)
}

func (d *Deliverer) prune(ctx context.Context) error {
	before := d.time().Add(-keep)
	for _, step := range []func(context.Context, *db.Tx, time.Time) (int, error){abandonHeld, pruneAttempts, pruneDeliveries, pruneEvents} {
		err := d.repeat(ctx, func(ctx context.Context, tx *db.Tx) (int, error) { return step(ctx, tx, before) })
		if err != nil {
			return err
		}
	}
	return nil
}

// releaseStragglers makes deliveries due that are held though their endpoint is
// enabled: it was enabled between their attempt and its settling.
func releaseStragglers(ctx context.Context, tx *db.Tx) (int, error) {
	res, err := tx.ExecContext(ctx, `
		UPDATE webhook_deliveries d
		SET state = 'pending', due_at = now(), step = 0
		FROM (
			SELECT h.guild_id, h.id
			FROM webhook_endpoints e
			CROSS JOIN LATERAL (
				SELECT w.guild_id, w.id
				FROM webhook_deliveries w
				WHERE w.guild_id = e.guild_id AND w.endpoint_id = e.id AND w.state = 'held'
				ORDER BY w.id
				LIMIT $1
				FOR UPDATE SKIP LOCKED
			) h
			WHERE e.enabled
			LIMIT $1
		) stray
		WHERE d.guild_id = stray.guild_id AND d.id = stray.id`, chunk)
	return affected(res, err, "release held deliveries")
}

// abandonHeld gives up what is held for an endpoint that no longer exists.
func abandonHeld(ctx context.Context, tx *db.Tx, _ time.Time) (int, error) {
	res, err := tx.ExecContext(ctx, `
		UPDATE webhook_deliveries d
		SET state = 'failed', completed_at = now()
		FROM (
			SELECT h.guild_id, h.id
			FROM webhook_deliveries h
			WHERE h.state = 'held'
			  AND NOT EXISTS (SELECT FROM webhook_endpoints e WHERE e.guild_id = h.guild_id AND e.id = h.endpoint_id)
			LIMIT $1
			FOR UPDATE SKIP LOCKED
		) stray
		WHERE d.guild_id = stray.guild_id AND d.id = stray.id`, chunk)
	return affected(res, err, "give up deliveries of deleted endpoints")
}

func pruneAttempts(ctx context.Context, tx *db.Tx, before time.Time) (int, error) {
	res, err := tx.ExecContext(ctx, `
		DELETE FROM webhook_attempts
		WHERE (guild_id, delivery_id, number) IN (
			SELECT guild_id, delivery_id, number
			FROM webhook_attempts
			WHERE started_at < $1
			ORDER BY started_at
			LIMIT $2
			FOR UPDATE SKIP LOCKED
		)`, before, chunk)
	return affected(res, err, "prune attempts")
}

// pruneDeliveries forgets deliveries that were settled before the given time.
// What is pending or held stays, however old it is.
func pruneDeliveries(ctx context.Context, tx *db.Tx, before time.Time) (int, error) {
	res, err := tx.ExecContext(ctx, `
		DELETE FROM webhook_deliveries
		WHERE (guild_id, id) IN (
			SELECT guild_id, id
			FROM webhook_deliveries
			WHERE completed_at < $1
			ORDER BY completed_at
			LIMIT $2
			FOR UPDATE SKIP LOCKED
		)`, before, chunk)
	return affected(res, err, "prune deliveries")
}

// pruneEvents forgets events of before the given time that no delivery names.
func pruneEvents(ctx context.Context, tx *db.Tx, before time.Time) (int, error) {
	res, err := tx.ExecContext(ctx, `
		DELETE FROM webhook_events
		WHERE (guild_id, id) IN (
			SELECT ev.guild_id, ev.id
			FROM webhook_events ev
			WHERE ev.occurred_at < $1
			  AND NOT EXISTS (SELECT FROM webhook_deliveries d WHERE d.guild_id = ev.guild_id AND d.event_id = ev.id)
			ORDER BY ev.occurred_at
			LIMIT $2
			FOR UPDATE SKIP LOCKED
		)`, before, chunk)
	return affected(res, err, "prune events")
}

type rowsAffected interface{ RowsAffected() (int64, error) }

func affected(res rowsAffected, err error, what string) (int, error) {
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	n, err := res.RowsAffected()
	return int(n), err
}

package delivery

import (
	"context"
	"errors"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/logging"
)

const (
	followInterval  = time.Second
	logMoveInterval = 5 * time.Second
	gaugeInterval   = 15 * time.Second
	pruneInterval   = time.Minute
	growthInterval  = time.Second

	unfetchedInterval = time.Minute

	// chunk bounds the rows that one step changes in one transaction.
	chunk = 1000

	// smallTable is the number of rows up to which the plan for a table does not matter.
	smallTable = 100

	// roughly makes ANALYZE sample a tenth of the rows that autovacuum samples.
	roughly = `set_config('default_statistics_target', '10', true)`
)

// maintenanceLoop does the work that is not urgent. One goroutine updates the deliveries of
// endpoints that were disabled, enabled or deleted, and another deletes old log rows, so that a
// large backlog does not stop the retention.
func (d *Deliverer) maintenanceLoop(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.every(ctx, followInterval, "follow what was decided about endpoints", d.follow)
	}()
	next := make(map[string]time.Time)
	d.every(ctx, time.Second, "keep the webhook log", func(ctx context.Context) error {
		var errs []error
		for _, task := range []struct {
			name     string
			interval time.Duration
			do       func(context.Context) error
		}{
			{"gauges", gaugeInterval, d.measure},
			{"log", logMoveInterval, d.moveLog},
			{"prune", pruneInterval, d.prune},
			{"unfetched", unfetchedInterval, d.disableUnfetched},
			{"growth", growthInterval, d.countRows},
			{"overflow", overflowInterval, d.deleteOverflow},
			{"long logs", logInterval, d.shortenLogs},
		} {
			if now := time.Now(); !now.Before(next[task.name]) {
				next[task.name] = now.Add(task.interval)
				errs = append(errs, task.do(ctx))
			}
		}
		return errors.Join(errs...)
	})
	<-done
}

// countRows runs ANALYZE on the tables that have doubled in size since the last ANALYZE. A prepared
// statement keeps its plan until the table has new statistics, and autovacuum runs once a minute:
// in between, a plan made for an empty table reads the whole of a full table for each looked-up
// row. Smaller tables are skipped.
func (d *Deliverer) countRows(ctx context.Context) error {
	grown, err := db.Select[string](ctx, d.db.Reader(), `
		SELECT s.relname
		FROM pg_stat_user_tables s
		JOIN pg_class c ON c.oid = s.relid
		WHERE s.relid IN ('webhook_deliveries'::regclass, 'webhook_events'::regclass, 'webhook_attempts'::regclass)
		  AND s.n_live_tup > 2 * greatest(c.reltuples, $1)`, smallTable)
	if err != nil {
		return fault.Wrap(err, "look for tables that have grown")
	}
	for _, table := range grown {
		err := d.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			if err := plan(ctx, tx, roughly); err != nil {
				return err
			}
			_, err := db.Exec(ctx, tx, `ANALYZE (SKIP_LOCKED) `+table)
			return err
		})
		if err != nil {
			return fault.Wrap(err, "analyze", table)
		}
	}
	return nil
}

// every calls do after every interval until ctx ends, and logs errors.
func (d *Deliverer) every(ctx context.Context, interval time.Duration, what string, do func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := do(ctx); err != nil && ctx.Err() == nil && d.quietly.Due(what, time.Now(), logging.Interval) {
			d.log.Warn(what, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// repeat runs a step, each time in a new transaction, until the step has nothing left to do.
func (d *Deliverer) repeat(ctx context.Context, step func(context.Context, *db.Tx) (int, error)) error {
	for ctx.Err() == nil {
		n := 0
		err := d.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			err := planByIndexOrder(ctx, tx)
			if err != nil {
				return err
			}
			n, err = step(ctx, tx)
			return err
		})
		if err != nil || n < chunk {
			return err
		}
	}
	return ctx.Err()
}

// backlog is an endpoint whose waiting deliveries do not yet have the state that follows from the
// endpoint's disposition.
type backlog struct {
	GuildID    string `db:"guild_id"`
	EndpointID string `db:"endpoint_id"`
}

// follow updates the waiting deliveries of endpoints that were disabled, enabled or deleted, one
// chunk for each endpoint in turn, until all deliveries are updated.
func (d *Deliverer) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		todo, err := db.Select[backlog](ctx, d.db.Reader(), `
			(
				SELECT guild_id, endpoint_id
				FROM webhook_schedule
				WHERE lane = 4 AND next_due <= coalesce($1::timestamptz, now())
				ORDER BY next_due
				LIMIT $2
			)
			UNION
			(
				SELECT guild_id, endpoint_id
				FROM webhook_schedule
				WHERE releasing
				LIMIT $2
			)`, d.now(), claimSize)
		if err != nil {
			return fault.Wrap(err, "look for backlogs to follow")
		}
		progress := false
		for _, b := range todo {
			n := 0
			err := d.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
				var err error
				n, err = followOne(ctx, tx, d.now(), b)
				return err
			})
			if err != nil {
				return err
			}
			progress = progress || n == chunk
			if n > 0 {
				d.wakeups.addAll()
			}
		}
		if !progress {
			return nil
		}
	}
	return nil
}

// followOne updates one chunk of one endpoint's deliveries, unless another worker has the lock, and
// stores when the next chunk is due. followOne returns how many deliveries were changed.
func followOne(ctx context.Context, tx *db.Tx, now *time.Time, b backlog) (int, error) {
	type schedule struct {
		Disposition string    `db:"disposition"`
		Releasing   bool      `db:"releasing"`
		Now         time.Time `db:"now"`
	}
	s, err := db.Get[schedule](ctx, tx, `
		SELECT disposition, releasing, coalesce($3::timestamptz, clock_timestamp()) AS now
		FROM webhook_schedule
		WHERE guild_id = $1 AND endpoint_id = $2
		FOR NO KEY UPDATE SKIP LOCKED`, b.GuildID, b.EndpointID, now)
	if db.Missing(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fault.Wrap(err, "lock the schedule of endpoint", b.EndpointID)
	}
	if s.Disposition == "send" || s.Disposition == "pull" {
		if !s.Releasing {
			return 0, nil
		}
		return release(ctx, tx, s.Now, b, s.Disposition == "pull")
	}
	return holdOrDrop(ctx, tx, s.Now, b, s.Disposition == "drop")
}

// release makes a chunk of an enabled endpoint's waiting deliveries due now and restarts their
// retry schedules: first the held deliveries, in the order of creation, then the deliveries that
// were waiting for a retry and had not been held yet. A delivery of a pull endpoint keeps its
// lease. Here and below, the statement names the rows of a chunk in an array: if the statement
// joined a subquery, a plan made while the table was small would compare every pair of rows. The
// state is tested in a CASE, as in storeResultsSQL.
func release(ctx context.Context, tx *db.Tx, now time.Time, b backlog, pull bool) (int, error) {
	n, err := db.Exec(ctx, tx, `
		UPDATE webhook_deliveries d
		SET state = 'pending', due_at = $3, step = 0, fresh = false, urgent = false, error = NULL
		WHERE d.guild_id = $1 AND CASE WHEN d.state = 'held' THEN true END AND d.id = ANY (ARRAY(
			SELECT id
			FROM webhook_deliveries
			WHERE guild_id = $1 AND endpoint_id = $2 AND state = 'held'
			ORDER BY id
			LIMIT $4))`, b.GuildID, b.EndpointID, now, chunk)
	if err != nil {
		return 0, fault.Wrap(err, "release held deliveries")
	}
	if n < chunk && !pull {
		waiting, err := db.Exec(ctx, tx, `
			UPDATE webhook_deliveries d
			SET due_at = $3, step = 0, fresh = false
			WHERE d.guild_id = $1 AND CASE WHEN d.state = 'pending' THEN d.lease_until IS NULL END AND d.id = ANY (ARRAY(
				SELECT id
				FROM webhook_deliveries
				WHERE guild_id = $1 AND endpoint_id = $2 AND state = 'pending' AND due_at > $3 AND lease_until IS NULL
				ORDER BY due_at, id
				LIMIT $4))`, b.GuildID, b.EndpointID, now, chunk-n)
		if err != nil {
			return 0, fault.Wrap(err, "release deliveries that were not held yet")
		}
		n += waiting
	}
	_, err = db.Exec(ctx, tx, `
		UPDATE webhook_schedule
		SET releasing = $4, next_due = CASE WHEN $5 AND disposition = 'send' THEN least(next_due, greatest($3, not_before)) ELSE next_due END,
		    complete_since = CASE WHEN disposition = 'pull' THEN coalesce(complete_since, $3) ELSE complete_since END
		WHERE guild_id = $1 AND endpoint_id = $2`, b.GuildID, b.EndpointID, now, n == chunk, n > 0)
	return n, fault.Wrap(err, "plan what was released for endpoint", b.EndpointID)
}

// holdOrDrop holds a chunk of a disabled endpoint's waiting deliveries, or drops a chunk of a
// deleted endpoint's waiting deliveries. A delivery that a worker is sending is left for a later
// call. When a deleted endpoint has no waiting deliveries left, holdOrDrop deletes its schedule.
func holdOrDrop(ctx context.Context, tx *db.Tx, now time.Time, b backlog, drop bool) (int, error) {
	n, err := db.Exec(ctx, tx, `
		UPDATE webhook_deliveries d
		SET state = CASE WHEN $5 THEN 'failed' ELSE 'held' END, fresh = false, urgent = false, lease_until = NULL,
		    completed_at = CASE WHEN $5 THEN $3::timestamptz END, error = CASE WHEN $5 THEN $6 ELSE d.error END
		WHERE d.guild_id = $1 AND d.id = ANY (ARRAY(
			SELECT id
			FROM webhook_deliveries
			WHERE guild_id = $1 AND endpoint_id = $2 AND state = 'pending'
			  AND (lease_until IS NULL OR lease_until <= $3) AND (NOT urgent OR cause <> 'test' OR $5)
			LIMIT $4))
		  AND CASE WHEN d.state = 'pending' THEN true END`, b.GuildID, b.EndpointID, now, chunk, drop, advice(endpointDeleted, 0, 0))
	if err != nil {
		return 0, fault.Wrap(err, "follow a disabled or deleted endpoint")
	}
	if drop && n < chunk {
		held, err := db.Exec(ctx, tx, `
			UPDATE webhook_deliveries d
			SET state = 'failed', completed_at = $3, error = $5
			WHERE d.guild_id = $1 AND CASE WHEN d.state = 'held' THEN true END AND d.id = ANY (ARRAY(
				SELECT id
				FROM webhook_deliveries
				WHERE guild_id = $1 AND endpoint_id = $2 AND state = 'held'
				LIMIT $4))`, b.GuildID, b.EndpointID, now, chunk-n, advice(endpointDeleted, 0, 0))
		if err != nil {
			return 0, fault.Wrap(err, "give up what is held for a deleted endpoint")
		}
		n += held
	}
	type remainder struct {
		Any   bool `db:"any"`
		Tests bool `db:"tests"` // test deliveries that no claim has leased, although test deliveries are sent now
	}
	left, err := db.Get[remainder](ctx, tx, `
		SELECT EXISTS (
			SELECT FROM webhook_deliveries
			WHERE guild_id = $1 AND endpoint_id = $2 AND state = 'pending') AS any,
		       EXISTS (
			SELECT FROM webhook_deliveries
			WHERE guild_id = $1 AND endpoint_id = $2 AND state = 'pending' AND urgent AND cause = 'test' AND lease_until IS NULL) AS tests`,
		b.GuildID, b.EndpointID)
	if err != nil {
		return 0, fault.Wrap(err, "look what is left for endpoint", b.EndpointID)
	}
	if drop && n < chunk && !left.Any {
		_, err = db.Exec(ctx, tx, `DELETE FROM webhook_schedule WHERE guild_id = $1 AND endpoint_id = $2`, b.GuildID, b.EndpointID)
	} else {
		var due *time.Time
		switch soon := now.Add(time.Second); {
		case n == chunk, left.Tests:
			due = &now
		case left.Any:
			due = &soon
		}
		_, err = db.Exec(ctx, tx, `
			UPDATE webhook_schedule
			SET next_due = $3, urgent = $4
			WHERE guild_id = $1 AND endpoint_id = $2`, b.GuildID, b.EndpointID, due, left.Tests && !drop)
	}
	return n, fault.Wrap(err, "plan what is left for endpoint", b.EndpointID)
}

// moveLog writes the log rows that were stored in the deliveries' own rows because the log could
// not be written.
func (d *Deliverer) moveLog(ctx context.Context) error {
	aside, err := db.Get[bool](ctx, d.db.Reader(), `SELECT EXISTS (SELECT 1 FROM webhook_deliveries WHERE unlogged IS NOT NULL)`)
	if err != nil || !aside {
		return err
	}
	return d.repeat(ctx, moveUnlogged)
}

// byGuild calls do for each guild with the ids of the deliveries that query has found
// without locks. The last parameter of the query is the maximum. byGuild returns the number of
// deliveries.
func byGuild(ctx context.Context, tx *db.Tx, do func(guild string, ids []string) error, query string, args ...any) (int, error) {
	found, err := db.Select[db.Found](ctx, tx, query, append(args, chunk)...)
	if err != nil {
		return 0, err
	}
	for guild, part := range db.ByGuild(found, func(r db.Found) string { return r.GuildID }) {
		ids := make([]string, len(part))
		for i, r := range part {
			ids[i] = r.ID
		}
		if err := do(guild, ids); err != nil {
			return 0, fault.Wrap(err, "guild", guild)
		}
	}
	return len(found), nil
}

// moveUnlogged writes the log rows of a chunk of deliveries and returns the number of deliveries.
func moveUnlogged(ctx context.Context, tx *db.Tx) (int, error) {
	n, err := byGuild(ctx, tx, func(guild string, ids []string) error {
		_, err := db.Exec(ctx, tx, `
			WITH w AS MATERIALIZED (
				SELECT w.guild_id, w.id, w.unlogged
				FROM unnest($2::text[]) AS named (id)
				JOIN webhook_deliveries w ON w.guild_id = $1 AND w.id = named.id
				WHERE w.unlogged IS NOT NULL
			), a AS (
				INSERT INTO webhook_attempts (guild_id, delivery_id, number, started_at, duration_ms, outcome, status, excerpt, error)
				SELECT home.id, r.id, r.lease_gen, r.started_at, r.duration_ms, r.outcome, r.status, r.excerpt, r.error
				FROM w JOIN guilds home ON home.id = $1
				CROSS JOIN LATERAL jsonb_to_recordset(w.unlogged) AS r (
					guild_id text, id text, lease_gen int, started_at timestamptz, duration_ms int, outcome text, status int, excerpt text, error text)
				ON CONFLICT DO NOTHING
			)
			UPDATE webhook_deliveries d
			SET unlogged = NULL
			FROM w
			WHERE d.guild_id = $1 AND d.id = w.id AND d.unlogged = w.unlogged`, guild, db.Array(ids))
		return err
	}, `
		SELECT guild_id, id
		FROM webhook_deliveries
		WHERE unlogged IS NOT NULL
		ORDER BY guild_id, id
		LIMIT $1`)
	return n, fault.Wrap(err, "write put-aside attempts")
}

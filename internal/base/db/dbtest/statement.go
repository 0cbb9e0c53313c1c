package dbtest

import (
	"context"
	"strings"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/testutil"
)

// Do runs work in a transaction. It fails the test if the transaction fails.
func Do(t testutil.Test, d *db.DB, work func(ctx context.Context, tx *db.Tx) error) {
	t.Helper()
	if err := d.Do(context.Background(), work); err != nil {
		t.Fatalf("%v", err)
	}
}

// Exec runs a statement in a transaction of its own and without a timeout, as somebody with psql
// could.
func Exec(t testutil.Test, d *db.DB, statement string, args ...any) {
	t.Helper()
	unbounded(t, d, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return fault.Wrap(err, statement)
	})
}

// unbounded runs work in a transaction without a statement timeout.
func unbounded(t testutil.Test, d *db.DB, work func(ctx context.Context, tx *db.Tx) error) {
	t.Helper()
	Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `SET LOCAL statement_timeout = 0`); err != nil {
			return err
		}
		return work(ctx, tx)
	})
}

// Prune deletes up to a thousand expired rows of each kind and returns the total.
func Prune(t testutil.Test, d *db.DB, kinds []db.Expiry) (deleted int) {
	t.Helper()
	for _, o := range kinds {
		n, err := db.PruneOf(context.Background(), d, o, 1000)
		if err != nil {
			t.Fatalf("%v", err)
		}
		deleted += n
	}
	return deleted
}

// Waiting returns the number of the database's sessions that wait for a lock. With Citus it counts
// the sessions on the workers.
func Waiting(t testutil.Test, d *db.DB) int {
	t.Helper()
	const here = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
	if d.Distributed() {
		return Value[int](t, d, `SELECT sum(result::int) FROM run_command_on_all_nodes($1)`, here)
	}
	return Value[int](t, d, here)
}

// Earlier returns the SET list of an UPDATE that moves columns into the past by an interval. It is
// written so that Citus accepts it: subtracting days from an instant depends on the session's time
// zone.
func Earlier(interval string, columns ...string) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = c + " = (" + c + " AT TIME ZONE 'UTC' - " + interval + ") AT TIME ZONE 'UTC'"
	}
	return strings.Join(list, ", ")
}

// AddGuilds creates empty guilds.
func AddGuilds(t testutil.Test, d *db.DB, ids ...string) {
	t.Helper()
	Exec(t, d, `INSERT INTO guilds (id, name, owner_id) SELECT id, 'Guild ' || id, '1' FROM unnest($1::text[]) AS id`, db.Array(ids))
}

// Fill runs statements in one transaction without a timeout.
func Fill(t testutil.Test, d *db.DB, statements ...string) {
	t.Helper()
	unbounded(t, d, func(ctx context.Context, tx *db.Tx) error {
		for _, statement := range statements {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fault.Wrap(err, statement)
			}
		}
		return nil
	})
}

// Value returns the single value that a query selects.
func Value[T any](t testutil.Test, d *db.DB, query string, args ...any) (v T) {
	t.Helper()
	if err := d.Reader().GetContext(context.Background(), &v, query, args...); err != nil {
		t.Fatalf("%v\n%s", err, query)
	}
	return v
}

// Emitted counts the stored events of a guild, with their deliveries to endpoints and to streams.
func Emitted(t testutil.Test, d *db.DB, guild string) string {
	t.Helper()
	return Value[string](t, d, `SELECT format('%s events, %s to endpoints, %s to streams',
		(SELECT count(*) FROM webhook_events WHERE guild_id = $1), (SELECT count(*) FROM webhook_deliveries WHERE guild_id = $1),
		(SELECT count(*) FROM stream_deliveries WHERE guild_id = $1))`, guild)
}

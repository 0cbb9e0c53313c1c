package delivery

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/egress"
)

// rowsRead returns how many rows of the webhook tables the transaction has read; zero on a
// coordinator, because its workers count the rows.
func rowsRead(ctx context.Context, t *testing.T, tx *db.Tx) (n int) {
	t.Helper()
	err := tx.GetContext(ctx, &n, `
		SELECT coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)
		FROM pg_stat_xact_user_tables
		WHERE relname LIKE 'webhook%'`)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// reading runs do and fails the test if Postgres has read more rows than the argument most.
func reading(ctx context.Context, t *testing.T, tx *db.Tx, what string, most int, do func() error) {
	t.Helper()
	before := rowsRead(ctx, t, tx)
	if err := do(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if n := rowsRead(ctx, t, tx) - before; n > most {
		t.Errorf("%s read %d rows, want at most %d", what, n, most)
	}
}

// The package's statements name a few rows. With thousands of endpoints and up-to-date statistics,
// each statement still reads only these rows, and no whole table.
func TestStatementsReadWhatTheyNameHoweverManyEndpointsWait(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	const waiting, due = 5000, 10
	r := w.receive(nil)
	w.exec(`INSERT INTO guilds (id, name, owner_id) SELECT 'g' || i, 'x', '1' FROM generate_series(1, $1) AS i`, waiting)
	w.exec(`
		INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
		SELECT 'g' || i, 'e' || i, $2, '{}', '\x00', '' FROM generate_series(1, $1) AS i`, waiting, r.URL)
	w.exec(`
		INSERT INTO webhook_schedule (guild_id, endpoint_id, next_due, failures, blocks, failing_since, blocked_until)
		SELECT 'g' || i, 'e' || i, now() + interval '1 hour', 5, 1, now(), now() + interval '1 hour' FROM generate_series(1, $1) AS i`, waiting)
	w.exec(`INSERT INTO webhook_events (guild_id, id, type, payload) SELECT 'g' || i, 'v' || i, 'x', '\x7b7d'
		FROM generate_series(1, $1) AS i`, waiting)
	w.exec(`
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, fresh)
		SELECT 'g' || i, 'e' || i, 'v' || i, false FROM generate_series(1, $1) AS i`, waiting)
	var of []*candidate
	for i := range due {
		guild := fmt.Sprint(900 + i)
		dbtest.AddGuilds(w.t, w.DB, guild)
		e, _ := w.add(guild, r.URL)
		w.record(guild, 3)
		of = append(of, &candidate{GuildID: guild, EndpointID: e.ID, Known: true})
	}
	w.exec(`ANALYZE`)

	d := w.deliverer()
	ctx := t.Context()
	var rows []claimed
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		var locked []schedule
		reading(ctx, t, tx, "a look", 20*due, func() error {
			_, err := pollAll(ctx, tx, nil, endpointID{}, nil)
			return err
		})
		reading(ctx, t, tx, "locking schedules", 2*due, func() (err error) {
			locked, err = lockIdle(ctx, tx, w.cfg.OneGuild, nil, of)
			return err
		})
		reading(ctx, t, tx, "taking deliveries", 20*due, func() (err error) {
			orders := make([]order, len(locked))
			for i, s := range locked {
				orders[i] = s.order(1)
			}
			rows, err = take(ctx, tx, w.cfg.OneGuild, locked[0].Now, lease, orders)
			return err
		})
		return nil
	})
	if len(rows) != due {
		t.Fatalf("claimed %d, want %d", len(rows), due)
	}
	batch := make([]result, len(rows))
	for i, c := range rows {
		batch[i] = newResult(c, d.schedule.judge(0, serverError, 0, 0), d.client.Post(ctx, r.URL, nil, nil), time.Now(), time.Millisecond)
	}
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		reading(ctx, t, tx, "settling", 20*due, func() error {
			_, _, err := d.writeIn(ctx, tx, nil, batch, true)
			return err
		})
		reading(ctx, t, tx, "moving the log", 20*due, func() error {
			_, err := moveUnlogged(ctx, tx)
			return err
		})
		return nil
	})

	// Every waiting delivery can be sent: half of them are fresh, the other half due.
	w.exec(`UPDATE webhook_schedule SET blocks = 0, failures = 0, failing_since = NULL, blocked_until = NULL,
		next_due = CASE WHEN right(guild_id, 1) < '5' THEN now() END`)
	w.exec(`UPDATE webhook_deliveries SET fresh = true`)
	w.exec(`ANALYZE`)
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		reading(ctx, t, tx, "finding the oldest due", 5*dueLimit, func() error {
			_, err := oldestDue(ctx, tx, false, nil)
			return err
		})
		return nil
	})
}

// However many deliveries wait for one endpoint, a claim writes only the rows of the deliveries
// that it sends.
func TestAClaimWritesNoMoreOfAFloodThanItSends(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		about, health string
		taken, most   int
	}{
		{"an endpoint that is well", `UPDATE webhook_schedule SET urgent = false`, 4, 4},
		{
			"one that is blocked",
			`UPDATE webhook_schedule SET blocked_until = now() + interval '1 hour', failing_since = now(), blocks = 1`, 0, 100,
		},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			w := newDeliveryDB(t)
			e, _ := w.add(w.guild, w.receive(nil).URL)
			w.record(w.guild, 1500)
			w.exec(c.health)
			w.unit(func(ctx context.Context, tx *db.Tx) error {
				rows := w.claim(ctx, tx, e, 4)
				var written int
				err := tx.GetContext(ctx, &written, `SELECT n_tup_upd FROM pg_stat_xact_user_tables WHERE relname = 'webhook_deliveries'`)
				if len(rows) != c.taken || written > c.most {
					t.Errorf("a claim took %d and wrote %d, want %d and at most %d", len(rows), written, c.taken, c.most)
				}
				return err
			})
		})
	}
}

// The same test with statistics from a time without waiting deliveries, when the indexes of waiting
// deliveries looked empty: with thousands of leases and thousands of held deliveries, each
// statement still finds its rows by their keys.
func TestStatementsFindRowsByKeyWithStatisticsOfAQuietTime(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	const many, few = 2500, 20
	w.exec(`ALTER TABLE webhook_deliveries SET (autovacuum_enabled = false)`)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, 1)
	insert := func(state string, n int, lease bool) {
		w.exec(`
			INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, state, fresh, lease_gen, lease_until)
			SELECT d.guild_id, d.endpoint_id, d.event_id, $1, false, 1, CASE WHEN $3 THEN now() + interval '1 minute' END
			FROM (SELECT * FROM webhook_deliveries LIMIT 1) d, generate_series(1, $2)`, state, n, lease)
	}
	w.exec(`UPDATE webhook_deliveries SET state = 'delivered'`)
	insert(StateDelivered, 4*many, false)
	w.exec(`ANALYZE`)
	insert(StatePending, many, true)
	insert(StateHeld, many, false)

	var ids []string
	if err := w.DB.Reader().SelectContext(t.Context(), &ids,
		`SELECT id FROM webhook_deliveries WHERE state = 'pending' LIMIT $1`, few); err != nil {
		t.Fatal(err)
	}
	batch := make([]result, few)
	for i, id := range ids {
		c := claimed{GuildID: w.guild, ID: id, EndpointID: e.ID, LeaseGen: 1}
		batch[i] = newResult(c, DefaultSchedule().judge(0, serverError, 0, 0), egress.Response{Status: 500}, time.Now(), time.Millisecond)
	}
	for range 2 {
		w.unit(func(ctx context.Context, tx *db.Tx) error {
			for range 7 {
				reading(ctx, t, tx, "settling", 10*few, func() error {
					_, _, err := w.deliverer().writeIn(ctx, tx, nil, batch, false)
					return err
				})
			}
			return nil
		})
		w.exec(`UPDATE webhook_schedule SET releasing = true, disposition = 'send'`)
		w.unit(func(ctx context.Context, tx *db.Tx) error {
			reading(ctx, t, tx, "releasing", 4*chunk, func() error {
				_, err := followOne(ctx, tx, nil, backlog{w.guild, e.ID})
				return err
			})
			return nil
		})
		w.exec(`UPDATE webhook_schedule SET disposition = 'hold'`)
		w.unit(func(ctx context.Context, tx *db.Tx) error {
			reading(ctx, t, tx, "holding", many+3*chunk, func() error {
				_, err := followOne(ctx, tx, nil, backlog{w.guild, e.ID})
				return err
			})
			return nil
		})
	}
}

// A claim of other endpoints does not read the many deliveries of one endpoint: neither with
// statistics from a time without waiting deliveries, nor (after a short time) with plans made while
// the tables were empty.
func TestAFloodIsNotReadForOthers(t *testing.T) {
	t.Parallel()
	const guilds, flood, few = 100, 4000, 100
	for _, c := range []struct {
		about   string
		settled int // completed deliveries that the statistics include
	}{
		{"after a quiet time", 4 * flood},
		{"into empty tables", 0},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			w := newDeliveryDB(t)
			w.exec(`ALTER TABLE webhook_deliveries SET (autovacuum_enabled = false)`)
			w.exec(`INSERT INTO guilds (id, name, owner_id) SELECT i, 'x', '1' FROM generate_series(1, $1) AS i`, guilds)
			fill := func(n int, guild, endpoint, state string) {
				w.unit(func(ctx context.Context, tx *db.Tx) error {
					if err := tx.TakeTime(ctx, 0); err != nil {
						return err
					}
					_, err := tx.ExecContext(ctx, `
						WITH ev AS (
							INSERT INTO webhook_events (guild_id, id, type, payload)
							SELECT coalesce($2, ((i * 7919) % $3 + 1)::text), gen_random_uuid(), 'x', '\x7b7d' FROM generate_series(1, $1) AS i
							RETURNING guild_id, id
						)
						INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, state, fresh, due_at)
						SELECT guild_id, $4, id, $5, $5 = 'pending', now() - interval '1 minute' FROM ev`,
						n, sql.NullString{String: guild, Valid: guild != ""}, guilds, endpoint, state)
					return err
				})
			}
			if c.settled > 0 {
				fill(c.settled, "", "e", StateDelivered)
				w.exec(`ANALYZE`)
			}
			flooded, _ := w.add(w.guild, w.receive(nil).URL)
			d := w.deliverer()
			w.unit(func(ctx context.Context, tx *db.Tx) error { // all on one connection
				for range 7 { // after seven runs, Postgres keeps the plan
					fill(3, w.guild, flooded.ID, StatePending)
					w.claimAndRecord(ctx, tx, d, flooded, few)
				}
				fill(flood, w.guild, flooded.ID, StatePending)
				testutil.Eventually(t, "there are statistics of what has grown", func() bool {
					if err := d.countRows(t.Context()); err != nil {
						t.Fatal(err)
					}
					var rows float64 // queried in tx, so that tx does not hit its idle timeout
					if err := tx.GetContext(ctx, &rows, `SELECT reltuples FROM pg_class WHERE relname = 'webhook_deliveries'`); err != nil {
						t.Fatal(err)
					}
					return rows >= flood
				})
				for range 3 {
					w.claimAndRecord(ctx, tx, d, flooded, few)
				}
				wantByKey(ctx, t, tx)
				return nil
			})
		})
	}
}

// ANALYZE of a full table samples few rows: with as many rows as autovacuum samples, ANALYZE would
// take a whole core from other requests, again and again while the table grows.
func TestStatisticsOfAFloodComeFromFewRows(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	d := w.deliverer()
	w.exec(`ALTER TABLE webhook_events SET (autovacuum_enabled = false)`)
	w.exec(`
		INSERT INTO webhook_events (guild_id, id, type, payload)
		SELECT $1, gen_random_uuid(), 'x', '\x7b7d' FROM generate_series(1, 5000)`, w.guild)
	testutil.Eventually(t, "there are statistics of the flood", func() bool {
		if err := d.countRows(t.Context()); err != nil {
			t.Fatal(err)
		}
		return dbtest.Value[float64](t, w.cfg.DB, `SELECT reltuples FROM pg_class WHERE relname = 'webhook_events'`) == 5000
	})
	// For so many ids, Postgres keeps one more bound than the target, and samples 300 rows for each
	// of the target.
	if n := dbtest.Value[int](t, w.cfg.DB, `
		SELECT cardinality(histogram_bounds::text::text[]) FROM pg_stats WHERE tablename = 'webhook_events' AND attname = 'id'`); n != 11 {
		t.Errorf("the statistics have %d bounds", n)
	}
}

// A claim reads the events that it sends, and no older events of the guild. Here most guilds have
// few events, so that Postgres estimates a read of all of a guild's events as cheap as a read of
// one.
func TestAClaimReadsNoOtherEventsOfItsGuild(t *testing.T) {
	t.Parallel()
	const guilds, each, much, few = 1000, 2, 3000, 100
	w := newDeliveryDB(t)
	w.exec(`INSERT INTO guilds (id, name, owner_id) SELECT i, 'x', '1' FROM generate_series(1, $1) AS i`, guilds)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	settled := func(guild string, n int) {
		w.exec(`
			WITH ev AS (
				INSERT INTO webhook_events (guild_id, id, type, payload)
				SELECT coalesce(nullif($1, ''), (i % $3 + 1)::text), '00-' || i, 'x', '\x7b7d' FROM generate_series(1, $2) AS i
				RETURNING guild_id, id
			)
			INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, state, fresh)
			SELECT guild_id, $4, id, 'delivered', false FROM ev`, guild, n, guilds, e.ID)
	}
	settled("", guilds*each)
	settled(w.guild, much)
	w.exec(`ANALYZE`)
	d := w.deliverer()
	const claims = 7 // after seven runs, Postgres keeps the plan
	w.record(w.guild, claims)
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		for range claims {
			w.claimAndRecord(ctx, tx, d, e, few)
		}
		return nil
	})
	if n := w.count(`SELECT count(*) FROM webhook_attempts`); n != claims {
		t.Errorf("%d of %d deliveries were claimed and settled", n, claims)
	}
}

var changedBy = regexp.MustCompile(`using (\w+) on webhook_deliveries d(?:_\d)?\b`)

// wantByKey fails the test if a prepared statement finds the deliveries that it changes by an index
// other than the primary key: with another index, the statement would read all deliveries of a
// guild, although the counters show one row.
func wantByKey(ctx context.Context, t *testing.T, tx *db.Tx) {
	t.Helper()
	var prepared []struct {
		Name       string `db:"name"`
		Parameters int    `db:"parameters"`
	}
	err := tx.SelectContext(ctx, &prepared, `
		SELECT name, cardinality(parameter_types) AS parameters
		FROM pg_prepared_statements
		WHERE statement ~ 'UPDATE webhook_deliveries d\s'`)
	if err != nil {
		t.Fatal(err)
	}
	if len(prepared) != 2 {
		t.Fatalf("there are %d statements that change deliveries, want the claim's and the settle's", len(prepared))
	}
	for _, p := range prepared {
		var plan []string
		nulls := strings.Repeat(", NULL", p.Parameters)[2:]
		if err := tx.SelectContext(ctx, &plan, fmt.Sprintf(`EXPLAIN EXECUTE "%s" (%s)`, p.Name, nulls)); err != nil {
			t.Fatal(err)
		}
		found := changedBy.FindAllStringSubmatch(strings.Join(plan, "\n"), -1)
		if len(found) == 0 {
			t.Errorf("no index finds the deliveries that are changed:\n%s", strings.Join(plan, "\n"))
		}
		for _, f := range found {
			if f[1] != "webhook_deliveries_pkey" {
				t.Errorf("deliveries that are changed are found by %s, want their key", f[1])
			}
		}
	}
}

// claimAndRecord takes one delivery from the poll of its endpoint to its result, if there is a
// result, and fails the test if a step reads more than most rows.
func (w *deliveryDB) claimAndRecord(ctx context.Context, tx *db.Tx, d *Deliverer, e endpoint, most int) {
	w.t.Helper()
	reading(ctx, w.t, tx, "a look at a guild", most, func() error {
		_, err := pollGuilds(ctx, tx, w.cfg.OneGuild, nil, []string{e.GuildID})
		return err
	})
	reading(ctx, w.t, tx, "a look at everything", most, func() error {
		_, err := pollAll(ctx, tx, nil, endpointID{}, nil)
		return err
	})
	c := claimed{GuildID: e.GuildID, EndpointID: e.ID, ID: "none"}
	reading(ctx, w.t, tx, "a claim", most, func() error {
		for _, row := range w.claim(ctx, tx, e, 1) {
			c = row
		}
		return nil
	})
	batch := []result{newResult(c, d.schedule.judge(0, delivered, 0, 0), egress.Response{Status: 200}, time.Now(), time.Millisecond)}
	reading(ctx, w.t, tx, "settling", most, func() error {
		_, _, err := d.writeIn(ctx, tx, nil, batch, false)
		return err
	})
}

// Deleting old log rows reads one chunk at a time, however many rows stay.
func TestPruningReadsNoMoreThanItForgets(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	const staying, old = 10_000, 300
	w.exec(`
		INSERT INTO webhook_events (guild_id, id, type, payload, occurred_at)
		SELECT $1, 'v' || i, 'x', '\x7b7d', now() - CASE WHEN i <= $3 THEN interval '32 days' ELSE '1 day' END
		FROM generate_series(1, $2) AS i`, w.guild, staying+old, old)
	w.exec(`
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_at, state, fresh)
		SELECT guild_id, 'e', id, occurred_at, 'held', false FROM webhook_events`)
	w.exec(`
		INSERT INTO webhook_attempts (guild_id, delivery_id, number, started_at, duration_ms, outcome)
		SELECT guild_id, id, 1, event_at, 1, 'timeout' FROM webhook_deliveries`)
	w.exec(`ANALYZE`)
	d := w.deliverer()
	for _, step := range []struct {
		what string
		do   func(context.Context, *db.Tx, *time.Time) (int, error)
	}{
		{"giving up what is held", expireHeld},
		{"pruning attempts", pruneAttempts},
		{"pruning deliveries", pruneDeliveries},
		{"pruning events", pruneEvents},
	} {
		err := d.repeat(t.Context(), func(ctx context.Context, tx *db.Tx) (n int, err error) {
			reading(ctx, t, tx, step.what, 5*old, func() error {
				n, err = step.do(ctx, tx, nil)
				return err
			})
			if n != old {
				t.Errorf("%s: %d rows, want %d", step.what, n, old)
			}
			return n, err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// CountLost and Recover find the lost events through the failed deliveries of the endpoint, and
// never read the rest of the log for each of them, whatever the table statistics are.
func TestWhatIsLostIsFoundByItsEvents(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	const all, failed = 20_000, 400
	w.exec(`
		INSERT INTO webhook_events (guild_id, id, type, payload)
		SELECT $1, 'v' || i, 'case.created', '\x7b7d' FROM generate_series(1, $2) AS i`, w.guild, all)
	w.exec(`
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, fresh, state, created_at)
		SELECT $1, $2, 'v' || i, 'case.created', false, CASE WHEN i % $4 = 0 THEN 'failed' ELSE 'delivered' END,
		now() - make_interval(secs => $3 - i)
		FROM generate_series(1, $3) AS i`, w.guild, e.ID, all, all/failed)
	since := time.Now().Add(-24 * time.Hour)
	for _, statistics := range []string{`SELECT 1`, `ANALYZE webhook_deliveries, webhook_events`} {
		w.exec(statistics)
		w.unit(func(ctx context.Context, tx *db.Tx) error {
			reading(ctx, t, tx, "counting, "+statistics, 10*failed, func() error {
				n, err := CountLost(ctx, tx, w.guild, e.ID, since, all)
				if n != failed {
					t.Errorf("%d are lost, want %d", n, failed)
				}
				return err
			})
			reading(ctx, t, tx, "recovering, "+statistics, 10*failed, func() error {
				_, err := Recover(ctx, tx, w.guild, e.ID, since, failed/8)
				return err
			})
			_, err := tx.ExecContext(ctx, `DELETE FROM webhook_deliveries WHERE cause = 'redelivery'`)
			return err
		})
	}
}

package economy

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/page"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
)

var system = batch.Change{By: event.System("1")}

// pay adds one coin to a wallet, in a unit of work of its own.
func pay(ctx context.Context, d *db.DB, user string) error { return give(ctx, d, user, 1) }

// give changes one wallet, in a unit of work of its own.
func give(ctx context.Context, d *db.DB, user string, delta int64) error {
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		return adjustAlone(ctx, tx, &change{Change: system, entry: entry{ID: db.NewID(), UserID: user, Delta: delta, Note: "test"}})
	})
}

// listen adds an endpoint to guild 1, because without an endpoint no event is stored.
func listen(t *testing.T, d *db.DB) {
	t.Helper()
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO guilds (id, name, owner_id) VALUES ('1', 'one', '1')`); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `
			INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
			VALUES ('1', 'e', 'https://example.com', '{economy.balance_changed}', '', '')`)
		return err
	})
}

// giveInTheEnd calls give until it succeeds, as a client does: concurrent writers may have to wait
// longer than the timeout of a statement.
func giveInTheEnd(ctx context.Context, d *db.DB, user string, delta int64) (err error) {
	for begun := time.Now(); time.Since(begun) < time.Minute; {
		if err = give(ctx, d, user, delta); !db.Unavailable(err) || db.Uncertain(err) {
			return err
		}
	}
	return err
}

// race runs 16 writers, each of which pays to users[i%len] rounds times. Meanwhile race calls look
// again and again, and once more at the end.
func race(t *testing.T, d *db.DB, rounds int, users []string, look func() error) {
	t.Helper()
	ctx := context.Background()
	var wg sync.WaitGroup
	var done atomic.Bool
	for w := range 16 {
		wg.Go(func() {
			for i := range rounds {
				if err := giveInTheEnd(ctx, d, users[(w*7+i)%len(users)], 1); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	go func() { wg.Wait(); done.Store(true) }()
	for last := false; !last; {
		last = done.Load()
		if err := look(); err != nil {
			wg.Wait()
			t.Fatal(err)
		}
	}
}

// copier copies the ledger as the API document tells callers to: each request starts some time
// before the newest row of the copy, and rows that the copy has already are dropped.
type copier struct {
	d       *db.DB
	user    *string
	overlap time.Duration
	newest  *time.Time
	known   map[string]bool
}

func (c *copier) poll() error {
	ctx := context.Background()
	f := filter{UserID: c.user}
	if c.newest != nil {
		f.Since = c.newest.Add(-c.overlap).Truncate(time.Millisecond) // the precision that the API shows
	}
	for number := 1; ; number++ {
		p := page.Of(number, 100)
		rows, err := entries(ctx, c.d.Reader(), "1", f, p)
		if err != nil {
			return err
		}
		rows, more := page.Cut(rows, p)
		for _, r := range rows {
			c.known[r.ID] = true
			if c.newest == nil || r.CreatedAt.After(*c.newest) {
				c.newest = &r.CreatedAt
			}
		}
		if !more {
			return nil
		}
	}
}

func (c *copier) missing(t *testing.T) (n, all int) {
	t.Helper()
	var ids []string
	if err := c.d.Reader().SelectContext(context.Background(), &ids, `SELECT id FROM ledger_entries WHERE guild_id = '1'`); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if !c.known[id] {
			n++
		}
	}
	return n, len(ids)
}

// The copy of a single member's ledger needs no overlap, because its rows become visible in the
// order of their instants. The balance of the newest row is the balance of the wallet.
// RELIABILITY.md, Events.
func TestAHotWalletsLedgerStandsInTheOrderOfEffects(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	listen(t, d)
	user := "7"
	c := &copier{d: d, user: &user, known: map[string]bool{}}
	race(t, d, 40, []string{user}, func() error {
		if err := c.poll(); err != nil {
			return err
		}
		return newestRowIsTheBalance(d, user)
	})
	if n, all := c.missing(t); n != 0 || all != 640 {
		t.Errorf("%d of %d rows were never seen", n, all)
	}
	wantOrderOfEffects(t, d)
	wantEventsInOrder(t, d)
}

func newestRowIsTheBalance(d *db.DB, user string) error {
	return d.Snapshot(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		rows, err := entries(ctx, tx, "1", filter{UserID: &user}, page.Of(1, 1))
		if err != nil {
			return err
		}
		w, err := wallet(ctx, tx, "1", user)
		if err != nil || len(rows) == 0 {
			return err
		}
		if rows[0].BalanceAfter != w.Balance || !rows[0].CreatedAt.Equal(*w.UpdatedAt) {
			return fmt.Errorf("the newest row says %d at %s, the wallet %d at %s",
				rows[0].BalanceAfter, rows[0].CreatedAt, w.Balance, w.UpdatedAt)
		}
		return nil
	})
}

// wantOrderOfEffects checks each wallet: with the rows sorted by the instants that callers see, the
// balance after each row is the previous balance plus the delta.
func wantOrderOfEffects(t *testing.T, d *db.DB) {
	t.Helper()
	var wrong []string
	if err := d.Reader().SelectContext(context.Background(), &wrong, `
		SELECT user_id || ' has ' || balance_after || ' after ' || before || ' by ' || delta || ' at ' || at
		FROM (
			SELECT user_id, delta, balance_after, at, lag(at) OVER w AS earlier, lag(balance_after, 1, 0::bigint) OVER w AS before
			FROM (SELECT *, date_trunc('milliseconds', created_at) AS at FROM ledger_entries) e
			WINDOW w AS (PARTITION BY guild_id, user_id ORDER BY created_at, id)
		) e
		WHERE before + delta <> balance_after OR at <= earlier
		LIMIT 5`); err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

// wantEventsInOrder checks that each event has the instant of its ledger entry.
func wantEventsInOrder(t *testing.T, d *db.DB) {
	t.Helper()
	var n, all int
	if err := d.Reader().GetContext(context.Background(), &all, `SELECT count(*) FROM webhook_events`); err != nil {
		t.Fatal(err)
	}
	if err := d.Reader().GetContext(context.Background(), &n, `
		SELECT count(*)
		FROM webhook_events v
		JOIN ledger_entries e ON e.guild_id = v.guild_id AND e.id = convert_from(v.payload, 'UTF8')::json #>> '{data,ledger_entry_id}'
		WHERE v.occurred_at = e.created_at
		  AND convert_from(v.payload, 'UTF8')::json ->> 'timestamp' =
			to_char(e.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`); err != nil {
		t.Fatal(err)
	}
	if n != all || all == 0 {
		t.Errorf("%d of %d events carry the instant of their row", n, all)
	}
}

// A copy of many wallets made with the loop of the API document misses no row. RELIABILITY.md,
// Events.
func TestACopyWithTheOverlapMissesNothing(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	users := make([]string, 100)
	for i := range users {
		users[i] = strconv.Itoa(i + 1)
	}
	c := &copier{d: d, overlap: 15 * time.Second, known: map[string]bool{}}
	dbtest.AddGuilds(t, d, "1")
	race(t, d, 30, users, c.poll)
	if n, all := c.missing(t); n != 0 || all != 480 {
		t.Errorf("%d of %d rows were never seen", n, all)
	}
	wantOrderOfEffects(t, d)
}

// A clock that stops or goes back does not change the order of the ledger, and any two instants
// that callers see are different.
func TestAnInstantIsLaterThanTheOneBefore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	dbtest.Exec(t, d, `
			INSERT INTO wallets (guild_id, user_id, balance, updated_at)
			VALUES ('1', '7', 0, date_trunc('day', now()) + interval '2 days 0.0009 seconds')`)
	before, err := wallet(ctx, d.Reader(), "1", "7")
	for range 3 {
		if err := errors.Join(err, pay(ctx, d, "7")); err != nil {
			t.Fatal(err)
		}
		var after row
		after, err = wallet(ctx, d.Reader(), "1", "7")
		if err == nil && !after.UpdatedAt.Truncate(time.Millisecond).After(before.UpdatedAt.Truncate(time.Millisecond)) {
			t.Fatalf("%s comes after %s", after.UpdatedAt, before.UpdatedAt)
		}
		before = after
	}
}

package economy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/service/leaderboard"
)

// releasedAdjust is an adjustment as the last release makes it.
const releasedAdjust = `
		WITH changed AS (
			UPDATE wallets SET balance = balance + $3, updated_at = now()
			WHERE guild_id = $1 AND user_id = $2
			RETURNING balance
		), made AS (
			INSERT INTO wallets AS w (guild_id, user_id, balance)
			SELECT $1, $2, $3
			WHERE NOT EXISTS (SELECT FROM changed)
			ON CONFLICT (guild_id, user_id) DO UPDATE
			SET balance = w.balance + excluded.balance, updated_at = now()
			RETURNING balance
		), moved AS (
			SELECT balance FROM changed UNION ALL SELECT balance FROM made
		), entered AS (
			INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, reason, note)
			SELECT $1, $4, $2, $3, balance, $5, $6 FROM moved
		)
		SELECT $2 AS user_id, balance, now() AS updated_at
		FROM moved, record_event($1, $7, $8, $9,
			$10::text || balance || ',"previous_balance":' || balance - $3 || $11::text)`

// releasedPage is a deep page as the last release reads it.
const releasedPage = `SELECT user_id, balance AS points FROM wallets_after($1, $3, $2)`

// Nodes of the last release run beside this one's until the last migrations. Both
// read exact leaderboards, the released one's by its own maps, and every change
// of either has its event.
// RELIABILITY.md, Operation.
func TestTheLastReleaseRunsBesideThisOne(t *testing.T) {
	t.Parallel()
	url := dbtest.At(t, dbtest.Expanded)
	d, err := db.Open(db.Config{URL: url, Writers: 8, Readers: 4, Name: "guildhall-test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	listen(t, d)
	dbtest.Fill(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '1', n::text, n % 40 FROM generate_series(1, 300) n`,
		`SELECT draft_leaderboard('wallets', '1', 10)`, `UPDATE leaderboard_maps SET ahead = count_leaderboard(id), state = 'live'`,
		`INSERT INTO rank_requests (guild_id, board) VALUES ('1', 'wallets')`)
	k := &leaderboard.Keeper{DB: d, Stretch: 10, Least: 50}
	var wg sync.WaitGroup
	const writers, rounds = 6, 40
	for n := range writers {
		wg.Go(func() {
			for i := range rounds {
				user := strconv.Itoa(1 + rand.IntN(400))
				do := func() error { return give(context.Background(), d, user, 3) }
				if n%2 == 0 {
					do = func() error { return releasedGive(d, user, fmt.Sprintf("%d-%d", n, i)) }
				}
				if err := do(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running && !t.Failed(); {
		select {
		case <-done:
			running = false
		default:
		}
		if err := k.Maintain(t.Context()); err != nil {
			t.Error(err)
		}
		mapped, err := ranksAreThoseOfTheList(d)
		if err != nil {
			t.Error(err)
		}
		if mapped != 0 {
			t.Error("there is a map for which the last release notes nothing")
		}
		if err := releasedPagesAreThoseOfTheList(d); err != nil {
			t.Error(err)
		}
	}
	<-done
	told := dbtest.Value[int](t, d, `
		SELECT count(*) FROM webhook_deliveries w JOIN webhook_events v ON v.guild_id = w.guild_id AND v.id = w.event_id
		WHERE (convert_from(v.payload, 'UTF8')::json #>> '{data,balance}')::int =
			(convert_from(v.payload, 'UTF8')::json #>> '{data,previous_balance}')::int + 3`)
	if told != writers*rounds {
		t.Errorf("%d deliveries of %d changes", told, writers*rounds)
	}

	if err := db.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	dbtest.Fill(t, d, `INSERT INTO rank_requests (guild_id, board) VALUES ('1', 'wallets')`)
	testutil.Eventually(t, "a map after the last migration", func() bool {
		if err := k.Maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
		mapped, err := ranksAreThoseOfTheList(d)
		if err != nil {
			t.Fatal(err)
		}
		return mapped == 1
	})
}

func releasedGive(d *db.DB, user, id string) error {
	return d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, releasedAdjust, "1", user, 3, "entry-"+id, nil, "released",
			"event-"+id, "economy.balance_changed", `{"type":"system","token_id":null}`, `{"balance":`, `}`)
		return err
	})
}

func releasedPagesAreThoseOfTheList(d *db.DB) error {
	return d.Snapshot(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		var all, got []leaderboard.Row
		if err := tx.SelectContext(ctx, &all, `SELECT user_id, balance AS points FROM wallets WHERE guild_id = '1'
			ORDER BY balance DESC, length(user_id), user_id`); err != nil {
			return err
		}
		from := rand.IntN(len(all))
		if err := tx.SelectContext(ctx, &got, releasedPage, "1", 25, from); err != nil {
			return err
		}
		if want := all[from:min(from+25, len(all))]; !slices.Equal(got, want) {
			return fmt.Errorf("the last release reads %v, want %v", got, want)
		}
		return nil
	})
}

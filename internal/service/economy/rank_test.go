package economy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/service/leaderboard"
)

// While balances change, ranks from the leaderboard's rank index are equal to those of the sorted
// wallets, also while several new members get their first coins at once. RELIABILITY.md, Writes.
func TestRanksAreExactWhileBalancesMove(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	listen(t, d)
	// Members with a balance of zero rank behind the position of a new member.
	dbtest.Fill(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '1', n::text, n % 40 FROM generate_series(1, 300) n`,
		`INSERT INTO wallets (guild_id, user_id, balance) SELECT '1', n::text, 0 FROM generate_series(9000, 9200) n`,
		`INSERT INTO rank_requests (guild_id, board) VALUES ('1', 'wallets')`)
	// Each comparison lets as many changes and rounds happen beside it. Without this, a loaded
	// machine makes many times more of them for a comparison.
	changes, rounds := make(chan struct{}, 40), make(chan struct{}, 4)
	var newest atomic.Int64
	newest.Store(999)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range changes {
				user := 1 + rand.Int64N(300)
				if rand.IntN(3) == 0 {
					user = newest.Load() + 1 // sometimes for several writers at once
				}
				if err := giveInTheEnd(context.Background(), d, strconv.FormatInt(user, 10), 1+rand.Int64N(60)); err != nil {
					t.Error(err)
					return
				}
				if user > newest.Load() {
					newest.Store(user)
				}
			}
		})
	}
	wg.Go(func() {
		k := &leaderboard.Maintainer{DB: d, Stretch: 10, Least: 50}
		for range rounds {
			if err := k.Maintain(context.Background()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	mapped := 0
	for begun := time.Now(); mapped < 100 && time.Since(begun) < 3*time.Minute && !t.Failed(); {
		testutil.Refill(changes)
		testutil.Refill(rounds)
		live, err := ranksAreThoseOfTheList(d)
		if err != nil {
			t.Error(err)
			break
		}
		mapped += live
	}
	close(changes)
	close(rounds)
	wg.Wait()
	if mapped < 100 {
		t.Errorf("only %d of the comparisons had a rank index in service", mapped)
	}
}

func ranksAreThoseOfTheList(d *db.DB) (mapped int, err error) {
	err = d.Snapshot(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		if err := tx.GetContext(ctx, &mapped,
			`SELECT count(*) FROM rank_indexes WHERE guild_id = '1' AND board = 'wallets' AND state = 'live'`); err != nil {
			return err
		}
		var all []string
		if err := tx.SelectContext(ctx, &all,
			`SELECT user_id FROM wallets WHERE guild_id = '1' ORDER BY balance DESC, length(user_id), user_id`); err != nil {
			return err
		}
		for range 5 {
			at := rand.IntN(len(all))
			p, err := leaderboard.Wallets.Rank(ctx, tx, "1", all[at], false)
			if err != nil {
				return err
			}
			if p.Rank != int64(at)+1 || p.Of != int64(len(all)) {
				return fmt.Errorf("%s stands at %d of %d, want %d of %d", all[at], p.Rank, p.Of, at+1, len(all))
			}
		}
		return nil
	})
	return mapped, err
}

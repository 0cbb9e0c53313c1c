package guildfile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/service/guildfile"
	"guildhall/internal/service/leaderboard"
)

// An import writes rows of leaderboards that have a rank index or get one meanwhile. Ranks always
// equal those of the sorted rows, and afterwards there is a rank index. RELIABILITY.md, Writes.
func TestLeaderboardsAreExactBesideImports(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	imported(t, d, everything)
	k := &leaderboard.Maintainer{DB: d, Stretch: 10, Least: 50}
	for n := range 6 {
		var file strings.Builder
		for i := range 100 + rand.IntN(300) {
			fmt.Fprintf(&file, `{"record":"wallet","guild_id":"1","user_id":"%[1]d","balance":%[2]d}
{"record":"level","guild_id":"1","user_id":"%[1]d","total_xp":%[2]d}`+"\n", 1000+1000*n+i, rand.IntN(40))
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := guildfile.Import(t.Context(), d, strings.NewReader(file.String()), nil); err != nil {
				t.Error(err)
			}
		}()
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
			}
			maintain(t, d, k)
		}
		testutil.Eventually(t, "both leaderboards have rank indexes after an import", func() bool { return maintain(t, d, k) == 2 })
	}
}

// A leaderboard that has got rows loses its rank index once, however many kinds of record were
// read; one that has got none keeps it.
func TestAnImportAsksForEachMapOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	imported(t, d, everything)
	asked := dbtest.Value[string](t, d, `
		SELECT string_agg(concat_ws(' ', guild_id, board), ', ' ORDER BY guild_id, board) FROM rank_requests`)
	if want := "1 levels, 1 wallets, 2 levels"; asked != want {
		t.Errorf("the import asks for rank indexes of %s, want %s", asked, want)
	}
}

// maintain runs the maintainer once and checks both leaderboards. It returns how many have a rank
// index.
func maintain(t *testing.T, d *db.DB, k *leaderboard.Maintainer) (maps int) {
	t.Helper()
	if err := k.Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := d.Snapshot(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if err := tx.GetContext(ctx, &maps, `SELECT count(*) FROM rank_indexes WHERE state = 'live'`); err != nil {
			return err
		}
		for name, b := range map[string]struct {
			points string
			ranks  leaderboard.Board
		}{"wallets": {"balance", leaderboard.Wallets}, "levels": {"total_xp", leaderboard.Levels}} {
			var all []string
			if err := tx.SelectContext(ctx, &all,
				`SELECT user_id FROM `+name+` WHERE guild_id = '1' ORDER BY `+b.points+` DESC, length(user_id), user_id`); err != nil {
				return err
			}
			for range 5 {
				at := rand.IntN(len(all))
				p, err := b.ranks.Rank(ctx, tx, "1", all[at], false)
				if err != nil {
					return err
				}
				if p.Rank != int64(at)+1 || p.Of != int64(len(all)) {
					return fmt.Errorf("in the %s %s stands at %d of %d, want %d of %d", name, all[at], p.Rank, p.Of, at+1, len(all))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return maps
}

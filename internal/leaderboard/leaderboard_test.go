package leaderboard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/db/dbtest"
	"guildhall/internal/leaderboard"
)

type place struct {
	UserID string `db:"user_id"`
	Points int64  `db:"points"`
}

type board struct {
	table, points, all, after string
	ranks                     leaderboard.Board
}

var boards = []board{
	{
		"wallets", "balance",
		`SELECT user_id, balance AS points FROM wallets WHERE guild_id = $1 ORDER BY balance DESC, length(user_id), user_id`,
		`SELECT user_id, balance AS points FROM wallets_after($1, $2, $3)`,
		leaderboard.Wallets,
	},
	{
		"levels", "total_xp",
		`SELECT user_id, total_xp AS points FROM levels WHERE guild_id = $1 ORDER BY total_xp DESC, length(user_id), user_id`,
		`SELECT user_id, total_xp AS points FROM levels_after($1, $2, $3)`,
		leaderboard.Levels,
	},
}

func do(t testing.TB, d *db.DB, query string, args ...any) {
	t.Helper()
	if err := d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	}); err != nil {
		t.Errorf("%s: %v", query, err)
	}
}

// ask asks the keeper for a look at everything, which else one change in 64 does.
func ask(t testing.TB, d *db.DB) {
	t.Helper()
	do(t, d, `INSERT INTO leaderboard_queue (guild_id, board) SELECT id, b FROM guilds, (VALUES ('wallets'), ('levels')) v (b)`)
}

// compare holds pages and ranks against the sorted list of the same snapshot, and says
// whether a map was in service.
func compare(t *testing.T, d *db.DB, b board, guild string) (mapped bool) {
	t.Helper()
	err := d.Snapshot(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		var all []place
		if err := tx.SelectContext(ctx, &all, b.all, guild); err != nil {
			return err
		}
		if err := tx.GetContext(ctx, &mapped, `
			SELECT EXISTS (SELECT FROM leaderboard_maps WHERE (board, guild_id, state) = ($1, $2, 'live'))`, b.table, guild); err != nil {
			return err
		}
		for range 12 {
			from, n := rand.IntN(len(all)+3), 1+rand.IntN(30)
			var got []place
			if err := tx.SelectContext(ctx, &got, b.after, guild, from, n); err != nil {
				return err
			}
			want := all[min(from, len(all)):min(from+n, len(all))]
			if !slices.Equal(got, want) {
				return fmt.Errorf("%s: %d rows after %d of %d\n got %v\nwant %v", b.table, n, from, len(all), got, want)
			}
			at := rand.IntN(len(all))
			rank, err := b.ranks.Rank(ctx, tx, guild, all[at].UserID)
			if err != nil {
				return err
			}
			if expect := (leaderboard.Place{Rank: int64(at) + 1, Points: all[at].Points, Of: int64(len(all))}); rank != expect {
				return fmt.Errorf("%s: %s stands at %v, want %v", b.table, all[at].UserID, rank, expect)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return mapped
}

// TestPagesAreExactWhileRowsMove is the promise: whatever is written meanwhile,
// ties, newcomers and leavers included, and in whatever step the map is being
// made, counted or replaced, each page is the page of the sorted list.
func TestPagesAreExactWhileRowsMove(t *testing.T) {
	t.Parallel()
	for _, b := range boards {
		t.Run(b.table, func(t *testing.T) {
			t.Parallel()
			d := dbtest.New(t).DB
			do(t, d, `INSERT INTO guilds (id, name, owner_id) VALUES ('1', 'one', '1'), ('2', 'two', '1')`)
			do(t, d, `INSERT INTO `+b.table+` (guild_id, user_id, `+b.points+`)
				SELECT g, n::text, n % 40 FROM generate_series(1, 600) n, (VALUES ('1'), ('2')) v (g)`)
			if compare(t, d, b, "1") {
				t.Fatal("there is a map before there is a keeper")
			}
			var stop atomic.Bool
			var wg sync.WaitGroup
			defer func() {
				stop.Store(true)
				wg.Wait()
			}()
			for range 6 {
				wg.Go(func() {
					for !stop.Load() {
						guild, user := fmt.Sprint(1+rand.IntN(2)), fmt.Sprint(1+rand.IntN(900))
						switch rand.IntN(12) {
						case 0:
							do(t, d, `DELETE FROM `+b.table+` WHERE guild_id = $1 AND user_id = $2`, guild, user)
						case 1: // several in one transaction
							do(t, d, `UPDATE `+b.table+` SET `+b.points+` = 40 - `+b.points+` WHERE guild_id = $1 AND user_id IN (
								SELECT user_id FROM `+b.table+` WHERE guild_id = $1 AND `+b.points+` <= 40 ORDER BY user_id LIMIT 5 FOR UPDATE)`, guild)
						default:
							do(t, d, `INSERT INTO `+b.table+` AS t (guild_id, user_id, `+b.points+`) VALUES ($1, $2, $3)
								ON CONFLICT (guild_id, user_id) DO UPDATE SET `+b.points+` = excluded.`+b.points, guild, user, rand.IntN(45))
						}
					}
				})
			}
			for range 2 {
				wg.Go(func() {
					// A short stretch and a low patience: maps are replaced all the time.
					k := &leaderboard.Keeper{DB: d, Stretch: 7 + rand.IntN(3), Least: 50}
					for !stop.Load() {
						if err := k.Tend(context.Background()); err != nil {
							t.Errorf("a round of the keeper: %v", err)
							return
						}
						if rand.IntN(3) == 0 {
							ask(t, d)
						}
						if rand.IntN(20) == 0 {
							do(t, d, `DELETE FROM leaderboard_maps WHERE state = 'live' AND guild_id = '1'`)
						}
					}
				})
			}
			// Other transactions keep the horizon back for a while each.
			wg.Go(func() {
				for !stop.Load() {
					do(t, d, `INSERT INTO `+b.table+` (guild_id, user_id, `+b.points+`) SELECT '1', (1000 + random() * 1000)::int::text, 20 FROM pg_sleep(0.03)
						ON CONFLICT DO NOTHING`)
				}
			})
			mapped, begun := 0, time.Now()
			for (mapped < 60 || time.Since(begun) < 3*time.Second) && time.Since(begun) < time.Minute && !t.Failed() {
				for _, guild := range []string{"1", "2"} {
					if compare(t, d, b, guild) {
						mapped++
					}
				}
			}
			if mapped < 60 {
				t.Fatalf("only %d of the comparisons had a map in service", mapped)
			}
		})
	}
}

// The notes of moves do not pile up, and a map that has lost its shape is
// replaced.
func TestKeeperAddsUpMovesAndRedraws(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	do(t, d, `INSERT INTO guilds (id, name, owner_id) VALUES ('1', 'large', '1'), ('2', 'small', '1')`)
	do(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '1', n::text, n * 10 FROM generate_series(1, 500) n`)
	do(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '2', n::text, n * 10 FROM generate_series(1, 49) n`)
	k := &leaderboard.Keeper{DB: d, Stretch: 10, Least: 50}
	read := func(query string) (n int64) {
		t.Helper()
		if err := d.Reader().GetContext(ctx, &n, query); err != nil {
			t.Fatal(err)
		}
		return n
	}
	tend := func(until string, want int64) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; {
			ask(t, d)
			if err := k.Tend(ctx); err != nil {
				t.Fatal(err)
			}
			if read(until) == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: still %d, want %d", until, read(until), want)
			}
		}
	}
	const live = `SELECT count(*) FROM leaderboard_maps WHERE state = 'live'`
	tend(live, 1)
	if n := read(`SELECT count(*) FROM leaderboard_maps WHERE guild_id = '2'`); n != 0 {
		t.Error("a small leaderboard got a map")
	}
	do(t, d, `UPDATE wallets SET updated_at = now() WHERE guild_id = '1'`)
	do(t, d, `UPDATE wallets SET balance = balance + 300 WHERE guild_id = '2'`)
	if n := read(`SELECT count(*) FROM leaderboard_moves`); n != 0 {
		t.Errorf("%d moves were noted where nothing moves or there is no map", n)
	}
	do(t, d, `UPDATE wallets SET balance = balance + 300 WHERE guild_id = '1'`)
	if n := read(`SELECT count(*) FROM leaderboard_moves`); n != 500 {
		t.Errorf("%d moves were noted for 500 rows that moved", n)
	}
	compare(t, d, boards[0], "1")
	tend(`SELECT count(*) FROM leaderboard_moves`, 0)
	compare(t, d, boards[0], "1")

	first := read(`SELECT max(id) FROM leaderboard_maps`)
	do(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '1', n::text, 555 FROM generate_series(1001, 1300) n`)
	compare(t, d, boards[0], "1")
	tend(fmt.Sprintf(`SELECT count(*) FROM leaderboard_maps WHERE state = 'live' AND id > %d`, first), 1)
	compare(t, d, boards[0], "1")
	do(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '1', n::text, 0 FROM generate_series(2001, 2300) n`)
	tend(fmt.Sprintf(`SELECT count(*) FROM leaderboard_maps WHERE state = 'live' AND id > %d`, first+1), 1)
	compare(t, d, boards[0], "1")
	tend(`SELECT count(*) FROM leaderboard_maps`, 1)
}

// A guild that has grown large asks for its map itself, and where no keeper runs
// for long the map is given up, so that neither moves nor notes pile up.
func TestALeaderboardAsksForItsKeeper(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	do(t, d, `INSERT INTO guilds (id, name, owner_id) VALUES ('1', 'large', '1'), ('2', 'small', '1')`)
	do(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '1', n::text, n * 10 FROM generate_series(1, 5000) n`)
	do(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '2', n::text, n * 10 FROM generate_series(1, 3000) n`)
	read := func(query string) (n int64) {
		t.Helper()
		if err := d.Reader().GetContext(ctx, &n, query); err != nil {
			t.Fatal(err)
		}
		return n
	}
	k := &leaderboard.Keeper{DB: d}
	settle := func() {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; {
			if err := k.Tend(ctx); err != nil {
				t.Fatal(err)
			}
			if read(`SELECT count(*) FROM leaderboard_maps WHERE state = 'live' AND guild_id = '1'`) == 1 &&
				read(`SELECT (SELECT count(*) FROM leaderboard_queue) + (SELECT count(*) FROM leaderboard_moves)`) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("there is no map, or notes are left")
			}
		}
	}
	settle()
	if n := read(`SELECT count(*) FROM leaderboard_maps WHERE guild_id = '2'`); n != 0 {
		t.Error("a small leaderboard got a map")
	}
	for range 10 {
		do(t, d, `UPDATE wallets SET balance = balance + 1 + (random() * 9000)::int`)
	}
	if n := read(`SELECT count(*) FROM leaderboard_maps`); n != 0 {
		t.Errorf("%d maps are left after 50,000 moves that nobody has added up", n)
	}
	if moves, notes := read(`SELECT count(*) FROM leaderboard_moves`), read(`SELECT count(*) FROM leaderboard_queue`); moves > 25_000 || notes > 256 {
		t.Errorf("%d moves and %d notes have piled up", moves, notes)
	}
	compare(t, d, boards[0], "1")
	do(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT '1', (10000 + n)::text, n * 10 FROM generate_series(1, 3000) n`)
	settle()
	compare(t, d, boards[0], "1")
}

// What a round of the keeper costs when nothing has changed does not grow with
// the number of guilds.
func BenchmarkIdleRound(b *testing.B) {
	for _, guilds := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(guilds), func(b *testing.B) {
			ctx := context.Background()
			d := dbtest.New(b).DB
			do(b, d, fmt.Sprintf(`SET LOCAL statement_timeout = 0; INSERT INTO guilds (id, name, owner_id) SELECT n::text, 'g', '1' FROM generate_series(1, %d) n`, guilds))
			do(b, d, `SET LOCAL statement_timeout = 0; INSERT INTO wallets (guild_id, user_id, balance) SELECT id, '1', 5 FROM guilds`)
			do(b, d, `DELETE FROM leaderboard_queue`)
			do(b, d, `ANALYZE guilds, wallets, leaderboard_queue`)
			k := &leaderboard.Keeper{DB: d}
			for b.Loop() {
				if err := k.Tend(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestAWalletKeepsItsMember(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	do(t, d, `INSERT INTO wallets (guild_id, user_id, balance) VALUES ('1', '1', 5)`)
	err := d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE wallets SET user_id = '2'`)
		return err
	})
	if err == nil {
		t.Error("a wallet was given to another member, which the notes of moves do not allow for")
	}
}

package leaderboard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"guildhall/internal/access/usage"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/page"
	"guildhall/internal/base/testutil"
	"guildhall/internal/service/leaderboard"
)

type board struct {
	table, points string
	ranks         leaderboard.Board
	operation     string // an operation that reads the leaderboard
}

var leaderboards = []board{
	{"wallets", "balance", leaderboard.Wallets, "getEconomyRank"},
	{"levels", "total_xp", leaderboard.Levels, "getLevellingRank"},
}

// sql puts the table and column of the board into a statement.
func (b board) sql(text string) string {
	return strings.NewReplacer("{board}", b.table, "{points}", b.points).Replace(text)
}

// sorted selects the whole leaderboard of guild $1 in its order.
const sorted = `SELECT user_id, {points} AS points FROM {board} WHERE guild_id = $1 ORDER BY {points} DESC, length(user_id), user_id`

// The ways in which the tests change rows of guild $1. Each records its moves. moved has the
// columns that Noted requires.
const (
	leave = `moved AS (
		DELETE FROM {board} WHERE guild_id = $1 AND user_id = $2 RETURNING user_id, {points} AS was, NULL::bigint AS is_now)`

	// several in one transaction
	flip = `moved AS (
		UPDATE {board} SET {points} = 40 - {points} WHERE guild_id = $1 AND user_id IN (
			SELECT user_id FROM {board} WHERE guild_id = $1 AND {points} <= 40 ORDER BY user_id LIMIT 5 FOR UPDATE)
		RETURNING user_id, 40 - {points} AS was, {points} AS is_now)`

	set = `old AS (
		SELECT user_id, {points} FROM {board} WHERE guild_id = $1 AND user_id = $2 FOR UPDATE
	), changed AS (
		UPDATE {board} t SET {points} = $3 FROM old WHERE t.guild_id = $1 AND t.user_id = old.user_id
		RETURNING t.user_id, old.{points} AS was, t.{points} AS is_now
	), made AS (
		INSERT INTO {board} (guild_id, user_id, {points}) SELECT $1, $2, $3 WHERE NOT EXISTS (SELECT FROM old)
		ON CONFLICT DO NOTHING RETURNING user_id, NULL::bigint AS was, {points} AS is_now
	), moved AS (SELECT * FROM changed UNION ALL SELECT * FROM made)`

	// delays the transactions for which a draft waits
	joinLate = `moved AS (
		INSERT INTO {board} (guild_id, user_id, {points}) SELECT $1, (1000 + random() * 1000)::int::text, 20 FROM pg_sleep(0.03)
		ON CONFLICT DO NOTHING RETURNING user_id, NULL::bigint AS was, {points} AS is_now)`

	// inserts members $2 to $3; each has $4 points more than the member before
	join = `moved AS (
		INSERT INTO {board} (guild_id, user_id, {points}) SELECT $1, n::text, n * $4::bigint FROM generate_series($2::int, $3::int) n
		RETURNING user_id, NULL::bigint AS was, {points} AS is_now)`

	// gives members $2 to $3 $4 points more
	raise = `moved AS (
		UPDATE {board} SET {points} = {points} + $4 WHERE guild_id = $1 AND user_id IN (SELECT n::text FROM generate_series($2::int, $3::int) n)
		RETURNING user_id, {points} - $4 AS was, {points} AS is_now)`
)

// change changes rows in one of these ways.
func (b board) change(t testing.TB, d *db.DB, way string, args ...any) {
	t.Helper()
	do(t, d, b.ranks.Noted("moved", "$1", `WITH `+b.sql(way)+`, :rank SELECT`).For(64), args...)
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

// ask requests the Maintainer for all leaderboards. Without ask, one change in 64 does so. The
// requests are as many as a leaderboard needs that nobody reads.
func ask(t testing.TB, d *db.DB) {
	t.Helper()
	do(t, d, `INSERT INTO rank_requests (guild_id, board)
		SELECT id, b FROM guilds, (VALUES ('wallets'), ('levels')) v (b), generate_series(1, 32)`)
}

// compare compares pages and ranks with the sorted list of the same snapshot, and reports whether a
// rank index was in use.
func compare(t *testing.T, d *db.DB, b board, guild string) (mapped bool) {
	t.Helper()
	err := d.Snapshot(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		deep := b.ranks.Texts()["deep"]
		var all []leaderboard.Row
		if err := tx.SelectContext(ctx, &all, b.sql(sorted), guild); err != nil {
			return err
		}
		if err := tx.GetContext(ctx, &mapped, `
			SELECT EXISTS (SELECT FROM rank_indexes WHERE (board, guild_id, state) = ($1, $2, 'live'))`, b.table, guild); err != nil {
			return err
		}
		for range 12 {
			from, n := rand.IntN(len(all)+3), 1+rand.IntN(30)
			var got []leaderboard.Row
			if err := tx.SelectContext(ctx, &got, deep, guild, n, from); err != nil {
				return err
			}
			want := all[min(from, len(all)):min(from+n, len(all))]
			if !slices.Equal(got, want) {
				return fmt.Errorf("%s: %d rows after %d of %d\n got %v\nwant %v", b.table, n, from, len(all), got, want)
			}
			at := rand.IntN(len(all))
			rank, err := b.ranks.Rank(ctx, tx, guild, all[at].UserID, false)
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

// TestPagesAreExactWhileRowsMove checks that each page is the page of the sorted list, whatever is
// written meanwhile (equal points, new members and deleted members included), and in every state of
// the rank index: being drafted, counted or replaced. RELIABILITY.md, Writes.
func TestPagesAreExactWhileRowsMove(t *testing.T) {
	t.Parallel()
	for _, b := range leaderboards {
		t.Run(b.table, func(t *testing.T) {
			t.Parallel()
			d := dbtest.New(t).DB
			dbtest.AddGuilds(t, d, "1", "2")
			do(t, d, `INSERT INTO `+b.table+` (guild_id, user_id, `+b.points+`)
				SELECT g, n::text, n % 40 FROM generate_series(1, 600) n, (VALUES ('1'), ('2')) v (g)`)
			if compare(t, d, b, "1") {
				t.Fatal("there is a rank index before there is a maintainer")
			}
			// Each comparison lets as many changes and rounds happen beside it. Without this, a
			// loaded machine makes many times more of them for a comparison.
			changes, rounds := make(chan struct{}, 40), make(chan struct{}, 4)
			var wg sync.WaitGroup
			defer func() {
				close(changes)
				close(rounds)
				wg.Wait()
			}()
			for range 6 {
				wg.Go(func() {
					for range changes {
						guild, user := fmt.Sprint(1+rand.IntN(2)), fmt.Sprint(1+rand.IntN(900))
						switch rand.IntN(12) {
						case 0:
							b.change(t, d, leave, guild, user)
						case 1:
							b.change(t, d, flip, guild)
						default:
							b.change(t, d, set, guild, user, rand.IntN(45))
						}
					}
				})
			}
			for range 2 {
				wg.Go(func() {
					// Close checkpoints and a low threshold: rank indexes are replaced all the
					// time.
					k := &leaderboard.Maintainer{DB: d, Stretch: 7 + rand.IntN(3), Least: 50}
					for range rounds {
						if err := k.Maintain(context.Background()); err != nil {
							t.Errorf("a round of the maintainer: %v", err)
							return
						}
						if rand.IntN(3) == 0 {
							ask(t, d)
						}
						if rand.IntN(20) == 0 {
							do(t, d, `DELETE FROM rank_indexes WHERE state = 'live' AND guild_id = '1'`)
						}
					}
				})
			}
			wg.Go(func() {
				for range changes {
					b.change(t, d, joinLate, "1")
				}
			})
			mapped, begun := 0, time.Now()
			for mapped < 60 && time.Since(begun) < 3*time.Minute && !t.Failed() {
				for _, guild := range []string{"1", "2"} {
					testutil.Refill(changes)
					testutil.Refill(rounds)
					if compare(t, d, b, guild) {
						mapped++
					}
				}
			}
			if mapped < 60 {
				t.Fatalf("only %d of the comparisons had a rank index in service", mapped)
			}
		})
	}
}

// Recorded moves do not accumulate, and a rank index whose checkpoints have grown far apart is
// replaced.
func TestKeeperAddsUpMovesAndRedraws(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2")
	wallets := leaderboards[0]
	wallets.change(t, d, join, "1", 1, 500, 10)
	wallets.change(t, d, join, "2", 1, 49, 10)
	k := &leaderboard.Maintainer{DB: d, Stretch: 10, Least: 50}
	read := func(query string) (n int64) {
		t.Helper()
		if err := d.Reader().GetContext(ctx, &n, query); err != nil {
			t.Fatal(err)
		}
		return n
	}
	maintain := func(until string, want int64) {
		t.Helper()
		testutil.Eventually(t, fmt.Sprintf("%s is %d", until, want), func() bool {
			ask(t, d)
			if err := k.Maintain(ctx); err != nil {
				t.Fatal(err)
			}
			return read(until) == want
		})
	}
	const live = `SELECT count(*) FROM rank_indexes WHERE state = 'live'`
	maintain(live, 1)
	if n := read(`SELECT count(*) FROM rank_indexes WHERE guild_id = '2'`); n != 0 {
		t.Error("a small leaderboard got a rank index")
	}
	wallets.change(t, d, raise, "1", 1, 500, 0)
	wallets.change(t, d, raise, "2", 1, 49, 300)
	if n := read(`SELECT count(*) FROM rank_moves`); n != 0 {
		t.Errorf("%d moves were noted where nothing moves or there is no rank index", n)
	}
	wallets.change(t, d, raise, "1", 1, 500, 300)
	if n := read(`SELECT count(*) FROM rank_moves`); n != 500 {
		t.Errorf("%d moves were noted for 500 rows that moved", n)
	}
	compare(t, d, wallets, "1")
	maintain(`SELECT count(*) FROM rank_moves`, 0)
	compare(t, d, wallets, "1")

	replaced := func(by string, args ...any) {
		t.Helper()
		before := read(`SELECT max(version) FROM rank_indexes`)
		wallets.change(t, d, by, args...)
		compare(t, d, wallets, "1")
		maintain(fmt.Sprintf(`SELECT count(*) FROM rank_indexes WHERE state = 'live' AND version > %d`, before), 1)
		compare(t, d, wallets, "1")
	}
	replaced(join, "1", 1001, 1300, 1)
	replaced(join, "1", 2001, 2300, 0) // behind the last checkpoint
	maintain(`SELECT count(*) FROM rank_indexes`, 1)
}

// A guild that has grown large requests its own rank index. If no Maintainer runs for long, the
// rank index is deleted, so that neither moves nor requests accumulate.
func TestALeaderboardAsksForItsKeeper(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2")
	wallets := leaderboards[0]
	join := func(guild string, from, to int) {
		t.Helper()
		for ; from <= to; from += 64 { // the maximum of changes in one statement
			wallets.change(t, d, join, guild, from, min(from+63, to), 10)
		}
	}
	join("1", 1, 5000)
	join("2", 1, 500)
	read := func(query string) (n int64) {
		t.Helper()
		if err := d.Reader().GetContext(ctx, &n, query); err != nil {
			t.Fatal(err)
		}
		return n
	}
	k := &leaderboard.Maintainer{DB: d}
	settle := func() {
		t.Helper()
		testutil.Eventually(t, "there is a rank index, and no notes are left", func() bool {
			if err := k.Maintain(ctx); err != nil {
				t.Fatal(err)
			}
			return read(`SELECT count(*) FROM rank_indexes WHERE state = 'live' AND guild_id = '1'`) == 1 &&
				read(`SELECT (SELECT count(*) FROM rank_requests) + (SELECT count(*) FROM rank_moves)`) == 0
		})
	}
	settle()
	if n := read(`SELECT count(*) FROM rank_indexes WHERE guild_id = '2'`); n != 0 {
		t.Error("a small leaderboard got a rank index")
	}
	for range 6 {
		for from := 1; from <= 5000; from += 64 {
			wallets.change(t, d, raise, "1", from, min(from+63, 5000), 1+rand.IntN(9000))
		}
	}
	if n := read(`SELECT count(*) FROM rank_indexes`); n != 0 {
		t.Errorf("%d rank indexes are left after 30,000 moves that nobody has added up", n)
	}
	// The moment of the deletion is random, because one change in 64 sends a request. From then on
	// no moves are recorded. The statement that finds too many requests sends the last one.
	moves, notes := read(`SELECT count(*) FROM rank_moves`), read(`SELECT count(*) FROM rank_requests`)
	for from := 1; from <= 5000; from += 64 {
		wallets.change(t, d, raise, "1", from, min(from+63, 5000), 1+rand.IntN(9000))
	}
	if now := read(`SELECT count(*) FROM rank_moves`); now != moves || moves >= 30_000 {
		t.Errorf("%d moves were noted before the rank index was given up, and %d after", moves, now-moves)
	}
	if now := read(`SELECT count(*) FROM rank_requests`); now != notes || notes > 256+64 { // a statement changes 64 rows
		t.Errorf("%d notes have piled up, and %d since the rank index was given up", notes, now-notes)
	}
	compare(t, d, wallets, "1")
	join("1", 10_001, 13_000)
	settle()
	compare(t, d, wallets, "1")
}

// One statement may move rows of several guilds, and records the moves for each guild's rank index.
func TestAStatementNotesForSeveralGuilds(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2", "3")
	do(t, d, `INSERT INTO rank_indexes (guild_id, board, version, state)
		VALUES ('1', 'wallets', 1, 'live'), ('1', 'wallets', 2, 'draft'), ('2', 'wallets', 7, 'live'), ('3', 'levels', 8, 'live')`)
	do(t, d, leaderboard.Wallets.Noted("moved", "moved.guild_id", `
		WITH moved AS (
			INSERT INTO wallets (guild_id, user_id, balance) VALUES ('1', '5', 10), ('2', '6', 20), ('3', '7', 30)
			RETURNING guild_id, user_id, NULL::bigint AS was, balance AS is_now
		), :rank SELECT`).For(64))
	var got []string
	if err := d.Reader().SelectContext(t.Context(), &got, `
		SELECT concat_ws(' ', guild_id, board, version, user_id, coalesce(was::text, 'none'), is_now) FROM rank_moves
		ORDER BY guild_id, version`); err != nil {
		t.Fatal(err)
	}
	if want := []string{"1 wallets 1 5 none -10", "1 wallets 2 5 none -10", "2 wallets 7 6 none -20"}; !slices.Equal(got, want) {
		t.Errorf("noted are %q, want %q", got, want)
	}
}

// While a node reads the leaderboard, its moves are added up soon, otherwise only when there are
// many. Pages and ranks are exact all the time.
func TestMovesOfALeaderboardThatNobodyReadsWait(t *testing.T) {
	t.Parallel()
	for _, b := range leaderboards {
		d := dbtest.New(t).DB
		dbtest.AddGuilds(t, d, "1", "2")
		for _, guild := range []string{"1", "2"} {
			b.change(t, d, join, guild, 1, 100, 10)
		}
		k := &leaderboard.Maintainer{DB: d, Stretch: 10, Least: 50}
		round := func() {
			t.Helper()
			if err := k.Maintain(t.Context()); err != nil {
				t.Fatal(err)
			}
			compare(t, d, b, "1")
		}
		request := func(times int) {
			t.Helper()
			do(t, d, `INSERT INTO rank_requests (guild_id, board) SELECT '1', $1 FROM generate_series(1, $2::int)`, b.table, times)
		}
		moves := func(want int, when string) {
			t.Helper()
			if n := dbtest.Value[int](t, d, `SELECT count(*) FROM rank_moves WHERE guild_id = '1'`); n != want {
				t.Errorf("%s: %d moves wait %s, want %d", b.table, n, when, want)
			}
		}
		request(1) // without a rank index, one is drafted at once, even if nobody reads
		testutil.Eventually(t, "a rank index", func() bool {
			round()
			return dbtest.Value[int](t, d, `SELECT count(*) FROM rank_indexes WHERE guild_id = '1' AND state = 'live'`) == 1
		})
		do(t, d, `DELETE FROM rank_requests WHERE guild_id = '1'`)

		b.change(t, d, raise, "1", 1, 50, 300)
		do(t, d, `DELETE FROM rank_requests WHERE guild_id = '1'`)
		request(31)
		round()
		moves(50, "for a reader")
		request(1)
		round()
		moves(0, "after 32 requests")

		b.change(t, d, raise, "1", 1, 50, 300)
		request(1)
		count := usage.NewCounter()
		count.Count(usage.Request{Guild: "1", Token: "t", Operation: "getWallet", Status: 200, At: time.Now()})
		count.Count(usage.Request{Guild: "2", Token: "t", Operation: b.operation, Status: 200, At: time.Now()})
		if err := count.Flush(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		round()
		moves(50, "while others are read")
		count.Count(usage.Request{Guild: "1", Token: "t", Operation: b.operation, Status: 200, At: time.Now()})
		if err := count.Flush(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		round()
		moves(0, "while it is read")
		do(t, d, `UPDATE usage_hours SET hour = $1`, time.Now().Add(-3*time.Hour).Truncate(time.Hour))
		b.change(t, d, raise, "1", 1, 50, 300)
		request(1)
		round()
		moves(50, "three hours later")
	}
}

// If the Maintainer fails at one leaderboard, it still serves the others.
func TestOneLeaderboardsTroubleIsNotTheOthers(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2")
	do(t, d, `INSERT INTO rank_indexes (guild_id, board, version, state, ahead) VALUES ('1', 'wallets', 1, 'live', '{9223372036854775807}')`)
	do(t, d, `
		INSERT INTO rank_checkpoints (guild_id, board, version, number, depth, length, user_id)
		VALUES ('1', 'wallets', 1, 1, 9223372036854775807, 0, '')`)
	do(t, d, `INSERT INTO rank_moves (guild_id, board, version, user_id, is_now) VALUES ('1', 'wallets', 1, '7', -5)`)
	leaderboards[0].change(t, d, join, "2", 1, 60, 1)
	ask(t, d)
	k := &leaderboard.Maintainer{DB: d, Stretch: 10, Least: 50}
	if err := k.Maintain(t.Context()); err == nil || !strings.Contains(err.Error(), "guild 1") {
		t.Fatalf("the first round ends with %v", err)
	}
	testutil.Eventually(t, "the other guild has a rank index", func() bool {
		_ = k.Maintain(t.Context()) // fails at guild 1 sometimes
		return dbtest.Value[int](t, d, `SELECT count(*) FROM rank_indexes WHERE guild_id = '2' AND state = 'live'`) == 1
	})
}

// Drafts that wait for a transaction do not delay the drafts of other guilds, and one round
// advances many drafts: after an upgrade there is one for each guild.
func TestDraftsThatWaitKeepNoOthersFromService(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	const guilds = 300
	do(t, d, `INSERT INTO guilds (id, name, owner_id) SELECT n::text, 'g', '1' FROM generate_series(1, $1::int) n`, guilds)
	do(t, d, `INSERT INTO rank_indexes (guild_id, board, version, state, ahead)
		SELECT g.id, b, 1, 'draft', '{}' FROM guilds g, unnest('{levels,wallets}'::text[]) b`)
	k := &leaderboard.Maintainer{DB: d}
	served := func(board string) int {
		return dbtest.Value[int](t, d, `SELECT count(*) FROM rank_indexes WHERE board = $1 AND state = 'live'`, board)
	}
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.TakeTime(ctx, 0); err != nil { // with a coordinator, the rounds take longer than the timeout of a unit of work
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE wallets SET balance = 1 WHERE guild_id = '1'`); err != nil {
			return err
		}
		for round := 0; round < 10 && served("levels") < guilds; round++ {
			if err := k.Maintain(t.Context()); err != nil {
				return err
			}
		}
		if n := served("levels"); n != guilds {
			t.Errorf("%d of %d rank indexes of levels are in service after ten rounds", n, guilds)
		}
		if n := served("wallets"); n != 0 {
			t.Errorf("%d rank indexes of wallets are in service beside a transaction that may have moved rows unnoted", n)
		}
		return nil
	})
	for round := 0; round < 10 && served("wallets") < guilds; round++ {
		if err := k.Maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !k.Busy() {
			t.Error("after a round with drafts the maintainer takes its time")
		}
	}
	if n := served("wallets"); n != guilds {
		t.Errorf("%d of %d rank indexes of wallets are in service after the transaction", n, guilds)
	}
}

// BenchmarkIdleRound measures a round of the Maintainer when nothing has changed. The cost does not
// grow with the number of guilds.
func BenchmarkIdleRound(b *testing.B) {
	for _, guilds := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(guilds), func(b *testing.B) {
			ctx := context.Background()
			d := dbtest.New(b).DB
			dbtest.Exec(b, d, fmt.Sprintf(`INSERT INTO guilds (id, name, owner_id) SELECT n::text, 'g', '1'
				FROM generate_series(1, %d) n`, guilds))
			dbtest.Exec(b, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT id, '1', 5 FROM guilds`)
			do(b, d, `DELETE FROM rank_requests`)
			do(b, d, `ANALYZE guilds, wallets, rank_requests`)
			k := &leaderboard.Maintainer{DB: d}
			for b.Loop() {
				if err := k.Maintain(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// If several queries request the same page, the page is read once, and each query gets its own
// copy.
func TestPagesThatSeveralAskForAreReadOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `INSERT INTO guilds (id, name, owner_id) VALUES ('g', 'g', '1')`)
	for _, b := range leaderboards {
		dbtest.Fill(t, d, b.sql(`INSERT INTO {board} (guild_id, user_id, {points}) SELECT 'g', n::text, 100 - n FROM generate_series(1, 20) n`))
		seen := &counted{Querier: d.Reader()}
		var queries []*leaderboard.Query
		for n := range 24 {
			queries = append(queries, &leaderboard.Query{Guild: "g", P: page.Of(1+n%3, 5+n%2), Present: n%4 == 0})
		}
		if err := b.ranks.Answer(t.Context(), seen, queries); err != nil {
			t.Fatal(err)
		}
		if seen.n != 9 { // three of them in both forms
			t.Errorf("%s: %d statements for 9 pages", b.table, seen.n)
		}
		for _, q := range queries {
			want, err := b.ranks.Page(t.Context(), d.Reader(), "g", q.P, q.Present)
			if err != nil || !slices.Equal(q.Rows, want) || len(want) == 0 {
				t.Errorf("%s, page %d of %d: %v, and by itself %v, %v", b.table, q.Page, q.PerPage, q.Rows, want, err)
			}
		}
	}
}

// counted counts SELECT statements.
type counted struct {
	db.Querier
	n int
}

func (c *counted) SelectContext(ctx context.Context, dest any, query string, args ...any) error {
	c.n++
	return c.Querier.SelectContext(ctx, dest, query, args...)
}

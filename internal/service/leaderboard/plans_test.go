package leaderboard_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/service/leaderboard"
)

// Each read of a large leaderboard uses only its index, in the index's order; and the number of
// pages that it reads does not grow with the number of the page.
func TestReadsAreServedFromTheIndexAlone(t *testing.T) {
	t.Parallel()
	onCrowdedBoards(t, func(t *testing.T, base *dbtest.Database, b board) {
		d := base.DB
		vacuumed(t, base, b.table, "rank_indexes", "rank_checkpoints")
		texts := b.ranks.Texts()
		first, deep, rank := texts["first"], texts["deep"], texts["rank"]
		for what, plan := range map[string]string{
			"page 1":     dbtest.Plan(t, d, first, "1", 26, 0),
			"page 39":    dbtest.Plan(t, d, first, "1", 26, 950),
			"page 600":   dbtest.Plan(t, d, deep, "1", 26, 14975),
			"page 1,400": dbtest.Plan(t, d, deep, "1", 26, 34975),
			"rank":       dbtest.Plan(t, d, rank, "1", "17500"),
		} {
			fromIndexAlone(t, b, what, plan)
		}
		if plan := dbtest.Plan(t, d, first, "1", 26, 0); !strings.Contains(plan, "$1") {
			t.Errorf("page 1 is planned for each use:\n%s", plan)
		}
		shallow, far := touched(t, d, first, "'1', 26, 0"), touched(t, d, deep, "'1', 26, 34975")
		if shallow > 10 || far > 40 {
			t.Errorf("page 1 touches %d pages of the database and page 1,400 %d", shallow, far)
		}
		behind := dbtest.Value[string](t, d, b.sql(`
			SELECT user_id FROM {board} WHERE guild_id = '1' AND {points} < 25000 ORDER BY {points} DESC LIMIT 1`))
		// A member with unique points, one among thousands without points, and the first behind
		// thousands with equal points.
		for _, member := range []string{"17500", "10002", behind} {
			if far := touched(t, d, rank, "'1', '"+member+"'"); far > 40 {
				t.Errorf("the rank of %s touches %d pages of the database", member, far)
			}
		}
		// The total is stored, and not counted for each rank.
		var known int
		if err := d.Reader().GetContext(t.Context(), &known, `
			SELECT ahead[cardinality(ahead)]
			FROM rank_indexes
			WHERE guild_id = '1'`); err != nil || known != 35000 {
			t.Errorf("%d rows lie ahead of the last mark, want all 35000 (%v)", known, err)
		}
	})
}

var passedOver = regexp.MustCompile(`Rows Removed by Filter: \d{2,}`)

// Autovacuum runs up to a minute after a rank index was created; until then Postgres has no
// statistics of its checkpoints. Even then, a read does not go through all checkpoints.
func TestMarksAreFoundWithoutStatistics(t *testing.T) {
	t.Parallel()
	onCrowdedBoards(t, func(t *testing.T, base *dbtest.Database, b board) {
		deep, rank := b.ranks.Texts()["deep"], b.ranks.Texts()["rank"]
		for what, plan := range map[string]string{
			"page 1,400": analyzed(t, base.DB, 8, deep, "'1', 26, 34975"),
			"rank":       analyzed(t, base.DB, 8, rank, "'1', '17500'"),
		} {
			if found := passedOver.FindString(plan); found != "" {
				t.Errorf("%s: %s\n%s", what, found, plan)
			}
		}
	})
}

// onCrowdedBoards runs a test on each of the leaderboards, in a database that crowd has filled.
func onCrowdedBoards(t *testing.T, test func(t *testing.T, base *dbtest.Database, b board)) {
	t.Helper()
	for _, b := range leaderboards {
		t.Run(b.table, func(t *testing.T) {
			t.Parallel()
			base := dbtest.New(t)
			crowd(t, base, b)
			test(t, base, b)
		})
	}
}

// crowd creates a leaderboard of 35,000 members in one guild, a second guild, and rank indexes. A
// third of the members have no points, and another third have equal points.
func crowd(t *testing.T, base *dbtest.Database, b board) {
	t.Helper()
	d := base.DB
	dbtest.AddGuilds(t, d, "1", "2")
	dbtest.Fill(t, d, b.sql(`
		INSERT INTO {board} (guild_id, user_id, {points})
		SELECT guild, n::text, CASE n % 3 WHEN 0 THEN 0 WHEN 2 THEN 25000 ELSE (n::bigint * 7919) % 50000 END
		FROM (VALUES ('1', 35000), ('2', 20000)) AS g (guild, total), generate_series(1, total) n`))
	do(t, d, b.sql(`ANALYZE {board}`)) // as an import does
	do(t, d, `INSERT INTO rank_requests (guild_id, board) VALUES ('1', $1), ('2', $1)`, b.table)
	k := &leaderboard.Maintainer{DB: d}
	testutil.Eventually(t, "both guilds have rank indexes", func() bool {
		if err := k.Maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
		return dbtest.Value[int](t, d, `SELECT count(*) FROM rank_indexes WHERE state = 'live'`) == 2
	})
}

// vacuumed returns after VACUUM and ANALYZE of the tables, when their rows are known to be visible to
// every transaction.
func vacuumed(t testing.TB, base *dbtest.Database, tables ...string) {
	t.Helper()
	pool, err := db.OpenSQL(base.URL, "vacuum", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	// Rows that are not yet visible to every session are read from the table.
	testutil.Eventually(t, "the tables are vacuumed", func() (clean bool) {
		if _, err := pool.ExecContext(t.Context(), `VACUUM ANALYZE `+strings.Join(tables, ", ")); err != nil {
			t.Fatal(err)
		}
		row := pool.QueryRowContext(t.Context(), `
			SELECT bool_and(relallvisible = relpages)
			FROM pg_class
			WHERE oid = ANY (SELECT t::regclass FROM unnest($1::text[]) t)`, db.Array(tables))
		if err := row.Scan(&clean); err != nil {
			t.Fatal(err)
		}
		return clean
	})
}

// fromIndexAlone fails the test unless the plan reads the board's table only through indexes and
// without a sort.
func fromIndexAlone(t *testing.T, b board, what, plan string) {
	t.Helper()
	found := false
	for line := range strings.Lines(plan) {
		switch {
		case strings.Contains(line, "Index Only Scan using "+b.table+"_ranked on "+b.table):
			found = true
		case strings.Contains(line, " on "+b.table+" ") && !strings.Contains(line, "Scan using "+b.table+"_pkey"),
			strings.HasSuffix(strings.TrimSpace(line), " on "+b.table) && !strings.Contains(line, "Scan using "+b.table+"_pkey"),
			strings.Contains(line, "Sort Key") && strings.Contains(line, b.points):
			t.Errorf("%s of the %s: %s\n%s", what, b.table, line, plan)
		}
	}
	if !found {
		t.Errorf("%s of the %s is not read from the index alone:\n%s", what, b.table, plan)
	}
}

var parameter = regexp.MustCompile(`\$\d`)

var hits = regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`)

// touched returns how many pages of the database a statement reads on a connection that has run the
// statement often.
func touched(t *testing.T, d *db.DB, statement, args string) (pages int) {
	t.Helper()
	plan := analyzed(t, d, 8, statement, args)
	m := hits.FindStringSubmatch(plan)
	if m == nil {
		t.Fatalf("the plan counts no pages:\n%s", plan)
	}
	for _, n := range m[1:] {
		count, _ := strconv.Atoi(n)
		pages += count
	}
	return pages
}

// analyzed returns the plan of a statement as it was executed, after the given number of runs on
// the same connection. The transaction is rolled back.
func analyzed(t *testing.T, d *db.DB, before int, statement, args string) string {
	t.Helper()
	undo := errors.New("nothing of this is to stay")
	var lines []string
	err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `PREPARE counted AS `+statement); err != nil {
			return err
		}
		for range before {
			if _, err := tx.ExecContext(ctx, `EXECUTE counted(`+args+`)`); err != nil {
				return err
			}
		}
		counted := `EXECUTE counted(` + args + `)`
		if dbtest.Coordinator(t) { // the workers report what a statement reads, except for a prepared statement
			counted = parameter.ReplaceAllStringFunc(statement, func(p string) string {
				n, _ := strconv.Atoi(p[1:])
				return strings.Split(args, ", ")[n-1]
			})
		}
		if err := tx.SelectContext(ctx, &lines, `EXPLAIN (ANALYZE, BUFFERS, TIMING off) `+counted); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DEALLOCATE counted`); err != nil {
			return err
		}
		return undo
	})
	if !errors.Is(err, undo) {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// Postgres can plan each statement about leaderboards for both tables, also where tables are
// distributed. With -v the test prints the statements.
func TestEachStatementIsPlanned(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	for name, b := range map[string]leaderboard.Board{"wallets": leaderboard.Wallets, "levels": leaderboard.Levels} {
		for statement, text := range b.Texts() {
			texts[name+", "+statement] = text
		}
		noted := b.Noted("moved", "$1", `WITH moved AS (SELECT $2::text AS user_id, $3::bigint AS was, $4::bigint AS is_now), :rank SELECT`)
		texts[name+", noted"], texts[name+", noted, asking"] = noted.For(0), noted.For(1000)
	}
	dbtest.WantPlanned(t, dbtest.New(t).DB, texts)
}

// A rank index has thousands of checkpoints, and thousands of moves may have to be added up at
// once. The plan must not join the two: when Postgres expects few of both, it compares every pair,
// which took sixteen seconds with 5,900 moves and a million members.
func TestMovesAreAddedUpInOneWalk(t *testing.T) {
	t.Parallel()
	onCrowdedBoards(t, func(t *testing.T, base *dbtest.Database, b board) {
		d := base.DB
		b.change(t, d, raise, "1", 10_001, 12_000, 5)
		fold := b.ranks.Texts()["fold"]
		version := dbtest.Value[int64](t, d, `SELECT version FROM rank_indexes WHERE guild_id = '1'`)
		plan := analyzed(t, d, 0, fold, fmt.Sprintf("'1', %d", version))
		if !strings.Contains(plan, "rows=2000") || strings.Contains(plan, "Left Join") {
			t.Errorf("2,000 moves are added up so:\n%s", plan)
		}
	})
}

// An import of 16,384 wallets records its moves in one statement, also when so many requests are
// waiting that the rank index is deleted. The plan must not pair the moves with each other: that
// made an import of 30,000 wallets take 141 s instead of 7.
func TestAMapIsGivenUpWithoutPairingTheMoves(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	do(t, d, `INSERT INTO rank_indexes (guild_id, board, version, state) VALUES ('1', 'wallets', 1, 'live')`)
	do(t, d, `INSERT INTO rank_requests (guild_id, board) SELECT '1', 'wallets' FROM generate_series(1, 300)`)
	many := leaderboard.Wallets.Noted("moved", "$1", `
		WITH moved AS MATERIALIZED (
			SELECT n::text AS user_id, 0::bigint AS was, n::bigint AS is_now FROM generate_series(1, 2000) n
		), :rank SELECT`).For(1000)
	plan := analyzed(t, d, 0, many, `'1'`)
	if !strings.Contains(plan, "Delete on rank_indexes") {
		t.Fatalf("no rank index is given up:\n%s", plan)
	}
	for _, m := range regexp.MustCompile(`rows=(\d+)(?:\.\d+)? loops=(\d+)`).FindAllStringSubmatch(plan, -1) {
		rows, _ := strconv.Atoi(m[1])
		loops, _ := strconv.Atoi(m[2])
		if rows*loops > 10_000 {
			t.Errorf("2,000 moves are noted with %d rows:\n%s", rows*loops, plan)
		}
	}
}

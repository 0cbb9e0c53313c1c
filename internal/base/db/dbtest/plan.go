package dbtest

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
)

// Plan returns Postgres' plan for query as a busy connection has it: the
// statement is prepared and has run more often than it takes Postgres to settle
// for a plan that serves all arguments. The caller has filled the tables and
// run ANALYZE.
func Plan(t testing.TB, d *db.DB, query string, args ...any) string {
	t.Helper()
	literals := make([]string, len(args))
	for i, a := range args {
		v, err := driver.DefaultParameterConverter.ConvertValue(a)
		if err != nil {
			t.Fatalf("argument %d: %v", i+1, err)
		}
		if at, ok := v.(time.Time); ok {
			v = at.UTC().Format(time.RFC3339Nano)
		}
		literals[i] = "NULL"
		if v != nil {
			literals[i] = "'" + strings.ReplaceAll(fmt.Sprint(v), "'", "''") + "'"
		}
	}
	execute := "EXECUTE planned"
	if len(args) > 0 {
		execute += "(" + strings.Join(literals, ", ") + ")"
	}
	if d.Distributed() {
		query = db.Distributed(query)
	}
	var lines []string
	undo := errors.New("nothing of this is to stay")
	err := d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, "PREPARE planned AS "+query); err != nil {
			return err
		}
		for range 8 {
			if _, err := tx.ExecContext(ctx, execute); err != nil {
				return err
			}
		}
		if err := tx.SelectContext(ctx, &lines, "EXPLAIN (COSTS OFF) "+execute); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DEALLOCATE planned"); err != nil {
			return err
		}
		return undo
	})
	if !errors.Is(err, undo) {
		t.Fatalf("plan the query: %v\n%s", err, query)
	}
	return shardSuffix.ReplaceAllString(strings.Join(lines, "\n"), "")
}

var (
	reading = regexp.MustCompile(`(Seq Scan|Sort|Bitmap Heap Scan)`)
	// From 16 on Postgres sorts for an aggregate of distinct values in the open.
	sortOfCTE = regexp.MustCompile(`Sort\n *Sort Key: .*\n *->  CTE Scan`)
)

// WantIndex fails the test unless query reads exactly through the named index,
// in its order: no table read whole and nothing sorted. A worker of a coordinator
// plans each statement for its values, and may find another index cheaper, or to sort
// what it leads to; what counts there is that nothing is read whole.
func WantIndex(t testing.TB, d *db.DB, index, query string, args ...any) {
	t.Helper()
	plan := Plan(t, d, query, args...)
	good := strings.Contains(plan, " using "+index+" ") && !reading.MatchString(sortOfCTE.ReplaceAllString(plan, "CTE Scan"))
	if Coordinator(t) {
		good = strings.Contains(plan, "Index ") && !strings.Contains(plan, "Seq Scan")
	}
	if !good {
		t.Errorf("the query does not read in the order of %s:\n%s\n%s", index, plan, query)
	}
}

// WantPlannedOnce is WantIndex for a query that Postgres, besides, plans once for a
// connection and not for each use: what it looks up are parameters still.
func WantPlannedOnce(t testing.TB, d *db.DB, index, query string, args ...any) {
	t.Helper()
	WantIndex(t, d, index, query, args...)
	if plan := Plan(t, d, query, args...); !strings.Contains(plan, "$1") {
		t.Errorf("the query is planned for each use:\n%s\n%s", plan, query)
	}
}

// WantOnePlan uses statements again and again in one unit, and fails the test unless there
// are so many with this part in their text, and Postgres has planned each for single uses
// five times at most: so often it does before it settles for one plan. A coordinator
// plans for its shards, which is not counted.
func WantOnePlan(t testing.TB, d *db.DB, statements int, part string, use func(ctx context.Context, tx *db.Tx, i int) error) {
	t.Helper()
	if Coordinator(t) {
		return
	}
	Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		for i := range 30 {
			if err := use(ctx, tx, i); err != nil {
				return err
			}
		}
		plans, err := db.Select[int](ctx, tx, `
			SELECT custom_plans FROM pg_prepared_statements
			WHERE strpos(statement, $1) > 0 AND generic_plans + custom_plans > 20`, part)
		if err == nil && (len(plans) != statements || slices.Max(plans) > 5) {
			t.Errorf("of 30 uses of each of %d statements so many were planned by themselves: %v", statements, plans)
		}
		return err
	})
}

// WantKeyed fails the test unless the query narrows the table by keys before it joins, in a
// guild that the table's statistics do not know. Postgres takes such a guild for one row, and
// would compare all of the guild with all that the query joins to it.
func WantKeyed(t testing.TB, d *db.DB, table, query string, args ...any) {
	t.Helper()
	plan := Plan(t, d, query, args...)
	scan := regexp.MustCompile(`(?:using \S+ on|Bitmap Heap Scan on|Seq Scan on) ` + table + `\b.*((?:\n\s*\w[\w ]*: .*)*)`)
	found := scan.FindAllStringSubmatch(plan, -1)
	for _, s := range found {
		if !strings.Contains(s[1], " = ANY (") {
			t.Errorf("the query reads %s by%s, no key\n%s\n%s", table, s[1], plan, query)
		}
	}
	if len(found) == 0 && !Coordinator(t) {
		t.Errorf("the query does not read %s:\n%s\n%s", table, plan, query)
	}
}

// shardSuffix ends the names of tables and indexes in the plans of a coordinator.
var shardSuffix = regexp.MustCompile(`_1\d{5}\b`)

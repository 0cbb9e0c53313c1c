package dbtest

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
)

// Plan returns the generic plan that a long-lived connection uses for query: the statement is
// prepared and executed often enough for Postgres to switch from custom plans to a generic one.
// Before the call, the test must fill the tables and run ANALYZE.
func Plan(t testing.TB, d *db.DB, query string, args ...any) string {
	t.Helper()
	return explain(t, d, "COSTS OFF", query, args...)
}

// explain is Plan with options of EXPLAIN.
func explain(t testing.TB, d *db.DB, options, query string, args ...any) string {
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
		if err := tx.SelectContext(ctx, &lines, "EXPLAIN ("+options+") "+execute); err != nil {
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
	// From version 16 on, Postgres shows the sort for an aggregate of distinct values as a plan
	// node.
	sortOfCTE = regexp.MustCompile(`Sort\n *Sort Key: .*\n *->  CTE Scan`)
)

// WantIndex fails the test unless query reads only through the named index and in the index's
// order, without a sequential scan or a sort. On a Citus cluster the workers plan each execution
// for its values and may choose another index or a sort; there WantIndex only requires that no
// table is read whole.
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

// WantFound fails the test unless query looks rows up in the named index of table, finds as many
// as rows says, and reads no other row: not of the guild, and not of others. It says nothing of
// a coordinator, whose workers plan for their shards.
func WantFound(t testing.TB, d *db.DB, table, index string, rows int, query string, args ...any) {
	t.Helper()
	if Coordinator(t) {
		return
	}
	plan := explain(t, d, "ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF", query, args...)
	found := regexp.MustCompile(`Bitmap Heap Scan on ` + table + ` \(actual rows=(\d+)`).FindStringSubmatch(plan)
	if found == nil || found[1] != strconv.Itoa(rows) || !strings.Contains(plan, "Bitmap Index Scan on "+index+" ") ||
		strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Rows Removed") {
		t.Errorf("the query does not read %d rows of %s by %s:\n%s\n%s", rows, table, index, plan, query)
	}
}

// WantPlannedOnce is WantIndex, and also requires that Postgres uses a generic plan, which it makes
// once for a connection: the index conditions must still contain parameters.
func WantPlannedOnce(t testing.TB, d *db.DB, index, query string, args ...any) {
	t.Helper()
	WantIndex(t, d, index, query, args...)
	if plan := Plan(t, d, query, args...); !strings.Contains(plan, "$1") {
		t.Errorf("the query is planned for each use:\n%s\n%s", plan, query)
	}
}

// WantOnePlan runs `use` again and again in one transaction. It fails the test unless exactly the
// given number of statements have part in their text, and Postgres has made at most five custom
// plans for each of them, as it does before it switches to a generic plan. On a coordinator, which
// plans for its shards, the plans are not counted.
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

// WantKeyed fails the test unless the query looks up the table's rows by key before it joins, also
// for a guild that is missing from the table's statistics. Postgres estimates such a guild at one
// row, and would otherwise compare all rows of the guild with all joined rows.
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

// shardSuffix is the end of the names of shards and their indexes in a coordinator's plans.
var shardSuffix = regexp.MustCompile(`_1\d{5}\b`)

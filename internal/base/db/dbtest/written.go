package dbtest

import (
	"context"
	"database/sql"
	"os"
	"regexp"
	"sync"
	"testing"

	"guildhall/internal/base/db"
)

// forms holds the program's statements that EXPLAIN accepts, under the database of the test that
// first ran them in this process.
var forms = struct {
	sync.Mutex
	of    map[string][]string
	known map[string]bool
}{of: make(map[string][]string), known: make(map[string]bool)}

// hasPlan matches the beginning of a statement that EXPLAIN accepts.
var hasPlan = regexp.MustCompile(`^\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH)\b`)

// unplanned reports whether a statement has a plan and was not recorded before.
func unplanned(statement string) bool {
	forms.Lock()
	defer forms.Unlock()
	return !forms.known[statement] && hasPlan.MatchString(statement)
}

func noteForms(database, statement string) {
	forms.Lock()
	defer forms.Unlock()
	if !forms.known[statement] {
		forms.known[statement] = true
		forms.of[database] = append(forms.of[database], statement)
	}
}

// plansVariable asks tests to print the statements that they are the first to run, with
// their plans.
const plansVariable = "GUILDHALL_TEST_PLANS"

// printPlan prints a statement with its plan, if plansVariable asks for plans.
func printPlan(t testing.TB, form, statement, plan string) {
	t.Helper()
	if os.Getenv(plansVariable) != "" {
		t.Logf("%s:\n%s\n\n%s", form, statement, plan)
	}
}

// wantForms plans the distributed form of each statement that a test was the first to run,
// and fails the test where Postgres refuses that form: only a coordinator runs it otherwise.
// With plansVariable it prints the plans, and those of statements without such a form.
func wantForms(ctx context.Context, t testing.TB, url, database string) {
	t.Helper()
	forms.Lock()
	statements := forms.of[database]
	delete(forms.of, database)
	forms.Unlock()
	if len(statements) == 0 {
		return
	}
	pool, err := sql.Open("postgres", url) // db's own pools would send the coordinator's form in both cases
	if err != nil {
		t.Fatalf("open the test database: %v", err)
	}
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	for _, text := range statements {
		distributed := db.Distributed(text)
		if distributed == text && os.Getenv(plansVariable) == "" {
			continue
		}
		plan, err := plannedApart(ctx, pool, text)
		if err != nil { // the test has dropped or changed a table that the statement names
			continue
		}
		printPlan(t, "plain", text, plan)
		if distributed == text {
			continue
		}
		if plan, err = plannedApart(ctx, pool, distributed); err != nil {
			t.Errorf("the distributed form is no statement: %v\n%s", err, distributed)
		}
		printPlan(t, "distributed", distributed, plan)
	}
}

func plannedApart(ctx context.Context, pool *sql.DB, text string) (string, error) {
	if _, err := pool.ExecContext(ctx, `DEALLOCATE ALL`); err != nil {
		return "", err
	}
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback() }()
	return planned(ctx, tx, text)
}

// WantPlanned fails the test where Postgres has no plan for a statement or for its
// distributed form. With GUILDHALL_TEST_PLANS it prints the statements, as psql takes them,
// with their plans.
func WantPlanned(t testing.TB, d *db.DB, statements map[string]string) {
	t.Helper()
	for name, written := range statements {
		for form, text := range map[string]string{"plain": written, "distributed": db.Distributed(written)} {
			err := d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
				plan, err := planned(ctx, tx.Tx.Tx, text)
				printPlan(t, name+", "+form, text, plan)
				return err
			})
			if err != nil {
				t.Fatalf("%s, %s, is no statement: %v\n%s", name, form, err, text)
			}
		}
	}
}

// planned returns a plan that holds for any parameter values. Text parameters get a value all the
// same: Citus plans for the value of the guild, and without one it cannot plan a CTE that it
// evaluates first.
func planned(ctx context.Context, tx *sql.Tx, text string) (string, error) {
	for _, s := range []string{`SET LOCAL plan_cache_mode = force_generic_plan`, `PREPARE written AS ` + text} {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return "", err
		}
	}
	var values string
	err := tx.QueryRowContext(ctx, `
		SELECT coalesce('(' || string_agg(CASE WHEN type = 'text'::regtype THEN quote_literal('1') ELSE 'NULL' END, ', ' ORDER BY n) || ')', '')
		FROM pg_prepared_statements, unnest(parameter_types) WITH ORDINALITY AS p (type, n)
		WHERE name = 'written'`).Scan(&values)
	if err != nil {
		return "", err
	}
	rows, err := tx.QueryContext(ctx, `EXPLAIN EXECUTE written`+values)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	plan, line := "", ""
	for rows.Next() {
		if err := rows.Scan(&line); err != nil {
			return "", err
		}
		plan += line + "\n"
	}
	if err := rows.Err(); err != nil {
		return "", err
	}
	_, err = tx.ExecContext(ctx, `DEALLOCATE written`)
	return plan, err
}

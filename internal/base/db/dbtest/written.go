package dbtest

import (
	"context"
	"database/sql"
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

// wantForms runs EXPLAIN on the statements that a test was the first to run, and logs their full
// text. It also explains the form for a coordinator, if that differs: otherwise only a coordinator
// would parse that form.
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
		plan, err := plannedApart(ctx, pool, text)
		if err != nil {
			t.Logf("the test has taken away what this statement needs: %v\n%s", err, text)
			continue
		}
		t.Logf("%s\n\n%s", text, plan)
		one := db.Distributed(text)
		if one == text {
			continue
		}
		if plan, err = plannedApart(ctx, pool, one); err != nil {
			t.Errorf("the distributed form is no statement: %v\n%s", err, one)
		}
		t.Logf("distributed:\n%s\n\n%s", one, plan)
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

// WantPlanned logs the full text of statements, as psql accepts it, with their plans and the plans
// of their distributed form. It fails the test if Postgres cannot plan one.
func WantPlanned(t testing.TB, d *db.DB, statements map[string]string) {
	t.Helper()
	for name, written := range statements {
		for form, text := range map[string]string{"plain": written, "distributed": db.Distributed(written)} {
			err := d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
				plan, err := planned(ctx, tx.Tx.Tx, text)
				t.Logf("%s, %s:\n%s\n\n%s", name, form, text, plan)
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

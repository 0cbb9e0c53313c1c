package dbtest

import (
	"context"
	"database/sql"
	"regexp"
	"sync"
	"testing"

	"guildhall/internal/base/db"
)

// forms are the statements of the program that have a plan, by the database of the test
// that was the first of this process to run them.
var forms = struct {
	sync.Mutex
	of    map[string][]string
	known map[string]bool
}{of: make(map[string][]string), known: make(map[string]bool)}

// hasPlan begins a statement that EXPLAIN takes.
var hasPlan = regexp.MustCompile(`^\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH)\b`)

// unplanned says of a statement that it has a plan, and was not noted yet.
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

// wantForms has Postgres plan the statements that a test was the first to run, and prints
// them whole. Where a coordinator reads another form, that is planned as well: but for
// this, only a coordinator would read it.
func wantForms(ctx context.Context, t testing.TB, url, database string) {
	t.Helper()
	forms.Lock()
	statements := forms.of[database]
	delete(forms.of, database)
	forms.Unlock()
	if len(statements) == 0 {
		return
	}
	pool, err := sql.Open("postgres", url) // db's own pools would read the second form in both
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

// WantPlanned prints statements whole, as psql takes them, with the plans that
// Postgres makes of them and of their distributed form. It fails where there is none.
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

// planned is the plan of a statement for whatever values its parameters have. A text is
// given nevertheless: a coordinator plans for the guild, and for none it has no plan of
// a step that is worked out first.
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

package dbtest

import (
	"context"
	"strings"
	"testing"

	"guildhall/internal/base/db"
)

// WantPlanned prints statements whole, as psql takes them, with the plans that
// Postgres makes of them and of their distributed form. It fails where there is none.
func WantPlanned(t testing.TB, d *db.DB, statements map[string]string) {
	t.Helper()
	for name, text := range statements {
		t.Logf("%s:\n%s\n\n%s", name, text, planned(t, d, name, text))
		if one := db.Distributed(text); one != text {
			t.Logf("%s, distributed:\n%s\n\n%s", name, one, planned(t, d, name, one))
		}
	}
}

// planned is the plan of a statement for whatever values its parameters have.
func planned(t testing.TB, d *db.DB, name, text string) string {
	t.Helper()
	var lines []string
	err := d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		for _, s := range []string{`SET LOCAL plan_cache_mode = force_generic_plan`, `PREPARE written AS ` + text} {
			if _, err := tx.ExecContext(ctx, s); err != nil {
				return err
			}
		}
		var parameters int
		if err := tx.GetContext(ctx, &parameters, `SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'written'`); err != nil {
			return err
		}
		values := ""
		if parameters > 0 {
			values = "(NULL" + strings.Repeat(", NULL", parameters-1) + ")"
		}
		if err := tx.SelectContext(ctx, &lines, `EXPLAIN EXECUTE written`+values); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DEALLOCATE written`)
		return err
	})
	if err != nil {
		t.Fatalf("%s is no statement: %v\n%s", name, err, text)
	}
	return strings.Join(lines, "\n")
}

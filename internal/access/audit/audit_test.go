package audit

import (
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

func rows(t *testing.T, d *db.DB, guild string, n int, age string) {
	t.Helper()
	dbtest.Exec(t, d, `
			INSERT INTO audit_log (guild_id, id, at, actor_type, actor_id, actor_name, address, request_id, action, target_id, target_name)
			SELECT $1 || '-' || n % 40, $3 || n, now() - $3::interval, 'user', 'u' || n % 5, 'U', '', '', $4, 't' || n % 7, ''
			FROM generate_series(1, $2) n`, guild, n, age, TokenCreated)
}

// Rows are kept for a year, and then deleted whosever they are.
func TestPrune(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	rows(t, d, "g", 1200, "367 days")
	rows(t, d, "g", 50, "364 days")
	for i, want := range []int{1000, 200, 0} {
		if n := dbtest.Prune(t, d, Outlived()); n != want {
			t.Errorf("step %d deletes %d, want %d", i, n, want)
		}
	}
	var left int
	if err := d.Reader().GetContext(t.Context(), &left, `SELECT count(*) FROM audit_log`); err != nil || left != 50 {
		t.Errorf("%d rows are left: %v", left, err)
	}
}

// Every filter of the list is read in the order of an index.
func TestListsAreReadFromIndexes(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	for index, f := range map[string]Filter{
		"audit_log_pkey": {Below: "x"}, "audit_log_action": {Action: TokenCreated, Below: "x"},
		"audit_log_actor": {Actor: "u", Below: "x"}, "audit_log_target": {Target: "t", Below: "x"},
	} {
		query, args := listQuery("g", f, 50)
		dbtest.WantIndex(t, d, index, query, args...)
	}
}

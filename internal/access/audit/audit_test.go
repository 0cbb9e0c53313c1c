package audit

import (
	"context"
	"encoding/json"
	"testing"
	"time"

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

// Rows of every guild are kept for a year and then deleted.
func TestPrune(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	rows(t, d, "g", 1200, "367 days")
	rows(t, d, "g", 50, "364 days")
	for i, want := range []int{1000, 200, 0} {
		if n := dbtest.Prune(t, d, Expired()); n != want {
			t.Errorf("step %d deletes %d, want %d", i, n, want)
		}
	}
	var left int
	if err := d.Reader().GetContext(t.Context(), &left, `SELECT count(*) FROM audit_log`); err != nil || left != 50 {
		t.Errorf("%d rows are left: %v", left, err)
	}
}

// Every filter of the list is read in the order of an index, without a sort.
func TestListsAreReadFromIndexes(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	for index, f := range map[string]Filter{
		"audit_log_pkey": {Below: "x"}, "audit_log_changes": {ChangesOnly: true, Below: "x"},
		"audit_log_action": {Action: TokenCreated, Below: "x"}, "audit_log_actor": {Actor: "u", Below: "x"},
		"audit_log_target": {Target: "t", Below: "x"},
	} {
		f.Since, f.Until = time.Unix(1_700_000_000, 0), time.Unix(1_800_000_000, 0)
		query, args := listQuery("g", f, 50)
		dbtest.WantIndex(t, d, index, query, args...)
	}
}

// Who has created a thing is looked up in one row, also when the log no longer has that row.
func TestTheFirstRowOfATargetIsOneRow(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Exec(t, d, `
		INSERT INTO audit_log (guild_id, id, actor_type, actor_id, actor_name, address, request_id, action, target_id, target_name)
		SELECT 'g', to_char(n, 'FM00000'), 'user', 'u', 'U', '', '', $1, 't', '' FROM generate_series(1, 2000) n`, WebhookUpdated)
	dbtest.WantIndex(t, d, "audit_log_target", firstRow, "g", "t", WebhookCreated)
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		_, ok, err := First(ctx, tx, "g", WebhookCreated, "t")
		var read int
		if err == nil {
			err = tx.GetContext(ctx, &read, `
				SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'audit_log'`)
		}
		if ok || read > 50 {
			t.Errorf("a row was found: %t, and %d were read", ok, read)
		}
		return err
	})
	row, ok, err := First(t.Context(), d.Reader(), "g", WebhookUpdated, "t")
	if err != nil || !ok || row.ID != "00001" {
		t.Errorf("the first row is %q, %t, %v", row.ID, ok, err)
	}
}

// A range of time finds its rows although ids come from other clocks than created_at.
func TestRowsOfATime(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, at := range map[string]time.Time{
		"before": noon.Add(-time.Hour), "at": noon, "late": noon.Add(59 * time.Minute), "after": noon.Add(time.Hour),
	} {
		dbtest.Exec(t, d, `
			INSERT INTO audit_log (guild_id, id, at, actor_type, actor_id, actor_name, address, request_id, action, target_id, target_name)
			VALUES ('g', $1, $2, 'user', 'u', 'U', '', '', $3, 't', $4)`, bound(at, 3*time.Second)+"-7000-8000-000000000000", at, TokenCreated, name)
	}
	rows, err := List(t.Context(), d.Reader(), "g", Filter{Since: noon, Until: noon.Add(time.Hour)}, 10)
	if err != nil || len(rows) != 2 || rows[0].Name != "late" || rows[1].Name != "at" {
		t.Errorf("found %+v: %v", rows, err)
	}
}

// Text that looks like a JSON escape is stored unchanged. A NUL, which Postgres cannot store in
// text, is left out.
func TestTextsAreToldAsTheyAre(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	for text, want := range map[string]string{
		`C:\u0000`: `C:\u0000`, `\\u0000\`: `\\u0000\`, "a\x00b": "ab", "\\\x00\\": `\\`, "\x00\x00": "", "\n\\u0000\"": "\n\\u0000\"",
	} {
		err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return Record(ctx, tx, Change{Guild: "g", Action: WebhookUpdated, After: map[string]any{"description": text}})
		})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		rows, err := List(t.Context(), d.Reader(), "g", Filter{}, 1)
		if err != nil || len(rows) != 1 || rows[0].After == nil {
			t.Fatalf("%q: %+v, %v", text, rows, err)
		}
		var after struct{ Description string }
		if err := json.Unmarshal([]byte(*rows[0].After), &after); err != nil || after.Description != want {
			t.Errorf("of %q it tells %s, want %q: %v", text, *rows[0].After, want, err)
		}
	}
}

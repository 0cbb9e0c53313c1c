package guildfile_test

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// A database of the last release with data in it exports after the migrations what
// that release's program has exported of it before: the same records in the same
// order, to which later releases may have added members. Ledgers, which are not
// exported, stay row by row.
// RELIABILITY.md, Operation.
func TestAnUpgradeKeepsWhatGuildsHave(t *testing.T) {
	t.Parallel()
	url := dbtest.At(t, dbtest.Released)
	pool, err := db.OpenSQL(url, "test", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if _, err := pool.ExecContext(t.Context(), read("released.sql")); err != nil {
		t.Fatal(err)
	}
	ledger := func() (text string) {
		t.Helper()
		if err := pool.QueryRowContext(t.Context(), `
			SELECT string_agg(concat_ws('|', guild_id, id, user_id, delta, balance_after, reason, note, created_at), e'\n' ORDER BY guild_id, id)
			FROM ledger_entries`).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := ledger()
	if err := db.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if got := ledger(); got != before || strings.Count(got, "\n") < 40 {
		t.Errorf("the ledgers were\n%s\nand are\n%s", before, got)
	}

	d := dbtest.Open(t, url).DB
	want := strings.Split(read("released.jsonl"), "\n")
	got := strings.Split(exported(t, d, "402187554310020096")+exported(t, d, "402187554310020097"), "\n")
	if len(got) != len(want) || len(want) < 160 {
		t.Fatalf("%d records are exported, want %d", len(got)-1, len(want)-1)
	}
	for i := range want {
		if want[i] == "" && got[i] == "" {
			continue
		}
		var was, is map[string]any
		if err := json.Unmarshal([]byte(want[i]), &was); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(got[i]), &is); err != nil {
			t.Fatal(err)
		}
		for member, value := range was {
			if !reflect.DeepEqual(value, is[member]) {
				t.Errorf("record %d: %s was %v, and is %v:\n%s", i+1, member, value, is[member], got[i])
			}
		}
	}
}

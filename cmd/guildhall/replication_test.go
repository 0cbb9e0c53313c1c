package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"guildhall/internal/db"
	"guildhall/internal/db/dbtest"
)

// A standby's lag is shown as long as there is one, and nothing of those that
// this role may not look at.
func TestReplicationLag(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	standbys := func(rows string) {
		if err := base.DB.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, `CREATE OR REPLACE VIEW public.pg_stat_replication AS SELECT * FROM (VALUES `+rows+`) AS s (application_name, state, replay_lag)`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	standbys(`('one', 'streaming', interval '7 s'), ('two', 'streaming', NULL), ('three', NULL, NULL)`)
	// A view in the place of the catalog's, which shows nothing without a standby.
	d, err := db.Open(db.Config{URL: base.URL + "&search_path=public,pg_catalog", Writers: 1, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r, err := newReplication(d, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for rows, want := range map[string]string{
		`('one', 'streaming', interval '7 s'), ('two', 'streaming', NULL), ('three', NULL, NULL)`: "one\"} 7\n two\"} 0\n",
		`('two', 'streaming', interval '1 s')`:                                                    "two\"} 1\n",
	} {
		standbys(rows)
		if err := r.measure(t.Context()); err != nil {
			t.Fatal(err)
		}
		expected := "# HELP guildhall_db_replication_lag_seconds How far a standby of the database is behind, by its application name, where this node may know: the role needs pg_monitor.\n# TYPE guildhall_db_replication_lag_seconds gauge\n"
		for line := range strings.Lines(want) {
			expected += `guildhall_db_replication_lag_seconds{application_name="` + strings.TrimSpace(line) + "\n"
		}
		if err := testutil.CollectAndCompare(r.lag, strings.NewReader(expected)); err != nil {
			t.Error(err)
		}
	}
}

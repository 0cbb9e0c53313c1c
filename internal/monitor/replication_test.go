package monitor

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/db"
	"guildhall/internal/db/dbtest"
)

// A standby's lag is shown as long as there is one, and nothing of those that
// this role may not look at.
func TestReplicationLag(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	standbys := func(rows string) {
		dbtest.Exec(t, base.DB, `CREATE OR REPLACE VIEW public.pg_stat_replication AS
			SELECT * FROM (VALUES `+rows+`) AS s (application_name, state, replay_lag)`)
	}
	standbys(`('one', 'streaming', interval '7 s'), ('two', 'streaming', NULL), ('three', NULL, NULL)`)
	// A view in the place of the catalog's, which shows nothing without a standby.
	d, err := db.Open(db.Config{URL: base.URL + "&search_path=public,pg_catalog", Writers: 1, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	metrics := prometheus.NewRegistry()
	r := NewReplication(d, slog.New(slog.DiscardHandler), metrics)
	for _, tt := range []struct{ rows, want string }{
		{`('one', 'streaming', interval '7 s'), ('two', 'streaming', NULL), ('three', NULL, NULL)`, "one 7 two 0 "},
		{`('two', 'streaming', interval '1 s'), ('one', NULL, NULL)`, "two 1 "},
	} {
		standbys(tt.rows)
		if err := r.measure(t.Context()); err != nil {
			t.Fatal(err)
		}
		shown, err := metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, m := range shown[0].GetMetric() {
			got += fmt.Sprintf("%s %v ", m.GetLabel()[0].GetValue(), m.GetGauge().GetValue())
		}
		if got != tt.want {
			t.Errorf("of %s it shows %q, want %q", tt.rows, got, tt.want)
		}
	}
}

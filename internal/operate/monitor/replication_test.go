package monitor

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// The lag of a standby is exported while the standby exists. Nothing is exported if the role may
// not see it, or for connections that copy the server but replay nothing, such as a base backup or
// an archiver.
func TestReplicationLag(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	standbys := func(rows string) {
		dbtest.Exec(t, base.DB, `CREATE OR REPLACE VIEW public.pg_stat_replication AS
			SELECT * FROM (VALUES `+rows+`) AS s (application_name, state, replay_lsn, replay_lag)`)
	}
	standbys(`('one', 'streaming', '0/1'::pg_lsn, interval '7 s')`)
	// A view that replaces the catalog's, which would be empty without a standby.
	d, err := db.Open(db.Config{URL: base.URL + "&search_path=public,pg_catalog", Writers: 1, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	metrics := prometheus.NewRegistry()
	r := NewReplication(d, slog.New(slog.DiscardHandler), metrics)
	for _, tt := range []struct{ rows, want string }{
		{
			`('one', 'streaming', '0/1'::pg_lsn, interval '7 s'), ('two', 'streaming', '0/1', NULL), ('three', NULL, NULL, NULL),
			('pg_basebackup', 'backup', NULL, interval '2 h'), ('pg_receivewal', 'streaming', NULL, interval '2 h'),
			('pg_16411_sync_16399_7', 'streaming', '0/1', interval '2 h'),
			('pg_node', 'streaming', '0/1', interval '3 s')`, "one 7 pg_node 3 two 0 ",
		},
		{`('two', 'streaming', '0/1'::pg_lsn, interval '1 s'), ('one', NULL, NULL, NULL)`, "two 1 "},
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

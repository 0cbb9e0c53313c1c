package db

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/lib/pq"
)

// If a URL does not set sslmode, the server's location decides, whichever part of the URL names the
// server.
func TestTLSIsTheDefaultForOtherMachines(t *testing.T) {
	for raw, want := range map[string]string{
		"postgres://u:p@db.internal/x":                                   "require",
		"postgres://u:p@10.0.0.1/x":                                      "require",
		"postgres://u:p@/x?host=db.internal":                             "require",
		"postgres://u:p@localhost/x?host=db.internal":                    "require",
		"postgres://u:p@localhost:5433/x?host=db.internal":               "require",
		"postgres://u:p@localhost,db.internal/x":                         "require",
		"postgres://u:p@/x?host=localhost,db.internal":                   "require",
		"postgres://u:p@localhost/x?hostaddr=10.0.0.1":                   "require",
		"postgres://u:p@/x?hostaddr=10.0.0.1":                            "require",
		"postgres://u:p@localhost.example/x":                             "require",
		"postgres://u:p@/x":                                              "disable",
		"postgres://u:p@localhost/x":                                     "disable",
		"postgres://u:p@localhost:5433/x":                                "disable",
		"postgres://u:p@127.0.0.1/x":                                     "disable",
		"postgres://u:p@127.8.8.8/x":                                     "disable",
		"postgres://u:p@[::1]/x":                                         "disable",
		"postgres://u:p@[::1]:5433/x":                                    "disable",
		"postgres://u:p@/x?host=/run/postgresql":                         "", // the driver itself uses no TLS on a socket
		"postgres://u:p@db.internal/x?host=/run/postgresql":              "",
		"postgres://u:p@/x?host=127.0.0.1":                               "disable",
		"postgres://u:p@db.internal/x?hostaddr=127.0.0.1":                "disable",
		"postgres://u:p@/x?host=db.internal&sslmode=disable":             "disable",
		"postgres://u:p@localhost/x?sslmode=verify-full":                 "verify-full",
		"postgresql://u:p@/x?host=db.internal&sslmode=verify-ca&port=55": "verify-ca",
	} {
		if got := sslmode(t, raw); got != want {
			t.Errorf("%s is spoken to with sslmode=%s, want %s", raw, got, want)
		}
	}
	// The driver uses the first server's sslmode for all servers of a list.
	for raw, refused := range map[string]bool{
		"postgres://u:p@/g?host=/nonexistent,192.0.2.2":                     true,
		"postgres://u:p@/g?host=/nonexistent,192.0.2.2&sslmode=verify-full": true,
		"postgres://u:p@/g?host=192.0.2.2,/nonexistent":                     true,
		"postgres://u:p@/g?host=@name,db.internal":                          true,
		"postgres://u:p@/g?host=/nonexistent,127.0.0.1&sslmode=require":     true,
		"postgres://u:p@/g?host=/nonexistent,192.0.2.2&sslmode=disable":     false,
		"postgres://u:p@/g?host=/nonexistent,127.0.0.1":                     false,
		"postgres://u:p@/g?host=/nonexistent,/other":                        false,
	} {
		if _, err := withParams(raw, nil); (err != nil) != refused {
			t.Errorf("%s: %v", raw, err)
		}
	}
	t.Setenv("PGHOST", "db.internal")
	if got := sslmode(t, "postgres://u:p@/x"); got != "require" {
		t.Errorf("with PGHOST: sslmode=%s", got)
	}
	t.Setenv("PGSSLMODE", "verify-full")
	if got := sslmode(t, "postgres://u:p@/x"); got != "" {
		t.Errorf("PGSSLMODE is overridden with sslmode=%s", got)
	}
}

// URLs of hosting providers work: parameters that the driver does not need are ignored and named,
// parameters that would change the meaning are refused by name.
func TestAURLOfAHosterIsRead(t *testing.T) {
	t.Parallel()
	const at = "postgres://u:p@db.internal/x?sslmode=require"
	for query, want := range map[string]string{
		"":                              "",
		"&channel_binding=require":      "channel_binding",
		"&gssencmode=disable":           "gssencmode",
		"&keepalives_idle=30&options=x": "keepalives_idle",
		"&pgbouncer=true":               "binary_parameters=yes",
		"&statement_cache_size=0&connection_limit=1&pool_timeout=2": "connection_limit, pool_timeout, statement_cache_size",
	} {
		dsn, err := withParams(at+query, nil)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		cfg, err := pq.NewConfig(dsn)
		if err != nil || len(cfg.Runtime) != 0 {
			t.Errorf("%s: the server is asked for %v, %v", query, cfg.Runtime, err)
		}
		if said := Unneeded(at + query); !strings.Contains(said, want) || (said == "") != (want == "") {
			t.Errorf("%s: %q", query, said)
		}
	}
	for query, want := range map[string]string{
		"&schema=guildhall": "search_path", "&currentSchema=g": "search_path", "&ssl=true": "sslmode", "&sslaccept=strict": "sslrootcert",
	} {
		if _, err := withParams(at+query, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", query, err, want)
		}
	}
	if dsn, err := withParams(at+"&search_path=guildhall", nil); err != nil || !strings.Contains(dsn, "search_path=guildhall") {
		t.Errorf("search_path: %v", err)
	}
}

// A malformed URL is refused with the reason, and the message repeats nothing of the URL.
func TestAMistakenURLIsNamed(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"postgres://u:hunter2@db/x\n":         "line break",
		" postgres://u:hunter2@db/x":          "a space",
		`"postgres://u:hunter2@db/x"`:         "a quote",
		"'postgres://u:hunter2@db/x'":         "a quote",
		"postgres://u:${hunter2}@db/x/y z%":   "nothing has replaced",
		"jdbc:postgresql://db/x?user=hunter2": "jdbc:",
		"postgres://u:hunter2/3@db/x":         "%2F",
		"postgres://u:2/hunter2@db/x":         "%2F",
		"postgres://u:hunter2#3@db/x":         "%23",
		"postgres://u:2#hunter2@db/x":         "%23",
		"postgres://u:hunter2?3@db/x":         "%3F",
		"postgres://u:2?hunter2@db/x":         "%3F",
		"postgres://u:hunter2%@db/x":          "%25",
		"mysql://u:hunter2@db/x":              "must have the form",
		"host=db dbname=x password=hunter2":   "must have the form",
	} {
		_, err := withParams(raw, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want %s", raw, err, want)
		}
	}
	for _, raw := range []string{"postgres://u:p@ss@db/x", "postgres://u:p%2F%23%40@db/x", "postgres:///x?host=/run/postgresql&user=u"} {
		if _, err := withParams(raw, nil); err != nil {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

// A URL may list several servers, with a port for each, one port for all, or none.
func TestAURLNamesSeveralServers(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"postgres://u:p@db1:5432,db2:5433/x":      "db1:5432 db2:5433",
		"postgres://u:p@db1,db2/x":                "db1:5432 db2:5432",
		"postgres://u:p@db1:6000,db2/x":           "db1:6000 db2:5432",
		"postgres://u:p@db1,db2:6000/x":           "db1:5432 db2:6000",
		"postgres://u:p@[::1]:6000,[::2],db3:1/x": "::1:6000 ::2:5432 db3:1",
		"postgres://db1,db2":                      "db1:5432 db2:5432",
		"postgres://u:p@/x?host=db1,db2&port=7":   "db1:7 db2:7",
		"postgres://u:p@db1,db2/x?host=db3":       "db3:5432",
		"postgres://u:p@10.0.0.1,10.0.0.2?port=7": "10.0.0.1:7 10.0.0.2:7",
		"postgres://u:p,q@db1:6000/x":             "db1:6000",
	} {
		with, err := withParams(raw, nil)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		cfg, err := pq.NewConfig(with)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		got := fmt.Sprintf("%s:%d", cfg.Host, cfg.Port)
		for _, m := range cfg.Multi {
			got += fmt.Sprintf(" %s:%d", m.Host, m.Port)
		}
		if got != want {
			t.Errorf("%s leads to %s, want %s", raw, got, want)
		}
	}
}

func sslmode(t *testing.T, raw string) string {
	t.Helper()
	with, err := withParams(raw, nil)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	u, err := url.Parse(with)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("sslmode")
}

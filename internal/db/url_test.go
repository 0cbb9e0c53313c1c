package db

import (
	"net/url"
	"testing"
)

// What no one has said about TLS is decided by where the server is, whatever
// part of the URL says it.
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
		"postgres://u:p@/x?host=/run/postgresql":                         "", // the driver knows that there is none on a socket
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
	t.Setenv("PGHOST", "db.internal")
	if got := sslmode(t, "postgres://u:p@/x"); got != "require" {
		t.Errorf("with PGHOST: sslmode=%s", got)
	}
	t.Setenv("PGSSLMODE", "verify-full")
	if got := sslmode(t, "postgres://u:p@/x"); got != "" {
		t.Errorf("PGSSLMODE is overridden with sslmode=%s", got)
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

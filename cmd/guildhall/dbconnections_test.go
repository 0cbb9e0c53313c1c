package main

import (
	"strings"
	"sync"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

func TestConnectionsAreDivided(t *testing.T) {
	t.Parallel()
	if c, err := divide(29, bothRoles, false); err != nil ||
		c != (connections{writes: 8, reads: 8, lookups: 2, workWrites: 7, workRead: 2}) {
		t.Errorf("the default is divided into %+v, %v", c, err)
	}
	if c, err := divide(29, bothRoles, true); err != nil ||
		c != (connections{writes: 8, reads: 8, pageWrites: 1, pageRead: 1, lookups: 2, workWrites: 6, workRead: 1}) {
		t.Errorf("the default of a node with a dashboard is divided into %+v, %v", c, err)
	}
	for _, roles := range []struct {
		roles
		pages bool
		least int
	}{
		{bothRoles, false, 7},
		{roles{[]string{"api"}}, false, 5},
		{roles{[]string{"worker"}}, false, 4},
		{bothRoles, true, 9},
		{roles{[]string{"api"}}, true, 7},
		{roles{[]string{"worker"}}, true, 4},
	} {
		before := connections{}
		for total := -1; total < 200; total++ {
			c, err := divide(total, roles.roles, roles.pages)
			if total < roles.least {
				if err == nil || !strings.Contains(err.Error(), "at least") {
					t.Errorf("%d for %+v: %v, want a refusal", total, roles, err)
				}
				continue
			}
			if err != nil || c.sum(roles.api()) != total {
				t.Errorf("%d for %+v are divided into %+v, %v", total, roles, c, err)
			}
			for kind, n := range map[string]struct {
				before, now int
				used        bool
			}{
				"writes":          {before.writes, c.writes, roles.api()},
				"reads":           {before.reads, c.reads, roles.api()},
				"pages' writes":   {before.pageWrites, c.pageWrites, roles.api() && roles.pages},
				"pages' reads":    {before.pageRead, c.pageRead, roles.api() && roles.pages},
				"lookups":         {before.lookups, c.lookups, true},
				"workers' writes": {before.workWrites, c.workWrites, roles.worker()},
				"workers' reads":  {before.workRead, c.workRead, roles.worker()},
			} {
				if n.now < n.before || n.used != (n.now > 0) {
					t.Errorf("%d for %+v: %d %s, after %d of one fewer", total, roles, n.now, kind, n.before)
				}
			}
			before = c
		}
	}
}

func TestTooFewConnectionsAreRefused(t *testing.T) {
	t.Parallel()
	key, err := newSecretKey()
	if err != nil {
		t.Fatal(err)
	}
	call(t, "", "serve", "--database-url", withGuild(t), "--secret-key", key, "--discord-url", "off", "--db-connections", "6").
		refused(t, 1, "GUILDHALL_DB_CONNECTIONS: a node in these roles needs at least 7 connections")
	dev := call(t, "", "dev", "--dir", t.TempDir(), "--database-url", dbtest.Empty(t, ""), "--db-connections", "8") // dev has a dashboard
	dev.refused(t, 1, "GUILDHALL_DB_CONNECTIONS: a node in these roles needs at least 9 connections")
}

// A database that responds but cannot be written to makes the node unready, for instance because
// the library of its procedural language is gone after a package upgrade. RELIABILITY.md,
// Operation.
func TestReadinessTriesWhatAWriteNeeds(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	s := serve(t, url)
	s.answers(t, s.ops+"/readyz", "", 200)
	admin, err := db.OpenSQL(url, "test", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	// Sessions that have loaded the library end, as they do when a server is upgraded.
	library := func(name string) {
		t.Helper()
		for _, statement := range []string{
			`UPDATE pg_proc SET probin = '` + name + `' WHERE proname IN ('plpgsql_call_handler', 'plpgsql_inline_handler')`,
			`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
				AND application_name LIKE 'guildhall-%' AND application_name NOT LIKE 'guildhall-test%'`,
		} {
			if _, err := admin.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	is := func(status int) func() bool {
		return func() bool {
			res, _, err := get(t.Context(), s.client(t), s.ops+"/readyz", "")
			if err != nil {
				t.Fatal(err)
			}
			return res.StatusCode == status
		}
	}
	library("$libdir/gone")
	testutil.Eventually(t, "the node is not ready", is(503))
	library("$libdir/plpgsql")
	testutil.Eventually(t, "the node is ready again", is(200))
}

// A node never uses more connections than configured, whatever the load. RELIABILITY.md, Overload.
func TestANodeKeepsToItsConnections(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	s := serve(t, url, "GUILDHALL_DB_CONNECTIONS=8")
	admin, err := db.OpenSQL(url, "test", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	var all sync.WaitGroup
	for i := range 20 {
		client := s.client(t)
		all.Go(func() {
			for range 10 {
				path := "/api/v1/economy/ledger"
				if i%2 == 0 {
					path = "/api/v1/me"
				}
				if res, body, err := get(t.Context(), client, s.https+path, s.token); err != nil || res.StatusCode >= 500 {
					t.Errorf("%s: %v %s", path, err, body)
				}
			}
		})
	}
	all.Wait()
	var open int
	if err := admin.QueryRowContext(t.Context(), `
		SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'guildhall-%'`).Scan(&open); err != nil || open < 3 || open > 8 {
		t.Errorf("%d connections are open (%v), want at most 8", open, err)
	}
}

// A node that starts warns once where server, role and database admit fewer connections than it
// takes.
func TestAStartWarnsOfTooFewConnections(t *testing.T) {
	t.Parallel()
	const warning = "a node takes 29 connections (GUILDHALL_DB_CONNECTIONS), the database admits 28: raise max_connections"
	for limit, warnings := range map[string]int{"28": 1, "29": 0} {
		raw := withGuild(t)
		url, role := asRole(t, raw, "CONNECTION LIMIT "+limit)
		dbtest.Fill(t, dbtest.Open(t, raw).DB, `GRANT ALL ON ALL TABLES IN SCHEMA public TO `+role)
		s := startNode(t, url)
		if _, log := s.text(); strings.Count(log, warning) != warnings {
			t.Errorf("where %s connections are admitted, the start says %s", limit, log)
		}
	}
}

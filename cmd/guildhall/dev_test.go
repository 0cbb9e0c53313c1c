package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/service/guildfile"
	"guildhall/internal/service/guilds"
)

// anyPorts makes dev use free ports, so that the test can run beside other programs.
var anyPorts = []string{"GUILDHALL_HTTPS_LISTEN=127.0.0.1:0", "GUILDHALL_HTTP_LISTEN=127.0.0.1:0", "GUILDHALL_OPS_LISTEN=127.0.0.1:0"}

var (
	pasted = regexp.MustCompile(`(?m)^  (curl .*)$`)
	shown  = regexp.MustCompile(`svc_test_[A-Za-z0-9_-]{43}`)
)

// paste runs a printed line in a shell and returns its output.
func paste(t *testing.T, line string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

// With --database-url dev starts no Postgres. It warns if it listens on other addresses than
// loopback.
func TestDevOverAnotherDatabase(t *testing.T) {
	t.Parallel()
	testutil.Program(t, "curl")
	dir, d := t.TempDir(), dbtest.New(t)
	env := []string{"GUILDHALL_HTTPS_LISTEN=0.0.0.0:0", "GUILDHALL_HTTP_LISTEN=127.0.0.1:0", "GUILDHALL_OPS_LISTEN=127.0.0.1:0"}
	p := begin(t, dir, env, "dev", "--database-url", d.URL)
	p.says(t, "Ctrl-C stops everything")
	if _, log := p.text(); strings.Count(log, "listens beyond this machine") != 1 || !strings.Contains(log, "0.0.0.0") {
		t.Errorf("it warns: %s", log)
	}
	if _, err := os.Stat(filepath.Join(dir, ".guildhall", "postgres")); !os.IsNotExist(err) {
		t.Errorf("a Postgres was made as well: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, ".guildhall", envFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with the token: %v %v", info, err)
	}
	me := shell(t, dir, ". .guildhall/env",
		`curl -sS --cacert "$GUILDHALL_CA" -H "Authorization: Bearer $GUILDHALL_TOKEN" "$GUILDHALL_URL/me"`)
	wantMatch(t, "the call", me, `"guild_id":"`+guildfile.DemoGuild+`"`)

	// Receivers on this machine are allowed for dev and for the commands.
	at := filepath.Join(dir, ".guildhall")
	dbtest.Exec(t, d.DB, `DELETE FROM webhook_endpoints`) // one of the demo's fails, which doctor says
	call(t, "", "webhook", "add", "--dir", at, "--guild", guildfile.DemoGuild, "--url", "http://127.0.0.1:1/",
		"--event", "ticket.closed").ok(t)
	wantMatch(t, "doctor", call(t, "", "doctor", "--dir", at).out, `(?m)^ok +endpoints `)
}

// dev refuses the database of a real installation.
func TestDevRefusesAnInstallation(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if _, err := guildfile.Import(t.Context(), d.DB, strings.NewReader(`{"record":"guild","id":"7"}`), nil); err != nil {
		t.Fatal(err)
	}
	call(t, "", "dev", "--dir", t.TempDir(), "--database-url", d.URL).refused(t, 1, "an installation's guilds")
	for address, local := range map[string]bool{
		"": true, "127.0.0.1:1": true, "localhost:1": true, "[::1]:1": true, ":8443": false, "0.0.0.0:1": false, "10.0.0.1:1": false,
	} {
		if onThisMachine(address) != local {
			t.Errorf("%q on this machine: %t", address, !local)
		}
	}
}

func postmaster(t *testing.T, dir string) int {
	t.Helper()
	matches, err := filepath.Glob(filepath.Join(dir, ".guildhall", "postgres", "data", "postmaster.pid"))
	if err != nil || len(matches) != 1 {
		t.Fatalf("found %v, %v", matches, err)
	}
	text, err := os.ReadFile(matches[0])
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if err := json.Unmarshal([]byte(strings.SplitN(string(text), "\n", 2)[0]), &pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

// A guild can have a hundred active tokens, and dev creates one at each start.
func TestDevStartsHoweverOftenItHasStarted(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	c := &devCommand{Settings: Settings{Env: "test"}}
	if _, err := c.prepare(t.Context(), base.DB, io.Discard); err != nil {
		t.Fatal(err)
	}
	own, err := auth.Create(t.Context(), base.DB, auth.New{GuildID: guildfile.DemoGuild, Env: "test", Name: "mine", Scopes: auth.Scopes})
	if err != nil {
		t.Fatal(err)
	}
	for start := range 120 {
		if _, err := c.token(t.Context(), base.DB); err != nil {
			t.Fatalf("start %d: %v", start, err)
		}
	}
	works := make(map[string]int)
	list, err := auth.Page(t.Context(), base.DB, guildfile.DemoGuild, false, 0, 200)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range list {
		works[token.Name]++
	}
	if works[startedByDev] != devTokens || works[own.Name] != 1 {
		t.Errorf("these work: %v", works)
	}
}

// A demo guild that was removed is back at the next start: restored before its deletion has begun,
// created again afterwards.
func TestDevHasItsGuildBackAfterItWasRemoved(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	c := &devCommand{Settings: Settings{Env: "test"}}
	for _, day := range []string{"", "interval '1 minute'", "interval '10 days'"} { // how long ago its deletion was due
		if day != "" {
			dbtest.Do(t, base.DB, func(ctx context.Context, tx *db.Tx) error {
				_, err := guilds.Remove(ctx, tx, guildfile.DemoGuild, 7)
				return err
			})
			dbtest.Exec(t, base.DB, `UPDATE guilds SET `+dbtest.Earlier(day, "removed_at", "removed_after"))
		}
		if err := forTrying(t.Context(), base.URL); err != nil {
			t.Fatalf("after %q: %v", day, err)
		}
		made, err := c.prepare(t.Context(), base.DB, io.Discard)
		if err != nil {
			t.Fatalf("after %q: %v", day, err)
		}
		list, err := auth.Working(t.Context(), base.DB, guildfile.DemoGuild)
		if err != nil || !slices.ContainsFunc(list, func(is auth.Token) bool { return is.ID == made.ID }) {
			t.Errorf("after %q: %v work, %v", day, list, err)
		}
		if n := dbtest.Value[int](t, base.DB, `SELECT count(*) FROM wallets`); n == 0 {
			t.Errorf("after %q nobody has a wallet", day)
		}
	}
}

// The first start shows what the pages of records are for: a token has changed a balance and was
// refused a call, one endpoint is healthy and one fails, a giveaway was drawn, and a ticket has a
// file. Later starts do not repeat the change, and answer the endpoints' deliveries again.
func TestDevShowsWhatItsPagesAreFor(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	dir := t.TempDir()
	start := func() *process {
		p := begin(t, dir, anyPorts, "dev", "--database-url", base.URL)
		p.says(t, "Ctrl-C stops everything")
		return p
	}
	p := start()
	holds := func(what, query string) {
		t.Helper()
		testutil.Eventually(t, what, func() bool { return dbtest.Value[bool](t, base.DB, query) })
	}
	holds("the token has changed a balance", `
		SELECT count(*) = 1 FROM ledger_entries e JOIN api_tokens t ON e.note = 'api:token=' || t.id AND t.name = 'Shop' WHERE e.delta = 500 AND
			e.reference = 'order-812'`)
	holds("the mirror has taken it, and the old panel has not", `
		SELECT count(*) FILTER (WHERE e.description = 'Mirror' AND d.state = 'delivered') = 1
		   AND count(*) FILTER (WHERE e.description = 'Old panel' AND d.response_class = '4xx') = 1
		FROM webhook_deliveries d JOIN webhook_endpoints e ON e.guild_id = d.guild_id AND e.id = d.endpoint_id
		WHERE d.event_type = 'economy.balance_changed'`)
	holds("a giveaway was drawn", `SELECT count(*) > 0 FROM giveaway_draws`)
	holds("a ticket has a file", `SELECT count(*) > 0 FROM ticket_messages WHERE attachments <> '[]'`)
	if _, log := p.text(); strings.Contains(log, "status=4") {
		t.Errorf("the log of the first start has a refused request: %s", log)
	}
	holds("a call was refused", `SELECT count(*) = 1 FROM usage_refusals WHERE operation = 'listCases' AND code = 'insufficient_scope'`)
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	p.exits(t, 30*time.Second)
	start()
	dbtest.Exec(t, base.DB, `UPDATE webhook_deliveries SET state = 'pending', due_at = now(), lease_until = NULL WHERE state = 'delivered'`)
	dbtest.Exec(t, base.DB, `UPDATE webhook_schedule SET next_due = now()`)
	holds("the mirror takes deliveries again", `
		SELECT min(attempts) > 1
		FROM webhook_deliveries d JOIN webhook_endpoints e ON e.guild_id = d.guild_id AND e.id = d.endpoint_id
		WHERE e.description = 'Mirror' AND d.event_type = 'economy.balance_changed'`)
	holds("the second start creates no second shop", `SELECT count(*) = 1 FROM api_tokens WHERE name = 'Shop'`)
}

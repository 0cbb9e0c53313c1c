//go:build slow

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"guildhall/internal/base/db/embedded"
	"guildhall/internal/base/testutil"
	"guildhall/internal/service/guildfile"
)

// The first start creates everything, the printed calls work, and the data survives Ctrl-C and a
// kill.
func TestDev(t *testing.T) {
	t.Parallel()
	if _, err := embedded.Find(t.Context(), 0); err != nil {
		testutil.Without(t, "postgres", err)
	}
	testutil.Program(t, "curl") // dev prints calls of curl
	dir, err := os.MkdirTemp("/tmp", "guildhall-dev-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	start := func() (*process, [][]string, string) {
		p := begin(t, dir, anyPorts, "dev")
		p.says(t, "Ctrl-C stops everything")
		out, log := p.text()
		token := shown.FindString(out)
		lines := pasted.FindAllStringSubmatch(out, -1)
		if token == "" || len(lines) != 2 || !strings.Contains(out, filepath.Join(dir, ".guildhall", "ca.pem")) {
			t.Fatalf("dev prints %s", out)
		}
		if strings.Contains(log, token) {
			t.Errorf("the log holds the token")
		}
		return p, lines, token
	}
	balance := func(answer string) int64 {
		var a struct {
			Data struct {
				Balance int64 `json:"balance"`
			} `json:"data"`
		}
		if err := json.Unmarshal([]byte(answer), &a); err != nil || a.Data.Balance == 0 {
			t.Fatalf("%v: %s", err, answer)
		}
		return a.Data.Balance
	}

	p, lines, token := start()
	if got := paste(t, lines[0][1]); !strings.Contains(got, `"has_more":true`) || strings.Count(got, `"rank"`) != 3 {
		t.Errorf("the first call prints %s", got)
	}
	first := paste(t, lines[1][1])
	if again := paste(t, lines[1][1]+" -i"); !strings.Contains(strings.ToLower(again), "idempotent-replay: true") ||
		!strings.HasSuffix(strings.TrimSpace(again), strings.TrimSpace(first)) {
		t.Errorf("the second call is no replay of %s: %s", first, again)
	}

	// Other commands find the database in dev's directory.
	at := []string{"--dir", filepath.Join(dir, ".guildhall")}
	var made created
	out := call(t, "", append([]string{"token", "create", "--json", "--guild", guildfile.DemoGuild, "--name", "x", "--all-scopes"},
		at...)...).ok(t)
	if err := json.Unmarshal([]byte(out), &made); err != nil || !strings.HasPrefix(made.Token, "svc_test_") {
		t.Errorf("%v: %s", err, out)
	}
	mine := strings.Replace(lines[0][1], token, made.Token, 1)
	paste(t, mine)
	call(t, "", append([]string{"token", "revoke", made.ID}, at...)...).ok(t)
	if got := paste(t, mine); !strings.Contains(got, `"code":"invalid_token"`) {
		t.Errorf("a revoked token is told %s", got)
	}

	server := postmaster(t, dir)
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.exits(t, 30*time.Second); code != 0 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
	if err := syscall.Kill(server, 0); err == nil {
		t.Error("Postgres still runs after Ctrl-C")
	}
	call(t, "", append([]string{"token", "list", "--guild", "1"}, at...)...).refused(t, 1, "guildhall dev")

	p, lines, _ = start()
	_ = running(t, dir)
	second := balance(paste(t, strings.Replace(lines[1][1], "first-call", "second-call", 1)))
	if want := balance(first) + 25; second != want {
		t.Errorf("the balance is %d after the restart, want %d", second, want)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.ended

	_, lines, _ = start()
	if third := balance(paste(t, strings.Replace(lines[1][1], "first-call", "third-call", 1))); third != second+25 {
		t.Errorf("the balance is %d after the kill, want %d", third, second+25)
	}
}

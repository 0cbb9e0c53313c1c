package main

import (
	"regexp"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
)

// Without the old database everything has to be revoked, and the check prints the command for that.
func TestRestoreCheckNamesACommandThatRuns(t *testing.T) {
	t.Parallel()
	restored := dbtest.New(t)
	dbtest.AddGuilds(t, restored.DB, guild)
	token(t, restored.URL)
	out := call(t, "", "restore", "check", "--since", "1h", "--database-url", restored.URL).ok(t)
	named := regexp.MustCompile("`guildhall (token revoke [^`]+)`").FindStringSubmatch(out)
	if named == nil {
		t.Fatalf("no command is named: %s", out)
	}
	call(t, "", append(strings.Fields(named[1]), "--database-url", restored.URL)...).ok(t)
	if n := dbtest.Value[int](t, restored.DB, `SELECT count(*) FROM api_tokens WHERE revoked_at IS NULL`); n != 0 {
		t.Errorf("%d tokens still work", n)
	}
}

// The check succeeds if the restore has revived nothing, since lost changes cannot be repaired
// here. It reports a revived token whenever the token was revoked.
func TestRestoreCheckFailsForWhatWorksAgainAlone(t *testing.T) {
	t.Parallel()
	old, restored := dbtest.New(t), dbtest.New(t)
	dbtest.AddGuilds(t, old.DB, guild)
	dbtest.AddGuilds(t, restored.DB, guild)
	token(t, old.URL)
	check := func() result {
		return call(t, "", "restore", "check", "--since", "1h", "--database-url", restored.URL, "--old-database-url", old.URL)
	}
	if out := check().ok(t); !strings.Contains(out, "lost") {
		t.Errorf("the token that is lost is not named: %s", out)
	}
	for d, revoked := range map[*dbtest.Database]string{old: "now() - interval '1 day'", restored: "NULL"} {
		dbtest.Exec(t, d.DB, `INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes, created_at, revoked_at)
			VALUES ('back', $1, '', '', sha256('back'), '{}', now() - interval '2 days', `+revoked+`)`, guild)
	}
	check().refused(t, 1, "undone changes of 1 tokens")
}

// If the settings already name the restored database, the check would compare that database with
// itself and find no difference, so it refuses. RELIABILITY.md, Operation.
func TestRestoreCheckComparesNoDatabaseWithItself(t *testing.T) {
	t.Parallel()
	restored := dbtest.New(t)
	check := func(old string) result {
		return call(t, "", "restore", "check", "--since", "1h", "--database-url", restored.URL, "--old-database-url", old)
	}
	check(restored.URL).refused(t, 2, "--old-database-url: that is the restored database itself")
	check("postgres://127.0.0.1:1/old").refused(t, 1, "--old-database-url: ")
}

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
)

func TestAGuildIsRemovedOnceItsIdIsTypedAndTakenBack(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	dbtest.AddGuilds(t, base.DB, "7")
	command := func(stdin string, args ...string) result {
		return call(t, stdin, append([]string{"guild"}, append(args, "--database-url", base.URL)...)...)
	}
	status := func() (status string) {
		t.Helper()
		var list []listedGuild
		if err := json.Unmarshal([]byte(command("", "list", "--json").ok(t)), &list); err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		if out := command("", "list").ok(t); !strings.Contains(out, list[0].Status) {
			t.Errorf("list prints %s", out)
		}
		return list[0].Status
	}
	for _, typed := range []string{"", "8\n", "yes\n"} {
		if r := command(typed, "remove", "--guild", "7"); r.code != 1 || !strings.Contains(r.err, "nothing was removed") {
			t.Errorf("with %q typed: %+v", typed, r)
		}
	}
	if s := status(); s != "active" {
		t.Errorf("the guild is %s", s)
	}
	command("", "remove", "--guild", "7", "--after-days", "31", "--yes").refused(t, 2, "from 0 to 30")
	command("", "remove", "--guild", "8", "--yes").refused(t, 1, "There is no guild 8.")
	command("8\n", "remove", "--guild", "8").refused(t, 1, "There is no guild 8.") // and it does not ask for confirmation
	command("7\n", "remove", "--guild", "7").ok(t)
	if s := status(); s != "leaving" {
		t.Errorf("the guild is %s", s)
	}
	credentials := func(want string) {
		for _, line := range []string{"token list", "token create --name n --all-scopes", "dashboard link --dashboard-url=https://p.example"} {
			call(t, "", append(strings.Fields(line), "--guild", "7", "--database-url", base.URL)...).refused(t, 1, want)
		}
	}
	credentials("Guild 7 is being removed. Until its day comes it can be taken back")
	if out := command("", "restore", "--guild", "7").ok(t); !strings.Contains(out, "is there again") {
		t.Errorf("restore prints %q", out)
	}
	if out := command("", "restore", "--guild", "7", "--json").ok(t); !strings.Contains(out, "false") {
		t.Errorf("restore of a guild that is there prints %q", out)
	}
	command("", "remove", "--guild", "7", "--after-days", "0", "--yes", "--json").ok(t)
	if s := status(); s != "going" {
		t.Errorf("the guild is %s", s)
	}
	command("", "restore", "--guild", "7").refused(t, 1, "is being removed")
	credentials("Guild 7 is being removed, and what it had is being deleted.")
}

func TestAMemberIsForgottenByCommand(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	dbtest.AddGuilds(t, base.DB, "7")
	command := func(args ...string) result {
		return call(t, "", append([]string{"forget", "--database-url", base.URL}, args...)...)
	}
	command("--user", "5").refused(t, 2, "--guild or --every-guild")
	command("--user", "mara", "--guild", "7").refused(t, 2, "digits")
	command("--user", "5", "--guild", "8").refused(t, 1, "There is no guild 8.")
	command("--user", "5", "--guild", "7", "--cases").ok(t)
	dbtest.Exec(t, base.DB, `INSERT INTO wallets (guild_id, user_id, balance) VALUES ('7', '6', 3)`)
	command("--user", "6", "--every-guild", "--json").ok(t)
	if n := dbtest.Value[string](t, base.DB, `
		SELECT (SELECT string_agg(user_id || cases, ' ' ORDER BY user_id) FROM forgotten_members)
			|| ' ' || (SELECT count(*) FROM wallets)`); n != "5true 6false 0" {
		t.Errorf("the worker is asked for, and wallets are left: %s", n)
	}
}

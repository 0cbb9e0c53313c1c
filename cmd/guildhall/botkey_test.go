package main

import (
	"encoding/json"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
)

func TestAKeyIsMadeListedAndRevoked(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	command := func(args ...string) result {
		return call(t, "", append([]string{"bot-key"}, append(args, "--database-url", base.URL)...)...)
	}
	var key, every createdKey
	made := command("create", "--name", "bot", "--guild", "7,8", "--guild", "9 10", "--allow-ip", "192.0.2.0/24", "--expires-in", "2d",
		"--env", "test", "--json")
	if err := json.Unmarshal([]byte(made.ok(t)), &key); err != nil || !strings.HasPrefix(key.ID, "bk_") ||
		!strings.HasPrefix(key.Key, "bot_test_") ||
		strings.Join(key.GuildIDs, " ") != "10 7 8 9" || key.ExpiresAt == nil || len(key.IPAllowlist) != 1 {
		t.Errorf("create prints %s, %v", made.out, err)
	}
	made = command("create", "--name", "all", "--json")
	if err := json.Unmarshal([]byte(made.ok(t)), &every); err != nil || every.GuildIDs != nil ||
		!strings.Contains(made.out, `"guild_ids": null`) {
		t.Errorf("create prints %s, %v", made.out, err)
	}
	if made.err != "" {
		t.Errorf("create warns: %s", made.err)
	}
	command("create", "--name", "x", "--guild", "mara").refused(t, 2, "is not the id of a guild")
	command("create", "--name", "x", "--expires-in", "soon").refused(t, 2, "soon")

	var list []listedKey
	out := command("list", "--json").ok(t)
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 2 || strings.Contains(out, key.Key) {
		t.Errorf("list prints %s, %v", out, err)
	}
	if out := command("list").ok(t); !strings.Contains(out, "every guild") || !strings.Contains(out, "7 8") ||
		strings.Contains(out, every.Key) {
		t.Errorf("list prints %s", out)
	}
	command("revoke", key.ID).ok(t)
	command("revoke", key.ID).ok(t)
	command("revoke", "bk_none").refused(t, 1, "There is no bot key bk_none.")
	if r := command("revoke", key.Key); strings.Contains(r.err, key.Key) {
		t.Errorf("a key in the place of its id is printed: %s", r.err)
	}
	if err := json.Unmarshal([]byte(command("list", "--json").ok(t)), &list); err != nil || list[0].RevokedAt == nil ||
		list[1].RevokedAt != nil {
		t.Errorf("after the revocation the keys are %+v, %v", list, err)
	}
}

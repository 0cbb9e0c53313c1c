package main

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"guildhall/internal/base/db"
)

var findingLine = regexp.MustCompile(`^(ok  |warn|fail) [a-z_]+ +\S.*$`)

// Doctor prints a line for each check, and its exit code says whether one has failed.
func TestDoctor(t *testing.T) {
	t.Parallel()
	url, key := withGuild(t), someKey(t)
	examine := func(args ...string) result {
		return call(t, "", append([]string{
			"doctor", "--database-url", url, "--secret-key", key, "--discord-url", "off", "--trusted-proxies", "127.0.0.1",
		}, args...)...)
	}
	type report struct {
		Status   string
		Findings []struct {
			Status, Check, Message string
			About                  []string
		}
	}
	read := func(r result) (all report) {
		if err := json.Unmarshal([]byte(r.out), &all); err != nil {
			t.Fatalf("%v: %s", err, r.out)
		}
		return all
	}

	out := examine("--books").ok(t)
	for line := range strings.Lines(out) {
		if !findingLine.MatchString(strings.TrimSuffix(line, "\n")) {
			t.Errorf("the line %q is none of a finding", line)
		}
	}
	if n := strings.Count(out, "\n"); n != 18 {
		t.Errorf("%d lines: %s", n, out)
	}
	if all := read(result{out: examine("--json").ok(t)}); all.Status != "ok" || len(all.Findings) != 17 ||
		all.Findings[0].Check != "settings" || all.Findings[0].About == nil {
		t.Errorf("%+v", all) // the check of the ledgers was not requested
	}

	another, err := box(someKey(t), "live")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkKey(t.Context(), url, another); err != nil {
		t.Fatal(err)
	}
	examine().refused(t, 1, "1 of 17 checks failed: secret_key")
	r := examine("--json")
	r.refused(t, 1, "secret_key")
	if read(r).Status != "fail" {
		t.Error(r.out)
	}
	r = examine("--tls-cert", "x")
	r.refused(t, 1, "1 of 1 checks failed: settings")
	if !strings.Contains(r.out, "fail settings") || !strings.Contains(r.out, "GUILDHALL_TLS_CERT") {
		t.Error(r.out)
	}

	// A setting with which a node would not start, or about which it would warn, becomes a finding.
	schema, err := db.CheckSchema(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	distributed, status := "on", "warn"
	if schema.Distributed {
		distributed, status = "off", "fail"
	}
	for _, tt := range []struct {
		args         []string
		status, text string
	}{
		{[]string{"--database-url", "mysql://u:hunter2@h/d"}, "fail", "GUILDHALL_DATABASE_URL"},
		{[]string{"--database-url", "postgres://u:hunter2@h/d?sslmode=perhaps"}, "fail", "GUILDHALL_DATABASE_URL"},
		{[]string{"--listen-url", "mysql://u:hunter2@h/d"}, "fail", "GUILDHALL_LISTEN_URL"},
		{[]string{"--redis-url", "redis://u:hunter2@127.0.0.1:1/x"}, "fail", "GUILDHALL_REDIS_URL"},
		{[]string{"--db-connections", "6"}, "fail", "GUILDHALL_DB_CONNECTIONS"},
		{[]string{"--db-connections", "5", "--roles", "worker"}, "ok", ""},
		{[]string{"--db-connections", "many"}, "fail", "GUILDHALL_DB_CONNECTIONS"},
		{[]string{"--env", "prod"}, "fail", "GUILDHALL_ENV"},
		{[]string{"--roles", "api,cook"}, "fail", "GUILDHALL_ROLES"},
		{[]string{"--pprof", "maybe"}, "fail", "GUILDHALL_PPROF"},
		{[]string{"--check-answers", "maybe"}, "fail", "GUILDHALL_CHECK_ANSWERS"},
		{[]string{"--db-distributed", "maybe"}, "fail", "GUILDHALL_DB_DISTRIBUTED"},
		{[]string{"--db-distributed", distributed}, status, "GUILDHALL_DB_DISTRIBUTED"},
		{[]string{"--discord-token", "x", "--discord-url", "HTTP://127.0.0.1:1"}, "ok", ""},
		{[]string{"--discord-token", "x"}, "warn", "GUILDHALL_DISCORD_TOKEN has no effect, since GUILDHALL_DISCORD_URL is off"},
		{
			[]string{"--dashboard-url", "https://desk.example", "--discord-client-id", "1"},
			"warn",
			"GUILDHALL_DISCORD_CLIENT_ID has no effect, since GUILDHALL_DISCORD_URL is off",
		},
		{
			[]string{"--discord-client-id", "1", "--discord-client-secret", "hunter2"},
			"warn",
			"GUILDHALL_DISCORD_CLIENT_ID and GUILDHALL_DISCORD_CLIENT_SECRET have no effect, since GUILDHALL_DASHBOARD_URL is not set",
		},
		{
			[]string{"--dashboard-url", "https://desk.example", "--discord-client-secret", "hunter2"},
			"warn",
			"GUILDHALL_DISCORD_CLIENT_SECRET has no effect, since GUILDHALL_DISCORD_CLIENT_ID is not set",
		},
		{
			[]string{"--ops-listen", "off", "--pprof", "on", "--ops-hosts", "ops.example"},
			"warn",
			"GUILDHALL_OPS_HOSTS and GUILDHALL_PPROF have no effect, since GUILDHALL_OPS_LISTEN is off",
		},
		{[]string{"--discord-client-id", "1", "--roles", "worker"}, "ok", ""},
		{[]string{"--discord-url", "bots"}, "fail", "GUILDHALL_DISCORD_URL"},
		{[]string{"--discord-url", "https://discord.com/api/v10"}, "fail", "GUILDHALL_DISCORD_TOKEN: live needs"},
		{[]string{"--discord-url", "https://discord.com/api/v10", "--env", "test"}, "ok", ""},
	} {
		args := []string{
			"doctor", "--json", "--database-url", url, "--secret-key", someKey(t), "--discord-url", "off", "--trusted-proxies", "127.0.0.1",
		}
		r := call(t, "", append(args, tt.args...)...)
		all := read(r)
		f := all.Findings[0]
		if f.Check != "settings" || f.Status != tt.status || !strings.Contains(f.Message, tt.text) || strings.Contains(r.out, "hunter2") {
			t.Errorf("%v: %s", tt.args, r.out)
		}
		if tt.status == "fail" {
			r.refused(t, 1, "1 of 1 checks failed: settings")
		} else if len(all.Findings) != 17 {
			t.Errorf("%v: %d findings: %s", tt.args, len(all.Findings), r.out)
		}
	}
	// Without a certificate and a trusted proxy the API answers nobody.
	for roles, want := range map[string]string{
		"api": "warn every request is refused (https_required)", "worker": "ok the settings can be used",
	} {
		out := call(t, "", "doctor", "--json", "--database-url", url, "--secret-key", key, "--discord-url", "off", "--roles", roles)
		f := read(out).Findings[0]
		if said := f.Status + " " + f.Message; f.Check != "settings" || !strings.HasPrefix(said, want) {
			t.Errorf("a node with the role %s without a way in: %q", roles, said)
		}
	}
	r = call(t, "", "doctor", "--json", "--dir", t.TempDir())
	r.refused(t, 1, "1 of 1 checks failed: settings")
	if !strings.Contains(read(r).Findings[0].Message, "no database") {
		t.Error(r.out)
	}
	examine("--no-such-flag").refused(t, 2, "no-such-flag")
}

// Whatever the values of settings are, doctor still prints its findings.
func TestDoctorTakesAnyValueOfASetting(t *testing.T) {
	t.Parallel()
	for _, settings := range []reflect.Type{reflect.TypeFor[Settings](), reflect.TypeFor[roles]()} {
		for field := range settings.NumField() {
			flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(settings.Field(field).Tag.Get("env"), "GUILDHALL_")), "_", "-")
			r := call(t, "", "doctor", "--json", "--database-url", "postgres://127.0.0.1:1/d?sslmode=disable", "--secret-key", someKey(t),
				"--discord-url", "http://127.0.0.1:1", "--"+flag, "?")
			var all examined
			if err := json.Unmarshal([]byte(r.out), &all); err != nil || r.code != 1 || all.Findings[0].Check != "settings" {
				t.Errorf("--%s: exit code %d, %v: %s%s", flag, r.code, err, r.out, r.err)
			}
		}
	}
}

package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

var findingLine = regexp.MustCompile(`^(ok  |warn|fail) [a-z_]+ +\S.*$`)

// A line for each check in fixed words, and an exit code that says whether one
// has failed.
func TestDoctor(t *testing.T) {
	t.Parallel()
	url, key := withGuild(t), someKey(t)
	examine := func(args ...string) result {
		return call(t, "", append([]string{"doctor", "--database-url", url, "--secret-key", key}, args...)...)
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
	if n := strings.Count(out, "\n"); n != 13 {
		t.Errorf("%d lines: %s", n, out)
	}
	if all := read(result{out: examine("--json").ok(t)}); all.Status != "warn" || len(all.Findings) != 12 ||
		all.Findings[0].Check != "settings" || all.Findings[0].About == nil {
		t.Errorf("%+v", all) // the chat platform is a stand-in, and the books were not asked for
	}

	another, err := box(someKey(t), "live")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkKey(t.Context(), url, another); err != nil {
		t.Fatal(err)
	}
	examine().refused(t, 1, "1 of 12 checks failed: secret_key")
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
	examine("--no-such-flag").refused(t, 2, "no-such-flag")
}

package guildfile

import (
	"bytes"
	"regexp"
	"testing"
	"time"
)

// FuzzReader passes random lines to the whole reader: none may cause a panic, and each is accepted
// or refused.
func FuzzReader(f *testing.F) {
	var demo bytes.Buffer
	if err := Demo(&demo); err != nil {
		f.Fatal(err)
	}
	kinds := make(map[string]int)
	for line := range bytes.Lines(demo.Bytes()) {
		_, kind, _ := bytes.Cut(line, []byte(`"record":"`))
		kind, _, _ = bytes.Cut(kind, []byte(`"`))
		if kinds[string(kind)]++; kinds[string(kind)] <= 3 {
			f.Add(line)
		}
	}
	f.Add([]byte(`{"record":"settings","guild_id":"1","levelling":{"curve":{"base":100}}}`))
	f.Add([]byte(`{"record":"case","reason":"\ud83e\udd16\u0000","number":1e3}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		b := newBatch(nil, time.Unix(1700000000, 0))
		l, wrong := parse(1, line)
		if wrong == nil {
			wrong = b.add(l)
		}
		if wrong == nil && b.records != 1 {
			t.Fatalf("%q is neither read nor refused", line)
		}
	})
}

func TestTheDemoGuildHasGiveawaysInEveryStatus(t *testing.T) {
	t.Parallel()
	var demo bytes.Buffer
	if err := Demo(&demo); err != nil {
		t.Fatal(err)
	}
	for _, status := range []string{"scheduled", "active", "paused", "drawing", "ended", "cancelled"} {
		if !regexp.MustCompile(`"record":"giveaway",.*"status":"` + status + `"`).Match(demo.Bytes()) {
			t.Errorf("no giveaway is %s", status)
		}
	}
}

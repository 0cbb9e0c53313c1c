package main

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"

	"guildhall/internal/base/db/dbtest"
)

// A dry run says that nothing of the file was kept, and one record is no records.
func TestAnImportSaysWhatWasKept(t *testing.T) {
	t.Parallel()
	url := dbtest.New(t).URL
	load := func(args ...string) string {
		t.Helper()
		file := `{"record":"guild","id":"77","name":"The Harbour"}` + "\n"
		return call(t, file, append([]string{"import", "-", "--database-url", url}, args...)...).ok(t)
	}
	const counted = "guild: 1 created, 0 updated, 0 unchanged, 0 kept\n"
	for _, c := range []struct{ flags, want string }{
		{"--update --dry-run", counted + "This was a dry run: nothing of it was kept.\n"},
		{"", "Imported 1 record.\n"},
	} {
		if out := load(strings.Fields(c.flags)...); out != c.want {
			t.Errorf("import %s prints %q, want %q", c.flags, out, c.want)
		}
	}
}

// An import whose COMMIT got no response may have committed; repeating it with added balances would
// double them. So the error does not say that nothing was stored.
func TestAnImportOfUnknownOutcomeSaysSo(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	var begun atomic.Bool
	link := dbtest.NewJudgedLink(t, base.URL, func(sent []byte) dbtest.Fate {
		if bytes.Contains(sent, []byte("The Harbour")) {
			begun.Store(true)
		}
		if begun.Load() && bytes.Contains(sent, []byte("COMMIT")) {
			return dbtest.Lose
		}
		return dbtest.Pass
	})
	for _, update := range []bool{false, true} {
		begun.Store(false)
		args := []string{"import", "-", "--database-url", link.URL}
		file := `{"record":"guild","id":"77","name":"The Harbour"}` + "\n"
		if update {
			args = append(args, "--update")
			file = strings.Replace(file, "77", "78", 1)
		}
		r := call(t, file, args...)
		r.refused(t, 1, "look before you import it again")
		if strings.Contains(r.err, "nothing was kept") {
			t.Errorf("it says %q", r.err)
		}
	}
	call(t, "", "export", "--guild", "77", "--database-url", base.URL).ok(t)
	call(t, "", "export", "--guild", "78", "--database-url", base.URL).ok(t)
}

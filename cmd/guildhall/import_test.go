package main

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"

	"guildhall/internal/base/db/dbtest"
)

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

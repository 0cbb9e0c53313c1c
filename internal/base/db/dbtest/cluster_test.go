package dbtest_test

import (
	"bytes"
	"io/fs"
	"os"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
)

// Every test listed in apart.txt exists and has a reason.
func TestTheListOfTestsApartIsTrue(t *testing.T) {
	t.Parallel()
	wanted := map[string]bool{}
	for line := range strings.Lines(dbtest.Apart) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, ok := strings.Cut(line, ": ")
		if !ok || reason == "" {
			t.Errorf("no reason: %q", line)
		}
		test, _, _ := strings.Cut(name, "/")
		wanted[test] = true
	}
	root := os.DirFS("../../../..")
	if err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(root, path)
		for name := range wanted {
			if bytes.Contains(text, []byte("\nfunc "+name+"(t *testing.T)")) {
				delete(wanted, name)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for name := range wanted {
		t.Errorf("there is no test %s", name)
	}
}

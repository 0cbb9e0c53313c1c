package dbtest

import (
	"fmt"
	"io/fs"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/migrations"
)

// exceptions lists parts of the text of statements that may break a rule, each with a reason.
var exceptions = []struct{ part, reason string }{
	{"AND e.user_id = $2 AND e.entered_at <= $3", "entries of a member who is forgotten, which are otherwise only added"},
	{"AND ctid = ANY ($2::text[]::tid[])", "entries and draws of a guild that has left, which are otherwise only added"},
	{"AND e.user_id = g.user_id AND g.entries = 0", "entries that the bot changes before they are frozen"},
	{"AND e.user_id = d.user_id", "entries of a member who is disqualified before they are frozen"},
	{"WITH expired AS MATERIALIZED (", "expired rows of several guilds, the same"},
}

// guildTables returns the tables of the migrations that are not shared ones.
var guildTables = sync.OnceValue(func() map[string]bool {
	made := regexp.MustCompile(`(?m)^CREATE TABLE (\w+)`)
	tables := make(map[string]bool)
	err := fs.WalkDir(migrations.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := migrations.Files.ReadFile(path)
		for _, m := range made.FindAllSubmatch(text, -1) {
			name := string(m[1])
			tables[name] = db.SharedTables[name] == "" && !strings.HasPrefix(name, "goose_")
		}
		return err
	})
	if err != nil {
		panic(err) // cannot fail: the files are part of the program
	}
	return tables
})

// Every statement of the program is checked against the rules before it is first prepared or run in
// a test. A statement that breaks a rule fails, and so does the test that owns the database, even
// if the code ignores the error.
func init() {
	db.InspectStatements(func(database, written string) error {
		statement := db.Distributed(written)
		if unplanned(written) && ofTheProgram() {
			noteForms(database, written)
		}
		err := check(statement)
		if err == nil || !ofTheProgram() {
			return nil
		}
		err = fmt.Errorf("the statement breaks a rule of ARCHITECTURE.md: %w:\n%s", err, statement)
		violations.Lock()
		defer violations.Unlock()
		// A statement that is retried for ever would report its violation for ever.
		if seen := violations.of[database]; len(seen) < maxViolations {
			violations.of[database] = append(seen, err)
		}
		return err
	})
}

// maxViolations is how many violations a test reports.
const maxViolations = 10

var (
	verdicts   sync.Map // maps a statement to its error, or to nil
	violations = struct {
		sync.Mutex
		of map[string][]error
	}{of: make(map[string][]error)}
)

func check(statement string) error {
	if known, ok := verdicts.Load(statement); ok {
		err, _ := known.(error)
		return err
	}
	err := broken(statement)
	for _, e := range exceptions {
		if strings.Contains(statement, e.part) {
			err = nil
		}
	}
	verdicts.Store(statement, err)
	return err
}

// ofTheProgram reports whether the program itself runs the current statement. The rules do not
// apply to statements of tests, which prepare data as they like, nor to those of libraries, which
// have their own tables.
func ofTheProgram() bool {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	for {
		f, more := frames.Next()
		switch {
		case strings.Contains(f.Function, "pressly/goose"):
			return false
		case !strings.HasPrefix(f.Function, "guildhall/"), strings.HasPrefix(f.Function, "guildhall/internal/base/db."):
		default:
			return !strings.HasSuffix(f.File, "_test.go") && !ofTests(f.Function)
		}
		if !more {
			return false
		}
	}
}

// ofTests reports whether a function belongs to a package that only tests and benchmarks use.
func ofTests(function string) bool {
	for _, part := range []string{"/dbtest.", "/apitest.", "/testutil.", "/chattest.", "guildhall/bench"} {
		if strings.Contains(function, part) {
			return true
		}
	}
	return false
}

// wantRules fails the test if a statement on its database broke a rule.
func wantRules(t testing.TB, database string) {
	t.Helper()
	violations.Lock()
	defer violations.Unlock()
	for _, err := range violations.of[database] {
		t.Error(err)
	}
}

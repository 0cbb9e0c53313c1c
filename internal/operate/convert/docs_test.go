package convert

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var updating = flag.Bool("update", false, "write the tables of the documents anew")

func TestTheDocumentsHaveTheTablesOfTheProgram(t *testing.T) {
	t.Parallel()
	const path, begin, end = "../../../docs/bot/convert.md", "<!-- made from the program: begin -->\n", "<!-- made from the program: end -->\n"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	made, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the tables", path)
	}
	var want bytes.Buffer
	if err := Markdown(&want); err != nil {
		t.Fatal(err)
	}
	if *updating {
		if err := os.WriteFile(path, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if made != want.String() {
		t.Errorf("%s does not have the program's tables: go test ./internal/operate/convert -run Documents -update", path)
	}
	for _, name := range formatNames() {
		if !strings.Contains(before, "`"+name+"`") && !strings.Contains(before, "--from "+name+"`") {
			t.Errorf("%s does not say for what --from %s is", path, name)
		}
	}
}

func TestTheHelpSaysOfEachPathWhatBecomesOfIt(t *testing.T) {
	t.Parallel()
	var help bytes.Buffer
	if err := Help(&help); err != nil {
		t.Fatal(err)
	}
	for _, f := range formats {
		_, of, ok := strings.Cut("\n"+help.String(), "\n"+f.name+"\n")
		if !ok {
			t.Errorf("%s is not in the help", f.name)
		}
		of, _, _ = strings.Cut(of, "\n  flags: ")
		for _, r := range f.table {
			want := regexp.QuoteMeta(r.path) + " +" + regexp.QuoteMeta(cond(r.to == "", "no place", r.to)) + "\n"
			if !r.item && !regexp.MustCompile(want).MatchString(of+"\n") {
				t.Errorf("%s: the help does not say what becomes of %s", f.name, r.path)
			}
		}
	}
	for _, f := range formats {
		if f.name == "csv" || f.name == "json" {
			continue
		}
		var paths []string
		for _, r := range f.table {
			paths = append(paths, r.path)
		}
		slices.Sort(paths)
		if len(slices.Compact(slices.Clone(paths))) != len(paths) {
			t.Errorf("%s: a path stands in its table twice", f.name)
		}
	}
}

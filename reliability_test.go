package guildhall_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// RELIABILITY.md and the tests refer to each other: every test that RELIABILITY.md names
// exists and names the section of its promise in its comment, and every test that names a
// section is named there.
func TestReliability(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("RELIABILITY.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string][]string{} // sections by test
	testName := regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		tests := testName.FindAllStringSubmatch(body, -1)
		if len(tests) == 0 {
			t.Errorf("RELIABILITY.md names no test of %q", title)
		}
		for _, m := range tests {
			named[m[1]] = append(named[m[1]], title)
		}
	}
	said := sectionsOfTests(t)
	for test, sections := range named {
		have, exists := said[test]
		if !exists {
			t.Errorf("RELIABILITY.md names %s, which does not exist", test)
			continue
		}
		for _, s := range sections {
			if !slices.Contains(have, s) {
				t.Errorf("RELIABILITY.md names %s under %q: its comment has to say so", test, s)
			}
		}
	}
	for test, sections := range said {
		for _, s := range sections {
			if !slices.Contains(named[test], s) {
				t.Errorf("the comment of %s names the section %q of RELIABILITY.md, which does not name it", test, s)
			}
		}
	}
}

// sectionsOfTests returns every test with the sections of RELIABILITY.md that its comment
// names.
func sectionsOfTests(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	reference := regexp.MustCompile(`RELIABILITY\.md,\s(?s:(.+?))\.(?:\s|$)`)
	for _, path := range testFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			sections := found[f.Name.Name]
			for _, m := range reference.FindAllStringSubmatch(f.Doc.Text(), -1) {
				for s := range strings.SplitSeq(strings.Join(strings.Fields(m[1]), " "), " and ") {
					sections = append(sections, s)
				}
			}
			found[f.Name.Name] = sections
		}
	}
	return found
}

// testFiles returns the files with tests in the folders that hold Go packages.
func testFiles(t *testing.T) (files []string) {
	t.Helper()
	for _, folder := range []string{"bench", "cmd", "gen", "internal", "migrations"} {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, "_test.go") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

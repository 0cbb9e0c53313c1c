package page_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unexplained lists, with a reason each, the paginated statements without an index test.
var unexplained = map[string]string{
	"page.Found":                  "makes others",
	"page.CutOut":                 "is the end of the others",
	"page.ChangedAcross":          "makes another",
	"giveaways.disqualifications": "a giveaway has 1,000 at most, read by the primary key",
	"page.Narrowed":               "makes others",
	"page.list":                   "makes the others",
	"streams.list":                "there are five streams at most, read whole",
	"webhooks.list":               "a guild's endpoints are few, and read whole by the primary key",
}

// Every statement that reads a page of a list has a test in its package that checks its plan. A
// list is a string with LIMIT and OFFSET, or the result of Newest, Narrowed, Changed or Found. The
// test calls WantIndex, WantFound or Plan with the store's own statement, or through a function
// that does.
func TestEveryListHasATestOfItsIndex(t *testing.T) {
	t.Parallel()
	folders, err := filepath.Glob("../../*/*")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, folder := range folders {
		p := parse(t, folder)
		for _, name := range p.lists {
			found++
			list := filepath.Base(folder) + "." + name
			_, excused := unexplained[list]
			if explained := p.explains(name); explained == excused {
				t.Errorf("%s: explained by a test: %t, on the list of those without one: %t", list, explained, excused)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d lists were found: their statements look different now", found)
	}
}

// source is what the test needs to know of a package: which names use which others, which names are
// lists, and which names its tests explain.
type source struct {
	uses      map[string][]string
	lists     []string
	explained []string
}

var paged = regexp.MustCompile(`LIMIT (\$\d+|\(SELECT \$2::bigint\)) OFFSET (\$\d|coalesce|\(SELECT \$3)`)

func parse(t *testing.T, folder string) *source {
	t.Helper()
	s := &source{uses: map[string][]string{}}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if strings.HasSuffix(path, "_test.go") {
				s.readTest(d)
			} else {
				s.read(d)
			}
		}
	}
	return s
}

func (s *source) read(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		s.note(d.Name.Name, d)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				s.note(v.Names[0].Name, v)
			}
		}
	}
}

func (s *source) note(name string, node ast.Node) {
	list := false
	s.uses[name] = append(s.uses[name], names(node, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.BasicLit:
			list = list || paged.MatchString(n.Value)
		case *ast.SelectorExpr:
			made, ok := n.X.(*ast.Ident)
			makers := []string{"Newest", "Narrowed", "Changed", "ChangedAcross", "Found"}
			list = list || ok && made.Name == "page" && slices.Contains(makers, n.Sel.Name)
		}
	})...)
	if list {
		s.lists = append(s.lists, name)
	}
}

// readTest also records the names that each test helper uses: a test covers the lists that its
// helpers use.
func (s *source) readTest(d ast.Decl) {
	all := names(d, func(ast.Node) {})
	if f, ok := d.(*ast.FuncDecl); ok {
		s.uses[f.Name.Name] = append(s.uses[f.Name.Name], all...)
	}
	if slices.Contains(all, "WantIndex") || slices.Contains(all, "WantFound") || slices.Contains(all, "Plan") {
		s.explained = append(s.explained, all...)
	}
}

// explains reports whether a test uses the list, or uses something that uses the list.
func (s *source) explains(list string) bool {
	seen := map[string]bool{}
	for todo := slices.Clone(s.explained); len(todo) > 0; {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if name == list {
			return true
		}
		if !seen[name] {
			seen[name] = true
			todo = append(todo, s.uses[name]...)
		}
	}
	return false
}

// names returns the identifiers below a node, and calls look for every node below it.
func names(node ast.Node, look func(ast.Node)) (all []string) {
	ast.Inspect(node, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			all = append(all, id.Name)
		}
		if n != nil {
			look(n)
		}
		return true
	})
	return all
}

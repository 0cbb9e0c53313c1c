package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// variable is that of the environment in which a program that has many changes is told
// the number of the one to make.
const variable = "GUILDHALL_MUTANT"

// chooser is a file that such a program has besides.
const chooser = `package %s

import (
	"os"
	"strconv"
)

var mutantNumber, _ = strconv.Atoi(os.Getenv("` + variable + `"))

func mutantText(text string, changed map[int]string) string {
	if other, ok := changed[mutantNumber]; ok {
		return other
	}
	return text
}
`

// allTogether numbers the changes of texts, and returns the files of the package with
// all of them, for a program that chooses. A declaration of constants that has one, or
// is made of such, becomes one of variables.
func allTogether(folder string, list []change) (map[string][]byte, error) {
	byText := make(map[string][]change) // by file and place
	for i := range list {
		if c := &list[i]; c.end > 0 {
			c.number = i + 1
			at := fmt.Sprint(c.file, c.start)
			byText[at] = append(byText[at], *c)
		}
	}
	edits := make(map[string][]change) // by file
	for _, of := range byText {
		if first := of[0]; strings.HasSuffix(first.file, ".go") {
			edits[first.file] = append(edits[first.file], change{content: first.content, from: first.start, to: first.end, with: choice(of)})
			continue
		}
		if err := embed(folder, edits, of); err != nil {
			return nil, err
		}
	}
	name, err := makeVariables(folder, edits)
	if err != nil {
		return nil, err
	}
	contents := map[string][]byte{filepath.Join(folder, "mutant_texts.go"): fmt.Appendf(nil, chooser, name)}
	for file, of := range edits {
		slices.SortFunc(of, func(a, b change) int { return cmp.Compare(b.from, a.from) }) // from its end
		content := of[0].content
		for _, e := range of {
			e.content = content
			content = e.applied()
		}
		contents[file] = content
	}
	return contents, nil
}

// choice is a text of which a program has all changes.
func choice(of []change) string {
	text := func(content []byte) string {
		if strings.HasSuffix(of[0].file, ".sql") {
			return strconv.Quote(string(content))
		}
		return string(content)
	}
	var others strings.Builder
	for _, c := range of {
		c.content, c.from, c.to = c.content[c.start:c.end], c.from-c.start, c.to-c.start
		fmt.Fprintf(&others, "%d: %s,", c.number, text(c.applied()))
	}
	first := of[0]
	return fmt.Sprintf("mutantText(%s, map[int]string{%s})", text(first.content[first.start:first.end]), &others)
}

// embed puts the choice of a statement's file in the place of the variable that has it.
func embed(folder string, edits map[string][]change, of []change) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return err
	}
	embedded := regexp.MustCompile(`(?m)^\s*//go:embed ` + regexp.QuoteMeta(filepath.Base(of[0].file)) + `\n\s*(var )?(\w+) +string$`)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if at := embedded.FindSubmatchIndex(content); at != nil {
			name := string(embedded.Expand(nil, []byte("\n$1$2 = "), content, at))
			edits[file] = append(edits[file], change{content: content, from: at[0], to: at[1], with: name + choice(of)})
			return nil
		}
	}
	return fmt.Errorf("%s is embedded nowhere", of[0].file)
}

// constant is a declaration of constants.
type constant struct {
	change // that makes it one of variables
	file   string
	end    int
	names  []string
	uses   map[string]bool
}

// makeVariables adds to the edits the declarations that have to become variables, and
// returns the package's name.
func makeVariables(folder string, edits map[string][]change) (name string, err error) {
	var all []constant
	files, err := filesOf(folder)
	for _, file := range files {
		if err == nil && strings.HasSuffix(file, ".go") {
			var found []constant
			found, name, err = constantsOf(file)
			all = append(all, found...)
		}
	}
	if err != nil {
		return "", err
	}
	variables := make(map[string]bool)
	for more := true; more; {
		more = false
		all = slices.DeleteFunc(all, func(c constant) bool {
			if !c.varies(edits[c.file], variables) {
				return false
			}
			edits[c.file] = append(edits[c.file], c.change)
			for _, n := range c.names {
				variables[n] = true
			}
			more = true
			return true
		})
	}
	return name, nil
}

// varies reports whether a declaration has an edit, or is made of what is a variable.
func (c constant) varies(edits []change, variables map[string]bool) bool {
	for _, e := range edits {
		if c.from < e.from && e.from < c.end {
			return true
		}
	}
	for n := range c.uses {
		if variables[n] {
			return true
		}
	}
	return false
}

// constantsOf returns the declarations of constants in a file, and its package's name.
func constantsOf(file string) (all []constant, name string, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, "", err
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, content, 0)
	if err != nil {
		return nil, "", err
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		d, ok := n.(*ast.GenDecl)
		if !ok || d.Tok != token.CONST {
			return true
		}
		from := set.Position(d.Pos()).Offset
		c := constant{file: file, end: set.Position(d.End()).Offset, uses: make(map[string]bool)}
		c.change = change{content: content, from: from, to: from + len("const"), with: "var"}
		for _, s := range d.Specs {
			for _, n := range s.(*ast.ValueSpec).Names {
				c.names = append(c.names, n.Name)
			}
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				c.uses[id.Name] = true
			}
			return true
		})
		all = append(all, c)
		return true
	})
	return all, tree.Name.Name, nil
}

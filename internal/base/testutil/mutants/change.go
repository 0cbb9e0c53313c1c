package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// change is another text for a part of a file.
type change struct {
	file     string
	content  []byte
	line     int
	from, to int
	with     string

	start, end int // of the text that it changes, a literal or a file; 0: it changes a number
	number     int // among those that are built together; 0: it is built by itself
}

func (c change) applied() []byte {
	return append(append(append([]byte(nil), c.content[:c.from]...), c.with...), c.content[c.to:]...)
}

func (c change) String() string {
	return fmt.Sprintf("%s:%d: %s → %s", c.file, c.line, oneLine(string(c.content[c.from:c.to])), oneLine(c.with))
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// changes returns those of a package, in the order of its files.
func changes(folder string) ([]change, error) {
	files, err := filesOf(folder)
	if err != nil {
		return nil, err
	}
	var list []change
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		found, err := inFile(file, content)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			c.file, c.content = file, content
			c.with = strings.ReplaceAll(c.with, "%s", string(content[c.from:c.to]))
			c.line = 1 + strings.Count(string(content[:c.from]), "\n")
			list = append(list, c)
		}
	}
	return list, nil
}

// filesOf returns the names of a package's code and statements.
func filesOf(folder string) (files []string, err error) {
	for _, kind := range []string{"*.go", "*.sql"} {
		found, err := filepath.Glob(filepath.Join(folder, kind))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") }), nil
}

// inFile returns the changes of a file: each constant doubled and halved, and each
// condition of SQL made one that never decides anything.
func inFile(file string, content []byte) ([]change, error) {
	if strings.HasSuffix(file, ".sql") {
		list := conditionChanges(string(content))
		for i := range list {
			list[i].end = len(content)
		}
		return list, nil
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, content, 0)
	if err != nil {
		return nil, err
	}
	return inCode(set, tree), nil
}

func inCode(set *token.FileSet, tree *ast.File) (list []change) {
	at := func(p token.Pos) int { return set.Position(p).Offset }
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			if n.Tok == token.CONST {
				list = append(list, constants(at, n)...)
			}
		case *ast.BasicLit:
			if n.Kind != token.STRING {
				break
			}
			for _, c := range conditionChanges(n.Value[1 : len(n.Value)-1]) {
				c.start, c.end = at(n.Pos()), at(n.End())
				c.from, c.to = c.from+c.start+1, c.to+c.start+1
				list = append(list, c)
			}
		}
		return true
	})
	return list
}

// constants returns the changes of a declaration's numbers.
func constants(at func(token.Pos) int, d *ast.GenDecl) (list []change) {
	for _, s := range d.Specs {
		spec, ok := s.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for _, v := range spec.Values {
			number := false
			ast.Inspect(v, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				number = number || ok && (lit.Kind == token.INT || lit.Kind == token.FLOAT)
				return true
			})
			if !number {
				continue
			}
			for _, with := range []string{"2 * (%s)", "(%s) / 2"} {
				list = append(list, change{from: at(v.Pos()), to: at(v.End()), with: with})
			}
		}
	}
	return list
}

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// change is another text for a part of a file.
type change struct {
	file     string
	content  []byte
	line     int
	from, to int
	with     string
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
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var list []change
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, content, 0)
		if err != nil {
			return nil, err
		}
		for _, c := range inFile(set, tree) {
			c.file, c.content = file, content
			c.with = strings.ReplaceAll(c.with, "%s", string(content[c.from:c.to]))
			c.line = 1 + strings.Count(string(content[:c.from]), "\n")
			list = append(list, c)
		}
	}
	return list, nil
}

// inFile returns the changes of a file: each constant doubled and halved, and each
// condition of SQL made one that never decides anything.
func inFile(set *token.FileSet, tree *ast.File) (list []change) {
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
				c.from, c.to = c.from+at(n.Pos())+1, c.to+at(n.Pos())+1
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

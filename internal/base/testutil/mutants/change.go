package main

import (
	"bytes"
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

	start, end int // of the text that it changes, a literal or a file; 0: a number, or several texts
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
	return inCode(set, tree, content), nil
}

func inCode(set *token.FileSet, tree *ast.File, content []byte) (list []change) {
	at := func(p token.Pos) int { return set.Position(p).Offset }
	seen := make(map[*ast.BasicLit]bool)
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			if n.Tok == token.CONST {
				list = append(list, constants(at, n)...)
			}
		case ast.Expr:
			texts := slices.DeleteFunc(textsOf(n), func(text *ast.BasicLit) bool { return seen[text] })
			for _, text := range texts {
				seen[text] = true
			}
			list = append(list, inTexts(at, texts, content)...)
		}
		return true
	})
	return list
}

// textsOf returns the texts that an expression is, or puts together.
func textsOf(e ast.Expr) []*ast.BasicLit {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return []*ast.BasicLit{e}
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return append(textsOf(e.X), textsOf(e.Y)...)
		}
	}
	return nil
}

// inTexts returns the changes of the conditions in texts that are put together. They are
// read as one text, in which a hole stands for all between two of them. A condition that
// reaches over a hole is changed by itself.
func inTexts(at func(token.Pos) int, texts []*ast.BasicLit, content []byte) (list []change) {
	if len(texts) == 0 {
		return nil
	}
	first := at(texts[0].Pos())
	whole := bytes.Repeat([]byte(hole), at(texts[len(texts)-1].End())-first)
	for _, text := range texts {
		from, to := at(text.Pos())+1, at(text.End())-1
		copy(whole[from-first:], content[from:to])
	}
	for _, c := range conditionChanges(strings.TrimSuffix(string(whole), hole)) {
		c.from, c.to = c.from+first, c.to+first
		for _, text := range texts {
			if start, end := at(text.Pos()), at(text.End()); start < c.from && c.to < end {
				c.start, c.end = start, end
			}
		}
		list = append(list, c)
	}
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

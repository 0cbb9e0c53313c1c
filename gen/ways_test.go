package gen_test

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// calls calls fn with each call of a method or of a package's function in the program,
// and where it stands.
func calls(t *testing.T, fn func(path string, at token.Position, name string, call *ast.CallExpr)) {
	t.Helper()
	parsedProgram(t, func(path string, files *token.FileSet, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if of, ok := call.Fun.(*ast.SelectorExpr); ok {
					fn(path, files.Position(call.Pos()), of.Sel.Name, call)
				}
			}
			return true
		})
	})
}

// Statements are run by db.Get, db.Select and db.Exec: each returns what it has found,
// so that a reader looks for it in one place.
func TestStatementsAreRunInOneWay(t *testing.T) {
	t.Parallel()
	calls(t, func(path string, at token.Position, name string, _ *ast.CallExpr) {
		switch name {
		case "GetContext", "SelectContext", "ExecContext":
			if !strings.Contains(path, "/internal/base/") {
				t.Errorf("%s: %s; run it by db.Get, db.Select or db.Exec", at, name)
			}
		}
	})
}

// An error is wrapped by fault.Wrap where nothing but words stands before it. Numbers,
// and words behind it, are what fmt.Errorf is for.
func TestErrorsAreWrappedInOneWay(t *testing.T) {
	t.Parallel()
	calls(t, func(path string, at token.Position, name string, call *ast.CallExpr) {
		if name != "Errorf" || strings.Contains(path, "/base/fault/") {
			return
		}
		literal, ok := call.Args[0].(*ast.BasicLit)
		if !ok {
			return
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		doing, wraps := strings.CutSuffix(text, ": %w")
		for word := range strings.FieldsSeq(doing) {
			wraps = wraps && (word == "%s" || !strings.Contains(word, "%"))
		}
		if wraps {
			t.Errorf("%s: %q; say it by fault.Wrap, or with %%v if a value is no string", at, text)
		}
	})
}

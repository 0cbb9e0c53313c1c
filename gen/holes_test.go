package gen_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"testing"
)

// maxHoles are as many values as a statement's text may be put together of, besides its
// own literals: a reader has to see the statement.
const maxHoles = 5

// fullOfHoles are the files with statements of more, and how many they have: those that
// delete what is outlived are written for any table.
var fullOfHoles = map[string]int{"../internal/base/db/prune.go": 7}

var isStatement = regexp.MustCompile(`\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|RETURNING|FROM|WHERE)\s`)

func TestAStatementCanBeRead(t *testing.T) {
	t.Parallel()
	most := map[string]int{}
	parsedProgram(t, func(path string, files *token.FileSet, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			expr, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			statement, holes := holesOf(expr)
			if statement {
				most[path] = max(most[path], holes)
			}
			if statement && holes > max(maxHoles, fullOfHoles[path]) {
				t.Errorf("%s: a statement of %d values; write it whole, or once for each form", files.Position(n.Pos()), holes)
			}
			return true
		})
	})
	for path, known := range fullOfHoles {
		if most[path] < known {
			t.Errorf("%s has %d holes at most by now, not %d: say so in this test", path, most[path], known)
		}
	}
}

// holesOf reports whether an expression puts a statement together, and of how many values
// that are not written there: what stands between its literals, or the variables of db.With.
func holesOf(e ast.Expr) (statement bool, holes int) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING && isStatement.MatchString(e.Value), 0
	case *ast.ParenExpr:
		return holesOf(e.X)
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			left, n := holesOf(e.X)
			right, m := holesOf(e.Y)
			return left || right, n + m
		}
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "With" && len(e.Args) > 2 {
			return true, len(e.Args) / 2
		}
	}
	return false, 1
}

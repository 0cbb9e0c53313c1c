package gen_test

import (
	"go/ast"
	"go/token"
	"testing"
)

// A reader who knows a package-level name from one package takes it for the same
// thing in the next. So no name is a type here and a function there.
func TestANameIsOneKindOfThing(t *testing.T) {
	t.Parallel()
	kinds, where := declared(t)
	for name, of := range kinds {
		if len(of) > 1 {
			t.Errorf("%s is of several kinds; give the newest another name: %v", name, where[name])
		}
	}
}

// declared returns what kinds of things the unexported package-level names are, and
// where they are declared.
func declared(t *testing.T) (kinds map[string]map[token.Token]bool, where map[string][]string) {
	t.Helper()
	kinds, where = map[string]map[token.Token]bool{}, map[string][]string{}
	parsedProgram(t, func(path string, _ *token.FileSet, file *ast.File) {
		add := func(name *ast.Ident, kind token.Token) {
			if name.IsExported() || name.Name == "_" || name.Name == "init" {
				return
			}
			if kinds[name.Name] == nil {
				kinds[name.Name] = map[token.Token]bool{}
			}
			kinds[name.Name][kind] = true
			where[name.Name] = append(where[name.Name], path)
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv == nil {
					add(decl.Name, token.FUNC)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						add(spec.Name, token.TYPE)
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							add(name, token.VAR) // a constant is a value as well
						}
					}
				}
			}
		}
	})
	return kinds, where
}

package gen_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// leftovers are the folders of what is fetched and built, which is not the repository's.
var leftovers = []string{".git", ".venv", "bin", "build", "dist", "generated", "node_modules", "target"}

// filesIn are the repository's files below a folder that are wanted.
func filesIn(t *testing.T, folder string, wanted func(path string) bool) (files []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(leftovers, d.Name()):
			return fs.SkipDir
		case !d.IsDir() && wanted(path):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// programFiles are the Go files of the program, without tests.
func programFiles(t *testing.T) (files []string) {
	t.Helper()
	for _, folder := range []string{"../internal", "../cmd"} {
		files = append(files, filesIn(t, folder, func(path string) bool {
			return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
		})...)
	}
	return files
}

// parsedProgram calls fn with each Go file of the program, parsed.
func parsedProgram(t *testing.T, fn func(path string, files *token.FileSet, file *ast.File)) {
	t.Helper()
	for _, path := range programFiles(t) {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		fn(path, files, file)
	}
}

// isTestdata reports whether a file is only read by a test.
func isTestdata(path string) bool { return strings.Contains(path, "/testdata/") }

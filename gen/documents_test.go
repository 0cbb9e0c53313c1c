package gen_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	namedOperation = regexp.MustCompile("`([a-z]+[A-Z][A-Za-z]+)`")
	namedCall      = regexp.MustCompile("`(GET|POST|PUT|PATCH|DELETE) (/[^`?]*)[^`]*`")
)

// Every operation that the documents for callers name exists in the contract.
func TestDocumentsNameOperationsThatThereAre(t *testing.T) {
	t.Parallel()
	operations, calls := map[string]bool{}, map[string]bool{}
	doc := document(t)
	parameter := regexp.MustCompile(`\{[^}]*\}`)
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			operations[op.OperationID] = true
			calls[method+" "+parameter.ReplaceAllString(path, "{}")] = true
		}
	}
	var files []string
	for _, pattern := range []string{"../README.md", "../docs/integrate/*.md", "../docs/bot/*.md", "../docs/recipes.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	named := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range namedOperation.FindAllStringSubmatch(string(text), -1) {
			named++
			if !operations[m[1]] {
				t.Errorf("%s names %s, which is no operation", file, m[1])
			}
		}
		for _, m := range namedCall.FindAllStringSubmatch(string(text), -1) {
			named++
			if call := m[1] + " " + parameter.ReplaceAllString(m[2], "{}"); !calls[call] {
				t.Errorf("%s names %s, which is no operation", file, call)
			}
		}
	}
	if named < 15 {
		t.Errorf("only %d operations are named", named)
	}
}

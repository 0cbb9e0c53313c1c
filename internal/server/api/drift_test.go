package api_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"

	"guildhall/internal/access/auth"
	"guildhall/internal/contract"
	"guildhall/internal/outbound/event"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/records"
)

// The routes are exactly those of the document.
func TestRoutesAreDocumented(t *testing.T) {
	t.Parallel()
	var cfg api.Config
	apitest.New(t, apitest.With(func(c *api.Config) { cfg = *c }))
	handler, err := api.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var routes, documented []string
	for _, r := range handler.(*echo.Echo).Routes() {
		if r.Method != echo.HEAD && r.Method != echo.RouteNotFound { // GET routes answer HEAD too
			routes = append(routes, r.Method+" "+r.Path)
		}
	}
	placeholder := regexp.MustCompile(`\{(\w+)\}`)
	for _, op := range apitest.Operations() {
		documented = append(documented, op.Method+" "+api.Prefix+placeholder.ReplaceAllString(op.Path, ":$1"))
	}
	wantValues(t, "routes", routes, documented)
}

// Lists in the document that callers must expect to grow match the program's constants.
func TestListsAreThePrograms(t *testing.T) {
	t.Parallel()
	doc := document(t)
	var kinds []string
	for _, b := range records.Batches() {
		kinds = append(kinds, b.Name())
	}
	for place, want := range map[string][]string{
		"WrittenRecord.record":         kinds,
		"TokenMetadata.scopes":         append(slices.Clone(auth.Scopes), auth.ScopeBot),
		"FailureDetail.required_scope": append(slices.Clone(auth.Scopes), auth.ScopeBot),
		"WebhookEventType":             event.Types,
		"WebhookDeliveryEventFilter":   append(slices.Clone(event.Types), event.Ping),
		"EventTypeName":                append(slices.Clone(event.Types), event.Ping, event.WorkRequested),
		"FailureDetail.code":           codesInSource(t),
	} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			wantValues(t, place, values(t, doc, place), want)
		})
	}
}

// codesInSource returns the codes of all faults in the source: the second argument of each
// fault.New, a literal or a constant.
func codesInSource(t *testing.T) []string {
	t.Helper()
	files := sources(t)
	texts := map[string]string{} // the values of constants by package and name
	for _, file := range files {
		for _, d := range file.Decls {
			gathered(t, file.Name.Name, d, texts)
		}
	}
	var codes []string
	for path, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 || nameOf(file.Name.Name, call.Fun) != "fault.New" {
				return true
			}
			code := texts[nameOf(file.Name.Name, call.Args[1])]
			if text, ok := call.Args[1].(*ast.BasicLit); ok {
				code = unquoted(t, text)
			}
			switch code {
			case "":
				t.Errorf("%s: a code that is neither written out nor a constant", path)
			case "token_limit_reached": // for tokens, which are not created by the API
			default:
				codes = append(codes, code)
			}
			return true
		})
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// sources returns the program's files by path, without the dashboard's, whose pages and faults are
// not the API's.
func sources(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "dashboard" {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files[path], err = parser.ParseFile(token.NewFileSet(), path, nil, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// gathered adds the string constants of a declaration.
func gathered(t *testing.T, pkg string, d ast.Decl, texts map[string]string) {
	t.Helper()
	list, ok := d.(*ast.GenDecl)
	if !ok || list.Tok != token.CONST {
		return
	}
	for _, s := range list.Specs {
		spec, ok := s.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for i, v := range spec.Values {
			if text, ok := v.(*ast.BasicLit); ok && text.Kind == token.STRING {
				texts[pkg+"."+spec.Names[i].Name] = unquoted(t, text)
			}
		}
	}
}

// nameOf returns the name that an expression refers to, with its package, or "" if it is no name.
func nameOf(pkg string, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return pkg + "." + e.Name
	case *ast.SelectorExpr:
		if of, ok := e.X.(*ast.Ident); ok {
			return of.Name + "." + e.Sel.Name
		}
	}
	return ""
}

func unquoted(t *testing.T, text *ast.BasicLit) string {
	t.Helper()
	s, err := strconv.Unquote(text.Value)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := contract.Document()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// values returns the enumerated values of a schema, "CaseTypeFilter", or of a property,
// "Case.type".
func values(t *testing.T, doc *openapi3.T, place string) []string {
	t.Helper()
	name, property, nested := strings.Cut(place, ".")
	ref := doc.Components.Schemas[name]
	if ref != nil && nested {
		ref = ref.Value.Properties[property]
	}
	if ref == nil {
		t.Fatalf("the document has no %s", place)
	}
	s := ref.Value
	if s.Items != nil {
		s = s.Items.Value
	}
	list := s.Enum
	if open, ok := s.Extensions["x-extensible-enum"].([]any); ok {
		list = open
	}
	var out []string
	for _, v := range list {
		out = append(out, v.(string))
	}
	return out
}

func wantValues(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) || len(got) == 0 {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// Summaries are ordered by tag as in the document, then by path and method.
func TestSummariesAreInTheDocumentsOrder(t *testing.T) {
	t.Parallel()
	all, err := api.Summaries()
	if err != nil {
		t.Fatal(err)
	}
	var tags []string
	for _, tag := range document(t).Tags {
		tags = append(tags, tag.Name)
	}
	for i, s := range all {
		op := apitest.Find(t, s.ID)
		want := api.Summary{ID: op.ID, Method: op.Method, Path: op.Path, Scope: op.Scope, Summary: op.Spec.Summary, Tag: op.Spec.Tags[0]}
		if s != want || s.Summary == "" {
			t.Errorf("%s is %+v, want %+v", s.ID, s, want)
		}
		if i == 0 {
			continue
		}
		before := all[i-1]
		if cmp.Or(slices.Index(tags, before.Tag)-slices.Index(tags, s.Tag), strings.Compare(before.Path, s.Path),
			strings.Compare(before.Method, s.Method)) >= 0 {
			t.Errorf("%s stands after %s", s.ID, before.ID)
		}
	}
	if len(all) != len(apitest.Operations()) {
		t.Errorf("there are %d summaries of %d operations", len(all), len(apitest.Operations()))
	}
}

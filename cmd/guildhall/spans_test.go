package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/getkin/kin-openapi/openapi3"

	"guildhall"
	"guildhall/internal/base/schema"
	"guildhall/internal/contract"
)

// operation is an operation of the contract with its place.
type operation struct {
	*openapi3.Operation
	method, path string // the path has {} for each parameter
	parameters   openapi3.Parameters
}

var pathParameter = regexp.MustCompile(`\{[^}]*\}`)

// contractOperations returns the contract and its operations.
func contractOperations(t *testing.T) (doc *openapi3.T, all []operation) {
	t.Helper()
	doc, err := contract.Document()
	if err != nil {
		t.Fatal(err)
	}
	for at, item := range doc.Paths.Map() {
		place := pathParameter.ReplaceAllString(at, "{}")
		for method, op := range item.Operations() {
			all = append(all, operation{op, method, place, slices.Concat(item.Parameters, op.Parameters)})
		}
	}
	return doc, all
}

// section is a section of a document that shows calls, with its code spans and blocks of JSON.
type section struct {
	document string
	spans    []string
	paths    []string    // that its blocks call with curl
	named    []operation // the operations that the section names
}

var (
	// Documents that name functions and the like, which have the form of operations' names.
	ofPrograms    = regexp.MustCompile(`^(ARCHITECTURE.md|openapi.yaml|examples/.*)$`)
	operationName = regexp.MustCompile(`^[a-z]+[A-Z][A-Za-z]+$`)
	calledPath    = regexp.MustCompile(`\$GUILDHALL_URL(/[^?" ]+)`)
	httpCall      = regexp.MustCompile(`^(GET|POST|PUT|PATCH|DELETE) (?:/api/v1)?([/…][^? ]*)(?:\?(\S+))?$`)
)

// sectionsForCallers returns the sections of the documents for callers, and each description of
// the contract.
func sectionsForCallers(t *testing.T) (all []section) {
	t.Helper()
	for at, text := range documents(t) {
		if at != "README.md" && at != "docs/recipes.md" && at != "ARCHITECTURE.md" && !strings.HasPrefix(at, "docs/integrate/") &&
			!strings.HasPrefix(at, "docs/bot/") && !strings.HasPrefix(at, "examples/") {
			continue
		}
		blocks, prose := blocksOf(text)
		for _, part := range regexp.MustCompile(`(?m)^## `).Split(prose, -1) {
			all = append(all, section{document: at, spans: spansOf(part)})
		}
		shown := section{document: at}
		for _, b := range blocks {
			if b.language == "sh" {
				shown.paths = append(shown.paths, calledPath.FindAllString(b.text, -1)...)
			} else if b.language == "json" && strings.Count(b.text, `{"record"`) < 2 { // not a guild file
				shown.spans = append(shown.spans, b.text)
			}
		}
		all = append(all, shown)
	}
	description := regexp.MustCompile(`description: (?:[|>]-?\n((?:\s*\n| {6,}.*\n)+)|(.*))`)
	for _, m := range description.FindAllStringSubmatch(string(guildhall.OpenAPI), -1) {
		all = append(all, section{document: "openapi.yaml", spans: spansOf(m[1] + m[2])})
	}
	return all
}

// Each operation that a document for callers names exists, each call has the parameters that it
// shows, and each value in JSON is a body that an operation named beside it accepts or answers.
func TestCallsInTheTextOfDocumentsAreTheContracts(t *testing.T) {
	t.Parallel()
	doc, operations := contractOperations(t)
	calls, values := 0, 0
	for _, s := range sectionsForCallers(t) {
		for _, text := range s.spans {
			op, query, isCall, exists := findCall(operations, text)
			if operationName.MatchString(text) && !ofPrograms.MatchString(s.document) {
				i := slices.IndexFunc(operations, func(op operation) bool { return op.OperationID == text })
				if isCall, exists = true, i >= 0; exists {
					op = operations[i]
				}
			}
			if !isCall {
				continue
			}
			calls++
			if !exists {
				t.Errorf("%s names %s, which is no operation", s.document, text)
				continue
			}
			checkQuery(t, s.document, op, query)
			s.named = append(s.named, op)
		}
		for _, op := range operations {
			if slices.Contains(s.paths, "$GUILDHALL_URL"+op.path) {
				s.named = append(s.named, op)
			}
		}
		for _, text := range s.spans {
			if strings.HasPrefix(text, `{"`) || strings.HasPrefix(text, `"`) && strings.Contains(text, `": `) {
				values++
				checkValue(t, doc, operations, s, text)
			}
		}
	}
	if calls < 50 || values < 15 {
		t.Errorf("only %d calls and %d values were found", calls, values)
	}
}

// findCall returns the operation that a code span such as "GET /cases?type=ban" calls, and its query.
func findCall(operations []operation, text string) (op operation, query string, isCall, exists bool) {
	m := httpCall.FindStringSubmatch(text)
	if m == nil {
		return operation{}, "", false, false
	}
	place := pathParameter.ReplaceAllString(m[2], "{}")
	i := slices.IndexFunc(operations, func(op operation) bool {
		return op.method == m[1] && (op.path == place || strings.HasPrefix(place, "…") && strings.HasSuffix(op.path, place[len("…"):]))
	})
	if i < 0 {
		return operation{}, "", true, false
	}
	return operations[i], m[3], true, true
}

// sendShown sends the reads that the text of the documents shows to guildhall dev. The demo guild
// has what the contract's examples of parameters name.
func sendShown(t *testing.T, dev target) {
	t.Helper()
	_, operations := contractOperations(t)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	sent := map[string]bool{}
	for _, s := range sectionsForCallers(t) {
		for _, text := range s.spans {
			op, query, _, exists := findCall(operations, text)
			if !exists || op.method != http.MethodGet || sent[text] {
				continue
			}
			sent[text] = true
			at := op.path
			for _, p := range op.parameters {
				if p.Value.In == openapi3.ParameterInPath {
					at = strings.Replace(at, "{}", fmt.Sprint(p.Value.Example), 1)
				}
			}
			at = dev.variables["GUILDHALL_URL"] + at + "?" + strings.ReplaceAll(query, "…", buyer)
			if res, body, err := get(t.Context(), client, at, dev.variables["GUILDHALL_TOKEN"]); err != nil || res.StatusCode != http.StatusOK {
				t.Errorf("%s shows %s, which is answered %v, %v: %s", s.document, text, res, err, body)
			}
		}
	}
	if len(sent) < 6 {
		t.Errorf("only %d calls were sent", len(sent))
	}
}

// checkQuery holds the query of a call against the parameters of its operation.
func checkQuery(t *testing.T, document string, op operation, query string) {
	t.Helper()
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Errorf("%s: %s?%s: %v", document, op.path, query, err)
	}
	for name, value := range values {
		i := slices.IndexFunc(op.parameters, func(p *openapi3.ParameterRef) bool { return p.Value.In == "query" && p.Value.Name == name })
		if i < 0 {
			t.Errorf("%s shows %s with %s, which it does not take", document, op.OperationID, name)
			continue
		}
		var read any = value[0]
		if s := op.parameters[i].Value.Schema.Value; value[0] != "…" && !accepts(s, read) &&
			(json.Unmarshal([]byte(value[0]), &read) != nil || !accepts(s, read)) {
			t.Errorf("%s shows %s with %s=%s, which it refuses", document, op.OperationID, name, value[0])
		}
	}
}

// othersJSON lists values that are not for the API, with the reason.
var othersJSON = map[string]string{
	`{"parse": ["users"]}`: "Discord's allowed_mentions",
	`{"parse": []}`:        "Discord's allowed_mentions",
}

// checkValue holds a JSON value against the bodies of the operations that its section names. A
// member alone is held against the members of that name in all schemas.
func checkValue(t *testing.T, doc *openapi3.T, operations []operation, s section, text string) {
	t.Helper()
	whole := strings.HasPrefix(text, "{")
	filled := strings.ReplaceAll(text, "…", "190320984123768832")
	if !whole {
		filled = "{" + filled + "}"
	}
	var value map[string]any
	if err := json.Unmarshal([]byte(filled), &value); err != nil {
		t.Errorf("%s shows %s: %v", s.document, text, err)
		return
	}
	if othersJSON[text] != "" {
		return
	}
	schemas := []*openapi3.Schema{doc.Components.Schemas["Failure"].Value}
	if s.document == "openapi.yaml" { // a description does not name its own operation
		s.named = operations
	}
	for _, op := range s.named {
		if op.RequestBody != nil {
			schemas = append(schemas, op.RequestBody.Value.Content["application/json"].Schema.Value)
		}
		if answer := op.Responses.Status(200); answer != nil && answer.Value.Content["application/json"] != nil {
			schemas = append(schemas, answer.Value.Content["application/json"].Schema.Value)
		}
	}
	accepted := slices.ContainsFunc(schemas, func(s *openapi3.Schema) bool { return accepts(s, value) })
	for _, of := range doc.Components.Schemas {
		for name, member := range value {
			p := of.Value.Properties[name]
			accepted = accepted || !whole && p != nil && accepts(p.Value, member)
		}
	}
	if !accepted {
		t.Errorf("%s shows %s, which none of the operations accepts that the section names", s.document, text)
	}
}

func accepts(s *openapi3.Schema, value any) bool { return len(schema.Visit(s, value)) == 0 }

// Each value of a setting in the text of a document is one that the program accepts.
func TestSettingsInTheTextOfDocumentsAreAccepted(t *testing.T) {
	t.Parallel()
	found := 0
	assignment := regexp.MustCompile(`^(GUILDHALL_[A-Z_]+)=([^ '…]+)( make run)?$`)
	for at, text := range documents(t) {
		_, prose := blocksOf(text)
		for _, shown := range spansOf(prose) {
			m := assignment.FindStringSubmatch(shown)
			if m == nil || strings.HasPrefix(m[1], "GUILDHALL_TEST_") || strings.HasSuffix(m[2], ".pem") { // a file
				continue
			}
			found++
			if err := acceptable(t, map[string]string{m[1]: m[2]}); err != nil {
				t.Errorf("%s shows %s: %v", at, shown, err)
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d settings were found", found)
	}
}

// acceptable returns what serve says of settings in a file such as /etc/guildhall/env.
func acceptable(t *testing.T, values map[string]string) error {
	t.Helper()
	var cli commands
	parser, err := kong.New(&cli, kong.Name("guildhall"), kong.Resolvers(kong.ResolverFunc(
		func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
			for _, name := range flag.Envs {
				if value, ok := values[name]; ok {
					delete(values, name)
					return value, nil
				}
			}
			return nil, nil
		})))
	if err != nil {
		t.Fatal(err)
	}
	if values["GUILDHALL_SECRET_KEY"] == "" {
		values["GUILDHALL_SECRET_KEY"] = someKey(t)
	}
	if values["GUILDHALL_DISCORD_TOKEN"] == "" && values["GUILDHALL_DISCORD_URL"] == "" {
		values["GUILDHALL_DISCORD_URL"] = "off"
	}
	if _, err := parser.Parse([]string{"serve"}); err != nil {
		return err
	}
	for name := range values {
		t.Errorf("%s is no setting of serve", name)
	}
	_, err = cli.Serve.check(cli.Serve.roles)
	return err
}

// Each file, test, drill and target of make that a document names exists.
func TestDocumentsNameFilesThatThereAre(t *testing.T) {
	t.Parallel()
	tests, found := testNames(t), map[string]int{}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	top, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	made := []string{"bin", "dist", "build", ".guildhall"} // and not in the repository
	file := regexp.MustCompile(`^(\.?[A-Za-z0-9_-]+)/[A-Za-z0-9_./*-]*$`)
	for at, text := range documents(t) {
		blocks, prose := blocksOf(text)
		spans := spansOf(prose)
		for _, b := range blocks {
			if b.language == "sh" {
				spans = append(spans, strings.Split(b.text, "\n")...)
			}
		}
		for _, shown := range spans {
			if m := regexp.MustCompile(`\bmake ([a-z][a-z-]+)`).FindStringSubmatch(shown); m != nil {
				found["target"]++
				if !strings.Contains(string(makefile), "\n"+m[1]+": ") {
					t.Errorf("%s names make %s, which does not exist", at, m[1])
				}
			}
			if m := regexp.MustCompile(`^(Test[A-Z]\w+)(/.*)?$`).FindStringSubmatch(shown); m != nil {
				found["test"]++
				if !tests[m[1]] {
					t.Errorf("%s names %s, which does not exist", at, m[1])
				}
			}
			if strings.HasPrefix(shown, "go ") {
				found["go"]++
				checkGo(t, at, shown, tests)
			}
			m := file.FindStringSubmatch(shown)
			if m == nil || slices.Contains(made, m[1]) || regexp.MustCompile(`[A-Z]{4}`).MatchString(path.Base(shown)) &&
				!strings.HasSuffix(shown, ".md") || !slices.ContainsFunc(top, func(d os.DirEntry) bool { return d.Name() == m[1] }) {
				continue
			}
			found["file"]++
			if names, err := filepath.Glob("../../" + shown); err != nil || len(names) == 0 {
				t.Errorf("%s names %s, which does not exist", at, shown)
			}
		}
	}
	if found["file"] < 40 || found["test"] < 40 || found["target"] < 40 || found["go"] < 10 {
		t.Errorf("only %v were found", found)
	}
}

// The tree of ARCHITECTURE.md names folders and files that exist, and its figures name functions.
func TestTheTreeOfTheArchitectureIsThere(t *testing.T) {
	t.Parallel()
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^(?:func (?:\([^)]*\) )?|type |\t)(\w+)(?:\[.*\])?(?:\(| +func\(| struct)`)
	for at, text := range textsFor(t) {
		if filepath.Ext(at) == ".go" {
			for _, m := range declaration.FindAllStringSubmatch(text, -1) {
				declared[m[1]] = true
			}
		}
	}
	folders, functions := 0, 0
	for _, b := range codeOf(t, "ARCHITECTURE.md", "") {
		var parents []string // the folder at each depth
		for line := range strings.Lines(b.text) {
			words := strings.TrimLeft(line, " ")
			depth := (len(line) - len(words)) / 2
			first := strings.Fields(words)[0]
			switch {
			case b.section != "The tree":
				name := first[strings.LastIndex(first, ".")+1:]
				if calls := regexp.MustCompile(`^[\w.()*]+ {2}`); !calls.MatchString(words) || depth > 4 {
					continue // the line before goes on
				}
				functions++
				if !declared[name] {
					t.Errorf("ARCHITECTURE.md shows %s, which is no function", first)
				}
			case depth < 4:
				for name := range strings.FieldsSeq(strings.SplitN(words, "  ", 2)[0]) {
					parents = append(parents[:min(depth, len(parents))], name)
					folders++
					if _, err := os.Stat("../../" + path.Join(parents...)); err != nil {
						t.Errorf("ARCHITECTURE.md shows %s: %v", path.Join(parents...), err)
					}
				}
			}
		}
	}
	if folders < 50 || functions < 25 {
		t.Errorf("only %d folders and %d functions were found", folders, functions)
	}
}

// checkGo holds the folders, flags, tests and subcommands of a go command against the sources.
func checkGo(t *testing.T, document, command string, tests map[string]bool) {
	t.Helper()
	words := strings.Fields(command)
	i := slices.IndexFunc(words, func(word string) bool { return strings.HasPrefix(word, "./") })
	if i < 0 {
		return
	}
	sources, err := filepath.Glob("../../" + words[i] + "/*.go")
	if err != nil || len(sources) == 0 {
		t.Errorf("%s shows %s: there is no package %s", document, command, words[i])
	}
	program := ""
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		program += string(text)
	}
	for j, word := range words[:i] {
		if prefix := map[string]string{"-run": "Test", "-bench": "Benchmark"}[word]; prefix != "" {
			name, _, _ := strings.Cut(strings.TrimPrefix(words[j+1], prefix), "/")
			if !tests[prefix+name] {
				t.Errorf("%s shows %s: there is no %s%s", document, command, prefix, name)
			}
		}
	}
	for j, word := range words[i+1:] {
		flag, isFlag := strings.CutPrefix(word, "-")
		if (isFlag || j == 0) && !strings.Contains(program, `"`+flag+`"`) {
			t.Errorf("%s shows %s: the program knows no %s", document, command, word)
		}
	}
}

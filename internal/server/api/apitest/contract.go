// Package apitest lets tests call operations by id through the real handler, with a database of
// their own, and checks every response against the contract. It is for _test.go files only.
package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"guildhall/internal/base/fault"
	"guildhall/internal/contract"
)

// Operation is one operation of the contract.
type Operation struct {
	ID     string
	Method string
	Path   string // with {parameters}, below the base URL
	Scope  string
	Spec   *openapi3.Operation
	route  *routers.Route
}

var operations = sync.OnceValue(func() map[string]Operation {
	doc, err := contract.Document()
	if err != nil {
		panic(err)
	}
	ops := map[string]Operation{}
	for path, item := range doc.Paths.Map() {
		for method, o := range item.Operations() {
			scope, _ := o.Extensions["x-required-scope"].(string)
			ops[o.OperationID] = Operation{
				ID: o.OperationID, Method: method, Path: path, Scope: scope, Spec: o,
				route: &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: o},
			}
		}
	}
	return ops
})

// Operations returns all operations of the contract, in the order of their ids.
func Operations() []Operation {
	ops := make([]Operation, 0, len(operations()))
	for _, op := range operations() {
		ops = append(ops, op)
	}
	sort.Slice(ops, func(i, j int) bool { return ops[i].ID < ops[j].ID })
	return ops
}

// Find returns the operation with this id.
func Find(t testing.TB, id string) Operation {
	t.Helper()
	op, ok := operations()[id]
	if !ok {
		t.Fatalf("the contract has no operation %q", id)
	}
	return op
}

// Codes returns the error codes that the contract lists for a status.
func (op Operation) Codes(status int) []string {
	ref := op.Spec.Responses.Status(status)
	if ref == nil {
		return nil
	}
	list, _ := ref.Value.Extensions["x-error-codes"].([]any)
	codes := make([]string, 0, len(list))
	for _, c := range list {
		codes = append(codes, fmt.Sprint(c))
	}
	return codes
}

// LongPoll reports whether the operation may wait before it responds. Such an operation counts as a
// read and takes no key.
func (op Operation) LongPoll() bool { return op.Spec.Extensions["x-long-poll"] == true }

// Statuses returns the documented statuses.
func (op Operation) Statuses() []int {
	var list []int
	for s := range op.Spec.Responses.Map() {
		var n int
		if _, err := fmt.Sscan(s, &n); err == nil {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list
}

// check checks a response against the document: status, headers, body and code.
func (op Operation) check(req *http.Request, a *Response) error {
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, Route: op.route},
		Status:                 a.Status,
		Header:                 a.Header,
		Body:                   io.NopCloser(bytes.NewReader(a.Body)),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	if op.Spec.Responses.Status(a.Status) == nil {
		return fmt.Errorf("%s answered %d, which the contract does not list: %s", op.ID, a.Status, a.said())
	}
	if req.Method == http.MethodHead {
		return nil
	}
	if err := openapi3filter.ValidateResponse(context.Background(), in); err != nil {
		return fmt.Errorf("%s answered %d against the contract: %w\n%s", op.ID, a.Status, err, a.said())
	}
	if a.Status >= 400 && !slices.Contains(op.Codes(a.Status), a.Code()) {
		return fmt.Errorf("%s answered %d with code %q, which the contract does not list for it", op.ID, a.Status, a.Code())
	}
	return nil
}

// CheckEvent checks an event's payload against the schema of its type.
func CheckEvent(typ string, payload []byte) error {
	doc := operations()["getMe"].route.Spec
	var value any
	if err := json.Unmarshal(payload, &value); err != nil {
		return fault.Wrap(err, "event", typ, "is not JSON")
	}
	for name, ref := range doc.Components.Schemas {
		prop := ref.Value.Properties["type"]
		if !strings.HasPrefix(name, "Event") || prop == nil {
			continue
		}
		if list, _ := prop.Value.Extensions["x-extensible-enum"].([]any); len(list) == 1 && list[0] == typ {
			if err := ref.Value.VisitJSON(value, openapi3.MultiErrors()); err != nil {
				return fmt.Errorf("event %s against its schema %s: %w\n%s", typ, name, err, payload)
			}
			return nil
		}
	}
	return fmt.Errorf("the contract has no schema for event %s", typ)
}

// producedResponses records the responses that the package's tests have got.
var producedResponses = struct {
	sync.Mutex
	m map[string]bool
}{m: map[string]bool{}}

func noteResponse(op Operation, a *Response) {
	producedResponses.Lock()
	defer producedResponses.Unlock()
	code := ""
	if a.Status >= 400 {
		code = a.Code()
	}
	producedResponses.m[fmt.Sprintf("%s %d %s", op.ID, a.Status, code)] = true
}

// own lists the statuses that a domain's tests must produce. The tests of package api produce the
// others for every operation.
var own = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusBadGateway}

// Main runs a package's tests. It then fails if an operation with the tag never succeeded, or if
// one of its documented refusals never occurred. A run of selected tests is not judged.
func Main(m *testing.M, tag string) {
	status := m.Run()
	if status == 0 && !selective() {
		for _, missing := range unseen(tag) {
			fmt.Fprintln(os.Stderr, "never seen in the tests:", missing)
			status = 1
		}
	}
	os.Exit(status)
}

func selective() bool {
	for _, arg := range os.Args[1:] {
		for _, name := range []string{"-test.run=", "-test.skip=", "-test.bench=", "-test.fuzz=", "-test.list="} {
			if strings.HasPrefix(arg, name) && arg != name {
				return true
			}
		}
		if arg == "-test.short=true" {
			return true
		}
	}
	return false
}

func unseen(tag string) []string {
	producedResponses.Lock()
	defer producedResponses.Unlock()
	var missing []string
	found := false
	for _, op := range Operations() {
		if !slices.Contains(op.Spec.Tags, tag) {
			continue
		}
		found = true
		for _, status := range op.Statuses() {
			if status < 400 {
				if triple := fmt.Sprintf("%s %d ", op.ID, status); !producedResponses.m[triple] {
					missing = append(missing, triple)
				}
			}
			if !slices.Contains(own, status) || op.Spec.Responses.Status(status).Ref == "#/components/responses/NoGuild" {
				continue
			}
			for _, code := range op.Codes(status) {
				if triple := fmt.Sprintf("%s %d %s", op.ID, status, code); !producedResponses.m[triple] {
					missing = append(missing, triple)
				}
			}
		}
	}
	if !found {
		missing = append(missing, "any operation with the tag "+tag)
	}
	return missing
}

package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"guildhall/internal/base/fault"
	"guildhall/internal/contract"
)

func TestAnOperationsBodyIsBoundedAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromData([]byte(`
openapi: 3.0.3
info: {title: Limits, version: 1.0.0}
x-max-body: 100
x-max-values: 3
paths:
  /few: {post: {operationId: few, requestBody: &body {content: {application/json: {schema: {type: array, items: {type: integer}}}}},
    responses: {}}}
  /many: {post: {operationId: many, x-max-body: 200, x-max-values: 5, requestBody: *body, responses: {}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	ops := readOperations(doc)
	for path, most := range map[string]struct{ bytes, values int }{"/few": {100, 3}, "/many": {200, 5}} {
		op := ops[[2]string{"POST", Prefix + path}]
		for n, within := range map[int]bool{most.values: true, most.values + 1: false} {
			// The array itself counts as a value.
			body := "[" + strings.TrimSuffix(strings.Repeat("1,", n-1), ",") + "]"
			if found := validateBody(&reqState{ctx: t.Context(), body: []byte(body), op: op}); (len(found) == 0) != within {
				t.Errorf("%s: %d values: found %v", path, n, found)
			}
		}
		for n, within := range map[int]bool{most.bytes: true, most.bytes + 1: false} {
			for _, told := range []bool{true, false} {
				body, err := readAll(bodyOf(n, told), op.MaxBody, nil)
				if f, _ := fault.As(err); (err == nil) != within || within && len(body) != n || !within && f.Code != "payload_too_large" {
					t.Errorf("%s: %d bytes: read %d, %v", path, n, len(body), err)
				}
			}
		}
	}
}

// The document bounds bytes and values of every operation's body.
func TestTheDocumentBoundsTheBodyOfEveryOperation(t *testing.T) {
	t.Parallel()
	doc, err := contract.Document()
	if err != nil {
		t.Fatal(err)
	}
	for at, op := range readOperations(doc) {
		if op.MaxBody < 1 || op.MaxBody > 1<<20 || op.MaxValues < 1 || op.MaxValues > 50_000 {
			t.Errorf("%v: %d bytes and %d values", at, op.MaxBody, op.MaxValues)
		}
	}
}

// bodyOf returns a request with a body of n bytes, with or without a Content-Length.
func bodyOf(n int, told bool) *http.Request {
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat(" ", n)))
	if !told {
		req.ContentLength = -1
	}
	return req
}

// Package worst makes, from the contract, the requests of each operation that cost the
// server the most. Tests and the bench worst send them; nothing else imports it.
package worst

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"guildhall/internal/contract"
)

// Request is one request of an operation.
type Request struct {
	Operation    string // operationId
	Method, Path string // Path is the contract's, with {id}
	About        string // what is bad about the request; legal or illegal
	Query        string
	Body         []byte
}

// Operations returns the operations of a document in the order of their paths.
func Operations(doc *openapi3.T, each func(method, path string, op *openapi3.Operation)) {
	for _, path := range doc.Paths.InMatchingOrder() {
		operations := doc.Paths.Value(path).Operations()
		for _, method := range slices.Sorted(maps.Keys(operations)) {
			each(method, path, operations[method])
		}
	}
}

// Illegal returns the refused requests of each operation that cost the most: as large, and
// of as many values, as the operation takes.
func Illegal(doc *openapi3.T) (requests []Request) {
	Operations(doc, func(method, path string, op *openapi3.Operation) {
		add := func(about, query string, body []byte) {
			requests = append(requests, Request{op.OperationID, method, path, about, query, body})
		}
		if method == http.MethodGet {
			add("100 unknown parameters", parameters(100), nil)
			add("9900 unknown parameters", parameters(9900), nil)
		}
		if op.RequestBody != nil {
			bodies := illegalBodies(doc, op)
			for _, about := range slices.Sorted(maps.Keys(bodies)) {
				add(about, "", bodies[about])
			}
		}
	})
	return requests
}

func parameters(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("q%02d", i)
	}
	return strings.Join(names, "&")
}

// bodyOf is the schema of an operation's body.
func bodyOf(op *openapi3.Operation) *openapi3.Schema {
	return op.RequestBody.Value.Content.Get("application/json").Schema.Value
}

// illegalBodies returns the refused bodies of an operation that cost the most, by what is
// wrong with them.
func illegalBodies(doc *openapi3.T, op *openapi3.Operation) map[string][]byte {
	values, size := contract.Bound(doc, op, "x-max-values"), contract.Bound(doc, op, "x-max-body")
	unknown := func(n int) string {
		var members strings.Builder
		for i := range n {
			fmt.Fprintf(&members, `,"unknown_%d":1`, i)
		}
		return members.String()[min(1, members.Len()):]
	}
	bodies := map[string]string{
		"unknown members": "{" + unknown(values-1) + "}",
		"only values":     "[" + strings.Repeat("1,", values-2) + "1]",
		"fractions":       "[" + strings.Repeat("1.5,", values-2) + "1]",
	}
	for name, ref := range bodyOf(op).Properties {
		if ref.Value.Items == nil {
			bodies["wrong "+name] = fmt.Sprintf(`{%q:[%s1]}`, name, strings.Repeat("1,", values-3))
			continue
		}
		most := 1000
		if n := ref.Value.MaxItems; n != nil {
			most = int(*n)
		}
		each := max(1, (values-2)/most-1)
		bodies["unknown members in "+name] = fmt.Sprintf(`{%q:[%s]}`, name, strings.Join(slices.Repeat([]string{"{" + unknown(each) + "}"}, most), ","))
		bodies["wrong values in "+name] = fmt.Sprintf(`{%q:[%s]}`, name, strings.Join(slices.Repeat([]string{wrongValues(ref.Value.Items.Value)}, most), ","))
		bodies["too many items of "+name] = fmt.Sprintf(`{%q:[%s1]}`, name, strings.Repeat("1,", values-3))
		bodies["empty items of "+name] = fmt.Sprintf(`{%q:[%s{}]}`, name, strings.Repeat("{},", values-3))
	}
	fitting := map[string][]byte{}
	for about, body := range bodies {
		if len(body) > size {
			body = body[:size/2] // not JSON any more, but as long
			about += ", cut off"
		}
		fitting[about] = []byte(body)
	}
	return fitting
}

// wrongValues is an object whose members all have a value of the wrong type.
func wrongValues(s *openapi3.Schema) string {
	var members []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		members = append(members, fmt.Sprintf(`%q:[]`, name))
	}
	return "{" + strings.Join(members, ",") + "}"
}

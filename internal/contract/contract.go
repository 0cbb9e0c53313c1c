// Package contract holds the OpenAPI document that the server enforces, and looks up its schemas.
package contract

import (
	"fmt"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"

	"guildhall"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/schema"
)

// Document parses the JSON form of openapi.yaml once and returns it. Callers must not change it.
var Document = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(guildhall.OpenAPIJSON)
	if err != nil {
		return nil, fault.Wrap(err, "read openapi.yaml")
	}
	// The document allows only https. Whether a receiver without TLS is allowed depends on the
	// installation's settings, so the check of the URL's address decides that, not the schema.
	for _, name := range []string{"CreateWebhookEndpointRequest", "UpdateWebhookEndpointRequest"} {
		url := doc.Components.Schemas[name].Value.Properties["url"].Value
		url.Pattern = strings.Replace(url.Pattern, "^https://", "^https?://", 1)
	}
	schema.SetKinds(doc.Components.Schemas["GuildRecord"].Value, "record", recordKinds(doc))
	return doc, nil
})

// recordKinds returns the schemas of the kinds of record, RecordGuild and so on, by the kind's name.
func recordKinds(doc *openapi3.T) map[string]*openapi3.Schema {
	kinds := make(map[string]*openapi3.Schema)
	for name, s := range doc.Components.Schemas {
		if record := s.Value.Properties["record"]; record != nil && strings.HasPrefix(name, "Record") {
			kind, _ := record.Value.Enum[0].(string)
			kinds[kind] = s.Value
		}
	}
	return kinds
}

// Bound returns the bound that the document has under name, such as x-max-body, for an
// operation, or else for all.
func Bound(doc *openapi3.T, op *openapi3.Operation, name string) int {
	n, own := op.Extensions[name].(float64)
	if !own {
		n, _ = doc.Extensions[name].(float64)
	}
	return int(n)
}

// Checker returns schema.Check bound to the named schema. It panics when the document has no such
// schema.
func Checker(name string) func(value any, found []schema.Problem) []schema.Problem {
	s := find(name)
	return func(value any, found []schema.Problem) []schema.Problem { return schema.Check(s, value, found) }
}

// Required returns the members that the named schema requires. It panics when the document has no
// such schema.
func Required(name string) []string { return find(name).Required }

func find(name string) *openapi3.Schema {
	doc, err := Document()
	if err != nil || doc.Components.Schemas[name] == nil {
		panic(fmt.Sprintf("contract: there is no schema %s: %v", name, err))
	}
	return doc.Components.Schemas[name].Value
}

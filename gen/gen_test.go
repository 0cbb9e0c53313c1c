package gen_test

import (
	"context"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"guildhall"
	"guildhall/gen"
)

// The documents are valid for the library that enforces them, every example matches its schema, and
// every pattern and default is valid.
func TestDocumentsAreValid(t *testing.T) {
	t.Parallel()
	for name, src := range map[string][]byte{"enforced": guildhall.OpenAPI, "3.0": gen.OpenAPI, "3.1": gen.OpenAPI31} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			doc, err := openapi3.NewLoader().LoadFromData(src)
			if err != nil {
				t.Fatal(err)
			}
			err = doc.Validate(context.Background(),
				openapi3.EnableExamplesValidation(),
				openapi3.EnableSchemaDefaultsValidation(),
				openapi3.EnableSchemaPatternValidation(),
				openapi3.EnableMultiError())
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// The server parses the contract's JSON form: it says the same as openapi.yaml.
func TestTheJSONFormSaysTheSame(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromData(guildhall.OpenAPIJSON)
	if err != nil {
		t.Fatal(err)
	}
	if jsonText(t, doc) != jsonText(t, document(t)) {
		t.Error("gen/enforced.json differs from openapi.yaml: run make generate")
	}
}

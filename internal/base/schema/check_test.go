package schema

import (
	"fmt"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// The rest of a large value is not validated once a message has more places than it counts.
func TestAMessageCountsFiveHundredFurtherPlaces(t *testing.T) {
	t.Parallel()
	number := openapi3.NewIntegerSchema()
	s := openapi3.NewObjectSchema().WithProperty("list", openapi3.NewArraySchema().WithItems(
		openapi3.NewObjectSchema().WithProperties(map[string]*openapi3.Schema{
			"a": number, "b": number, "c": number, "d": number, "e": number, "f": number, "g": number,
		}))).WithProperty("zone", number)
	s.Required = []string{"zone"}
	no := false
	s.AdditionalProperties.Has = &no
	wrong := map[string]any{"a": "", "b": "", "c": "", "d": "", "e": "", "f": "", "g": ""}
	list := func(n int) []any {
		items := make([]any, n)
		for i := range items {
			items[i] = wrong
		}
		return items
	}
	unknown := map[string]any{"zone": 1.0}
	for i := range 5000 {
		unknown[fmt.Sprint("u", i)] = 1.0
	}
	for name, c := range map[string]struct {
		value map[string]any
		ends  string
	}{
		"few items":     {map[string]any{"list": list(72), "zone": 1.0}, "; and 499 more"},
		"many items":    {map[string]any{"list": list(400), "zone": 1.0}, "; and more than 500 more"},
		"many members":  {unknown, "; and more than 500 more"},
		"the last item": {map[string]any{"list": append(make([]any, 0), append(fine(300), wrong)...), "zone": 1.0}, "; and 2 more"},
	} {
		text := Describe(Check(s, c.value, nil))
		if !strings.HasSuffix(text, c.ends) || strings.Contains(text, "required") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// fine are objects in which nothing is wrong.
func fine(n int) []any {
	items := make([]any, n)
	for i := range items {
		items[i] = map[string]any{}
	}
	return items
}

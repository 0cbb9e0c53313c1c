package main

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestDerive(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"null becomes a type and an enum value": {
			`components: {schemas: {A: {type: object, properties: {b: {type: string, nullable: true, enum: [x]}}}}}`,
			`components: {schemas: {A: {type: object, properties: {b: {type: [string, "null"], enum: [x, null]}}}}}`,
		},
		"nullable false says nothing": {
			`components: {schemas: {A: {type: string, nullable: false}}}`,
			`components: {schemas: {A: {type: string}}}`,
		},
		"exclusive bounds become numbers": {
			`components: {schemas: {A: {type: integer, minimum: 0, exclusiveMinimum: true, maximum: 9, exclusiveMaximum: false}}}`,
			`components: {schemas: {A: {type: integer, exclusiveMinimum: 0, maximum: 9}}}`,
		},
		"an example becomes a list of examples": {
			`components: {schemas: {A: {type: string, example: x}}}`,
			`components: {schemas: {A: {type: string, examples: [x]}}}`,
		},
		"an open list of values becomes examples": {
			`components: {schemas: {A: {type: array, items: {type: string, x-extensible-enum: [x, y]}}}}`,
			`components: {schemas: {A: {type: array, items: {type: string, examples: [x, y]}}}}`,
		},
		"schemas of parameters, headers and answers are reached": {
			`paths: {/a: {get: {parameters: [{name: p, schema: {type: string, nullable: true}}], responses: {'200': {` +
				`headers: {H: {schema: {type: string, nullable: true}}}, ` +
				`content: {application/json: {schema: {type: object, additionalProperties: {type: string, nullable: true}}}}}}}}}`,
			`paths: {/a: {get: {parameters: [{name: p, schema: {type: [string, "null"]}}], responses: {'200': {` +
				`headers: {H: {schema: {type: [string, "null"]}}}, ` +
				`content: {application/json: {schema: {type: object, additionalProperties: {type: [string, "null"]}}}}}}}}}`,
		},
		"examples are data and stay as they are": {
			`paths: {/a: {get: {responses: {'200': {content: {application/json: {example: {schema: {nullable: true}}}}}}}}}`,
			`paths: {/a: {get: {responses: {'200': {content: {application/json: {example: {schema: {nullable: true}}}}}}}}}`,
		},
		"a property called nullable is a property": {
			`components: {schemas: {A: {type: object, properties: {nullable: {type: string}}}}}`,
			`components: {schemas: {A: {type: object, properties: {nullable: {type: string}}}}}`,
		},
		"what a name must match is a schema": {
			`components: {schemas: {A: {type: object, x-property-names: ^a$, additionalProperties: {type: string}}}}`,
			`components: {schemas: {A: {type: object, propertyNames: {pattern: ^a$}, additionalProperties: {type: string}}}}`,
		},
		"callbacks become webhooks": {
			`paths: {/a: {post: {callbacks: {b: {'{$request.body#/url}': {post: {summary: s}}}}}}}`,
			`paths: {/a: {post: {}}}` + "\nwebhooks:\n  b: {post: {summary: s, x-internal: true}}",
		},
		"a scope joins the requirement": {
			"security: [{bearer: []}]\npaths: {/a: {get: {x-required-scope: 'a:read'}, post: {}}}",
			"security: [{bearer: []}]\npaths: {/a: {get: {x-required-scope: 'a:read', security: [{bearer: ['a:read']}]}, post: {}}}",
		},
		"a scope joins each requirement, where somebody proves who calls": {
			"security: [{bearer: []}, {bearer: [], guild: []}]\npaths: {/a: {get: {x-required-scope: 'a:read'}, " +
				"post: {x-required-scope: bot, security: [{bearer: [], guild: []}]}}}\ncomponents: {securitySchemes: {guild: {type: apiKey}}}",
			"security: [{bearer: []}, {bearer: [], guild: []}]\npaths: {/a: {get: {x-required-scope: 'a:read', " +
				"security: [{bearer: ['a:read']}, {bearer: ['a:read'], guild: []}]}, " +
				"post: {x-required-scope: bot, security: [{bearer: [bot], guild: []}]}}}\ncomponents: {securitySchemes: {guild: {type: apiKey}}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Derive([]byte("openapi: 3.0.3\n" + c.in + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			want := banner31 + "\n\nopenapi: 3.1.0\n" + c.want + "\n"
			if flat(string(got)) != flat(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// flat removes quotes, which YAML does not need in these places, before a comparison.
func flat(s string) string { return strings.ReplaceAll(s, "'", "") }

func TestDeriveRefuses(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"what is not YAML":             "a: [",
		"what is not a mapping":        "- a",
		"another version":              "openapi: 3.1.0",
		"null without a type":          "openapi: 3.0.3\ncomponents: {schemas: {A: {nullable: true}}}",
		"two callbacks with one name":  "openapi: 3.0.3\npaths: {/a: {post: {callbacks: {b: {u: {}}}}, put: {callbacks: {b: {u: {}}}}}}",
		"a callback with two adresses": "openapi: 3.0.3\npaths: {/a: {post: {callbacks: {b: {u: {}, v: {}}}}}}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, err := Derive([]byte(in)); err == nil {
				t.Errorf("derived %s", out)
			}
		})
	}
}

// The committed files equal what make generate would write.
func TestCommittedForms(t *testing.T) {
	t.Parallel()
	contract := read(t, "../../openapi.yaml")
	for file, form := range map[string]func([]byte) ([]byte, error){"../openapi.yaml": Publish, "../openapi-3.1.yaml": Derive} {
		want, err := form(contract)
		if err != nil {
			t.Fatal(err)
		}
		if string(read(t, file)) != string(want) {
			t.Errorf("%s is not derived from openapi.yaml; run make generate", file)
		}
	}
}

// The published document has exactly the extensions that callers use, and otherwise equals
// openapi.yaml.
func TestOnlyExtensionsAreNotPublished(t *testing.T) {
	t.Parallel()
	var source, shown any
	for file, into := range map[string]*any{"../../openapi.yaml": &source, "../openapi.yaml": &shown} {
		if err := yaml.Unmarshal(read(t, file), into); err != nil {
			t.Fatal(err)
		}
	}
	var shownKeys []string
	extensions(shown, func(_ map[string]any, key string) { shownKeys = append(shownKeys, key) })
	slices.Sort(shownKeys)
	want := []string{"x-enum-varnames", "x-error-codes", "x-extensible-enum", "x-required-scope", "x-stability-level"}
	if got := slices.Compact(shownKeys); !slices.Equal(got, want) {
		t.Errorf("the published extensions are %q, want %q", got, want)
	}
	removed := 0
	extensions(source, func(o map[string]any, key string) {
		if !slices.Contains(want, key) {
			removed++
			delete(o, key)
		}
	})
	if removed == 0 || !reflect.DeepEqual(source, shown) {
		t.Errorf("openapi.yaml without its %d other extensions is not gen/openapi.yaml", removed)
	}
}

// extensions calls fn with each key of the document that begins with x-.
func extensions(value any, fn func(o map[string]any, key string)) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			extensions(item, fn)
		}
	case map[string]any:
		for key, member := range v {
			extensions(member, fn)
			if strings.HasPrefix(key, "x-") {
				fn(v, key)
			}
		}
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

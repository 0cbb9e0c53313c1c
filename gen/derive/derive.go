package main

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	banner30 = "# The contract of the Guildhall API as OpenAPI 3.0. Generated from openapi.yaml by make generate."
	banner31 = "# The contract of the Guildhall API as OpenAPI 3.1. Generated from openapi.yaml by make generate."
)

// published lists the extensions that callers use: for required scopes, error codes, an operation's
// stability, the known values of lists that may grow, and the names that generators give to values.
// All other extensions configure the server and our generator and are not published.
var published = []string{"x-required-scope", "x-error-codes", "x-stability-level", "x-extensible-enum", "x-enum-varnames"}

// extension matches an extension that is a line of its own, or one with a scalar value within a
// mapping written in one line.
var extension = regexp.MustCompile(`(?m)^ *(x-[a-z-]+): .*\n|, (x-[a-z-]+): [^,\[\]{}\n]+`)

// header matches the comments above the document.
var header = regexp.MustCompile(`^(#.*\n)+`)

// Publish returns the OpenAPI 3.0 form of openapi.yaml that callers read: the same text
// without the extensions that are not published.
func Publish(src []byte) ([]byte, error) {
	if _, err := parse(src); err != nil {
		return nil, err
	}
	text := header.ReplaceAll(src, []byte(banner30+"\n"))
	return extension.ReplaceAllFunc(text, func(found []byte) []byte {
		if name := extension.FindSubmatch(found); slices.Contains(published, string(name[1])+string(name[2])) {
			return found
		}
		return nil
	}), nil
}

// Derive returns the OpenAPI 3.1 form of openapi.yaml that callers read. It takes the
// source and not the result of Publish, because 3.1 can express x-property-names.
func Derive(src []byte) ([]byte, error) {
	file, err := parse(src)
	if err != nil {
		return nil, err
	}
	doc := file.Content[0]
	get(doc, "openapi").Value = "3.1.0"
	if err := schemas(doc); err != nil {
		return nil, err
	}
	strip(doc)
	if err := webhooks(doc); err != nil {
		return nil, err
	}
	scopes(doc)
	return encode(file)
}

func parse(src []byte) (*yaml.Node, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(src, &file); err != nil {
		return nil, err
	}
	if file.Kind != yaml.DocumentNode || len(file.Content) != 1 || file.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("not one YAML mapping")
	}
	if version := get(file.Content[0], "openapi"); version == nil || !strings.HasPrefix(version.Value, "3.0.") {
		return nil, errors.New("not an OpenAPI 3.0 document")
	}
	return &file, nil
}

func encode(file *yaml.Node) ([]byte, error) {
	doc := file.Content[0]
	file.HeadComment, doc.HeadComment, doc.Content[0].HeadComment = banner31, "", ""
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(file); err != nil {
		return nil, err
	}
	return out.Bytes(), enc.Close()
}

// strip removes the extensions that are not published. Examples and values are data, in
// which no key is an extension.
func strip(n *yaml.Node) {
	if n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			strip(item)
		}
		return
	}
	var unpublished []string
	pairs(n, func(k, v *yaml.Node) {
		switch {
		case strings.HasPrefix(k.Value, "x-"):
			if !slices.Contains(published, k.Value) {
				unpublished = append(unpublished, k.Value)
			}
		case slices.Contains([]string{"example", "examples", "default", "enum"}, k.Value):
		default:
			strip(v)
		}
	})
	for _, key := range unpublished {
		remove(n, key)
	}
}

// webhooks moves the callbacks of every operation to the top level of the document, under their own
// names, as 3.1 allows. They are marked as internal, so that openapi-generator leaves them out of
// clients: it would generate functions that send them, and the typescript-fetch client would not
// compile.
func webhooks(doc *yaml.Node) error {
	hooks := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	var err error
	operations(doc, func(op *yaml.Node) {
		callbacks := get(op, "callbacks")
		pairs(callbacks, func(name, byURL *yaml.Node) {
			switch {
			case get(hooks, name.Value) != nil:
				err = fmt.Errorf("two callbacks are called %s", name.Value)
			case byURL.Kind != yaml.MappingNode || len(byURL.Content) != 2:
				err = fmt.Errorf("callback %s has not exactly one address", name.Value)
			default:
				each(byURL.Content[1], func(op *yaml.Node) {
					insertAfter(op, "operationId", "x-internal", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"})
				})
				hooks.Content = append(hooks.Content, name, byURL.Content[1])
			}
		})
		remove(op, "callbacks")
	})
	if err == nil && len(hooks.Content) > 0 {
		insertAfter(doc, "paths", "webhooks", hooks)
	}
	return err
}

// scopes copies each operation's required scope into its security requirements, where 3.1 allows
// scopes for any kind of scheme.
func scopes(doc *yaml.Node) {
	schemes := get(get(doc, "components"), "securitySchemes")
	operations(doc, func(op *yaml.Node) {
		scope, security := get(op, "x-required-scope"), get(op, "security")
		if scope == nil {
			return
		}
		if security == nil {
			security = get(doc, "security")
		}
		remove(op, "security")
		alternatives := list()
		for _, requirement := range items(security) {
			scoped := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			pairs(requirement, func(scheme, _ *yaml.Node) {
				needs := list(text(scope.Value))
				if kind := get(get(schemes, scheme.Value), "type"); kind != nil && kind.Value == "apiKey" {
					needs = list()
				}
				scoped.Content = append(scoped.Content, clone(scheme), needs)
			})
			alternatives.Content = append(alternatives.Content, scoped)
		}
		insertAfter(op, "x-required-scope", "security", alternatives)
	})
}

// schemas turns every schema of the document into one of JSON Schema 2020-12.
func schemas(doc *yaml.Node) error {
	var err error
	each := func(_, s *yaml.Node) {
		if e := schema(s); e != nil && err == nil {
			err = e
		}
	}
	pairs(get(get(doc, "components"), "schemas"), each)
	var find func(n *yaml.Node)
	find = func(n *yaml.Node) {
		if n.Kind == yaml.SequenceNode {
			for _, c := range n.Content {
				find(c)
			}
			return
		}
		pairs(n, func(k, v *yaml.Node) {
			switch k.Value {
			case "schema":
				each(k, v)
			case "schemas", "example", "examples", "default", "enum": // handled above, or data instead of a schema
			default:
				find(v)
			}
		})
	}
	find(doc)
	return err
}

func schema(s *yaml.Node) error {
	if s.Kind != yaml.MappingNode || get(s, "$ref") != nil {
		return nil
	}
	if err := nullable(s); err != nil {
		return err
	}
	exclusive(s, "minimum", "exclusiveMinimum")
	exclusive(s, "maximum", "exclusiveMaximum")
	names(s)
	examples(s)

	var err error
	child := func(_, v *yaml.Node) {
		if e := schema(v); e != nil && err == nil {
			err = e
		}
	}
	pairs(get(s, "properties"), child)
	for _, key := range []string{"items", "additionalProperties", "not"} {
		if v := get(s, key); v != nil {
			child(nil, v)
		}
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		if v := get(s, key); v != nil {
			for _, c := range v.Content {
				child(nil, c)
			}
		}
	}
	return err
}

// nullable adds null to a schema's types and to the values of its enum.
func nullable(s *yaml.Node) error {
	n := get(s, "nullable")
	if n == nil {
		return nil
	}
	remove(s, "nullable")
	if n.Value != "true" {
		return nil
	}
	typ := get(s, "type")
	if typ == nil {
		return fmt.Errorf("line %d: nullable without a type", n.Line)
	}
	*typ = *list(text(typ.Value), text("null"))
	if enum := get(s, "enum"); enum != nil {
		enum.Content = append(enum.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"})
	}
	return nil
}

// exclusive replaces a bound with its flag by one exclusive bound.
func exclusive(s *yaml.Node, bound, flag string) {
	f, b := get(s, flag), get(s, bound)
	if f == nil {
		return
	}
	if f.Value != "true" || b == nil {
		remove(s, flag)
		return
	}
	*f = *b
	remove(s, bound)
}

// names adds propertyNames, which 3.0 does not have, from x-property-names.
func names(s *yaml.Node) {
	if pattern := get(s, "x-property-names"); pattern != nil {
		rename(s, "x-property-names", "propertyNames")
		*pattern = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{text("pattern"), clone(pattern)}}
	}
}

// examples collects a schema's example and the values of x-extensible-enum, the known values of a
// list that may grow, under examples.
func examples(s *yaml.Node) {
	known, example := get(s, "x-extensible-enum"), get(s, "example")
	switch {
	case known != nil:
		rename(s, "x-extensible-enum", "examples")
		remove(s, "example")
	case example != nil:
		rename(s, "example", "examples")
		*example = *list(clone(example))
	}
}

// operations calls fn with every operation under paths.
func operations(doc *yaml.Node, fn func(op *yaml.Node)) {
	pairs(get(doc, "paths"), func(_, item *yaml.Node) { each(item, fn) })
}

// each calls fn with the operations of one path.
func each(item *yaml.Node, fn func(op *yaml.Node)) {
	pairs(item, func(method, op *yaml.Node) {
		if op.Kind == yaml.MappingNode && !strings.HasPrefix(method.Value, "x-") {
			fn(op)
		}
	})
}

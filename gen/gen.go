// Package gen is what the contract looks like from Go: models, routes and the
// strict server interface, made from openapi.yaml, and the document itself in
// both of its published forms. Nothing here is written by hand but this file;
// to change the package, change the document and run go generate.
//
// Failures have no types here on purpose: an operation returns an error, and
// internal/server/api alone knows how one becomes an answer.
package gen

import _ "embed"

// The generator runs from go.mod's tool lines, in the order copy, derive,
// generate: what is published and what is compiled come from the same bytes.
//
//go:generate go run ./derive -copy openapi.yaml -derived openapi-3.1.yaml ../openapi.yaml
//go:generate go tool oapi-codegen -config config.yaml openapi.yaml

// OpenAPI is the contract, OpenAPI 3.0.3 in YAML, byte for byte the file at the
// root of the repository. The server validates by it and serves it.
//
//go:embed openapi.yaml
var OpenAPI []byte

// OpenAPI31 is the same contract as OpenAPI 3.1, derived from it: callbacks are
// webhooks, null is a type, and scopes stand in the security requirements.
//
//go:embed openapi-3.1.yaml
var OpenAPI31 []byte

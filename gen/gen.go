// Package gen holds what is generated from openapi.yaml: models, routes, the strict
// server interface, the two forms of the document that are published, and the contract as
// JSON, which the root package embeds. To change the package, change openapi.yaml and run
// make generate.
//
// Operations have no response types for failures: an operation returns an error, and
// internal/server/api turns it into a response.
package gen

import _ "embed"

//go:generate go run ./derive -published openapi.yaml -derived openapi-3.1.yaml -enforced enforced.json ../openapi.yaml
//go:generate go tool oapi-codegen -config config.yaml ../openapi.yaml

// OpenAPI is the contract as callers read it, OpenAPI 3.0.3 in YAML: openapi.yaml without
// the extensions that configure the server. The server enforces openapi.yaml itself
// (internal/contract).
//
//go:embed openapi.yaml
var OpenAPI []byte

// OpenAPI31 is the same contract as OpenAPI 3.1: callbacks are webhooks, null is a type,
// and scopes stand in the security requirements.
//
//go:embed openapi-3.1.yaml
var OpenAPI31 []byte

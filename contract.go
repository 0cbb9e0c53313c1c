// Package guildhall embeds the contract. It is the root package because go:embed can only embed
// files below its package.
package guildhall

import _ "embed"

// OpenAPI is openapi.yaml: OpenAPI 3.0.3 with the extensions that configure the server. Callers
// read the published forms, which package gen embeds.
//
//go:embed openapi.yaml
var OpenAPI []byte

// OpenAPIJSON is openapi.yaml as JSON, which each start of the program parses with a quarter less CPU.
//
//go:embed gen/enforced.json
var OpenAPIJSON []byte

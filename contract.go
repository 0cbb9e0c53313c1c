// Package guildhall embeds the contract. The file stands at the root of the
// repository, where go:embed of a package below cannot reach it.
package guildhall

import _ "embed"

// OpenAPI is the contract as openapi.yaml has it: OpenAPI 3.0.3 with the extensions by
// which the server is configured. Callers read the forms that package gen holds.
//
//go:embed openapi.yaml
var OpenAPI []byte

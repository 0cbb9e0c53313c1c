// Command derive writes the two published forms of the contract, and the contract as JSON.
//
// The server enforces openapi.yaml, which it parses as JSON, and Go code is generated from it. Callers get the
// same document without the extensions that configure the server: as OpenAPI 3.0, and as
// OpenAPI 3.1 for tools that want webhooks, scopes in the security requirements and
// JSON Schema 2020-12. Both forms are derived, so they cannot disagree.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	published := flag.String("published", "", "write the OpenAPI 3.0 form here")
	derived := flag.String("derived", "", "write the OpenAPI 3.1 form here")
	enforced := flag.String("enforced", "", "write the contract as JSON here")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: derive [-published FILE] [-derived FILE] [-enforced FILE] CONTRACT")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *published, *derived, *enforced); err != nil {
		fmt.Fprintln(os.Stderr, "derive:", err)
		os.Exit(1)
	}
}

func run(contract, published, derived, enforced string) error {
	src, err := os.ReadFile(contract)
	if err != nil {
		return err
	}
	for file, form := range map[string]func([]byte) ([]byte, error){published: Publish, derived: Derive, enforced: JSON} {
		if file == "" {
			continue
		}
		out, err := form(src)
		if err != nil {
			return fmt.Errorf("%s: %w", contract, err)
		}
		if err := os.WriteFile(file, out, 0o644); err != nil {
			return err
		}
	}
	return nil
}

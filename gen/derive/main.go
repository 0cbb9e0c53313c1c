// Command derive copies the contract and writes its OpenAPI 3.1 form.
//
// The 3.0 document is the one that is enforced and generated from; the 3.1 copy
// says the same in the newer dialect, for tools that want webhooks, scopes in
// the security requirements and JSON Schema as it is. It is derived so that the
// two cannot disagree.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	byteCopy := flag.String("copy", "", "write the contract here, byte for byte")
	derived := flag.String("derived", "", "write the OpenAPI 3.1 form here")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: derive [-copy FILE] [-derived FILE] CONTRACT")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *byteCopy, *derived); err != nil {
		fmt.Fprintln(os.Stderr, "derive:", err)
		os.Exit(1)
	}
}

func run(contract, byteCopy, derived string) error {
	src, err := os.ReadFile(contract)
	if err != nil {
		return err
	}
	out, err := Derive(src)
	if err != nil {
		return fmt.Errorf("%s: %w", contract, err)
	}
	if byteCopy != "" {
		if err := os.WriteFile(byteCopy, src, 0o644); err != nil {
			return err
		}
	}
	if derived != "" {
		return os.WriteFile(derived, out, 0o644)
	}
	return nil
}

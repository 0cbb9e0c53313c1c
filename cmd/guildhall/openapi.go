package main

import "guildhall/gen"

type openapiCommand struct {
	Version string `default:"3.0" enum:"3.0,3.1" help:"3.0 is the contract as it is enforced; 3.1 is its derived copy."`
}

func (c *openapiCommand) Run(io streams) error {
	text := gen.OpenAPI
	if c.Version == "3.1" {
		text = gen.OpenAPI31
	}
	_, err := io.out.Write(text)
	return err
}

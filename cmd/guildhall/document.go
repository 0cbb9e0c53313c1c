package main

import (
	"runtime"
	"runtime/debug"

	"guildhall/gen"
	"guildhall/internal/schema"
)

// Set by the linker in a release.
var (
	version = "devel"
	commit  = ""
)

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

type versionCommand struct {
	JSON bool `help:"Print one JSON object."`
}

func (c *versionCommand) Run(io streams) error {
	doc, err := schema.Document()
	if err != nil {
		return err
	}
	v := struct {
		Version  string `json:"version"`
		Commit   string `json:"commit"`
		Contract string `json:"contract"`
		Go       string `json:"go"`
	}{version, revision(), doc.Info.Version, runtime.Version()}
	if c.JSON {
		return printJSON(io.out, v)
	}
	return say(io.out, "guildhall %s\ncommit    %s\ncontract  %s\ngo        %s", v.Version, v.Commit, v.Contract, v.Go)
}

// revision is the commit this program was built from.
func revision() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}

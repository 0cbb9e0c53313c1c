package main

import (
	"runtime"
	"runtime/debug"

	"guildhall/internal/base/schema"
)

// Set by the linker in a release.
var (
	version = "devel"
	commit  = ""
)

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
	return io.tell(c.JSON, v, "guildhall %s\ncommit    %s\ncontract  %s\ngo        %s", v.Version, v.Commit, v.Contract, v.Go)
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

package main

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/contract"
)

// Set by the linker in a release.
var (
	version = "devel"
	commit  = ""
	guides  = "" // where the documents are published
)

type versionCommand struct {
	JSON bool `help:"Print one JSON object."`
}

// build is what this program was made of.
type build struct {
	Version  string `json:"version"` // of the program: year, month and fix, or devel
	Contract string `json:"contract"`
	Commit   string `json:"commit"`
	Date     string `json:"date,omitempty"` // of the commit, where no release names the program
	Go       string `json:"go"`
}

func (c *versionCommand) Run(io streams) error {
	b, err := thisBuild()
	if err != nil {
		return err
	}
	at := b.Commit[:min(len(b.Commit), 7)]
	if b.Date != "" {
		at += " of " + b.Date
	}
	return io.tell(c.JSON, b, "guildhall %s (contract %s, commit %s, %s)", b.Version, b.Contract, at, b.Go)
}

func thisBuild() (build, error) {
	doc, err := contract.Document()
	if err != nil {
		return build{}, err
	}
	b := build{Version: version, Contract: doc.Info.Version, Commit: commit, Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok && commit == "" {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.time":
				b.Date = s.Value
			}
		}
	}
	if b.Commit == "" {
		b.Commit = "unknown"
	}
	return b, nil
}

// show tells Prometheus which program this is.
func (b build) show(metrics prometheus.Registerer) {
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "guildhall_build_info", Help: "The program that runs: always 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "contract": b.Contract},
	}, func() float64 { return 1 }))
}

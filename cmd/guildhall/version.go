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
	guides  = "" // URL of the published documents
)

type versionCommand struct {
	JSON bool `help:"Print one JSON object."`
}

// build describes how this program was built.
type build struct {
	Version  string `json:"version"` // the release: year, month and number, or devel
	Contract string `json:"contract"`
	Commit   string `json:"commit"`
	Date     string `json:"date,omitempty"` // the commit's date, if the program is no release
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
	return io.result(c.JSON, b, "guildhall %s (contract %s, commit %s, %s)", b.Version, b.Contract, at, b.Go)
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

// show exports the build as a metric.
func (b build) show(metrics prometheus.Registerer) {
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "guildhall_build_info", Help: "The program that runs: always 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "contract": b.Contract},
	}, func() float64 { return 1 }))
}

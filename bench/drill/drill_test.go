package main

import (
	"context"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Each drill is listed in RELIABILITY.md with the promises that it checks.
func TestTheDrillsStandInTheListOfPromises(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../RELIABILITY.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`make drill NAME=([a-z]+)`").FindAllSubmatch(text, -1) {
		if _, err := find([]string{string(m[1])}); err != nil {
			t.Errorf("RELIABILITY.md names %s: %v", m[1], err)
		}
	}
	for _, d := range drills {
		if !strings.Contains(string(text), "`make drill NAME="+d.name+"`") {
			t.Errorf("RELIABILITY.md does not name the drill %s", d.name)
		}
	}
}

func TestDrillsAndStagesThatAreNotThereAreRefused(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context()) // with a context that has ended, so that nothing starts
	end()
	for _, c := range []struct{ args, names string }{
		{"", "neighbour"},
		{"none", "neighbour"},
		{"neighbour neighbour", "neighbour"},
		{"-stage prune webhooks", pruning},
		{"-stage pruning overload", slowDatabase},
		{"-stage pruning neighbour", "[]"},
	} {
		if err := run(ended, strings.Fields(c.args), io.Discard); err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %v, want an error that names %s", c.args, err, c.names)
		}
	}
	for _, d := range drills {
		for _, stage := range d.stages {
			if err := run(ended, []string{"-stage", stage, d.name}, io.Discard); err == nil || strings.Contains(err.Error(), "stage") {
				t.Errorf("%s -stage %q: %v, want it to begin", d.name, stage, err)
			}
		}
	}
}

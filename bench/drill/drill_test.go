package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"guildhall/bench/rig"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// program is the path of the server, built once for all tests.
var program string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "guildhall-drill-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(folder, "guildhall")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "guildhall/cmd/guildhall").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build the server: %v %s", err, out))
	}
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

// Each drill keeps, with small numbers, the promises that do not depend on the machine's load.
func TestEveryDrillHolds(t *testing.T) {
	t.Parallel()
	for _, d := range drills {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			err := rig.Do(t.Context(), &out, func(r *rig.Run) {
				d.run(&place{Place: r.Over(dbtest.New(t).URL, rig.Config{Program: program}), small: true, waiting: 5000})
			})
			if absent := (missing{}); errors.As(err, &absent) {
				testutil.Without(t, absent.name, err)
			} else if err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
		})
	}
}

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

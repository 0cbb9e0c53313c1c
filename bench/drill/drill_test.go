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
	"slices"
	"strings"
	"testing"

	"guildhall/bench/rig"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// program is the server, built once for all tests.
var program string

func TestMain(m *testing.M) {
	os.Exit(withProgram(m.Run))
}

func withProgram(run func() int) int {
	folder, err := os.MkdirTemp("", "guildhall-drill-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	program = filepath.Join(folder, "guildhall")
	if out, err := exec.Command("go", "build", "-o", program, "guildhall/cmd/guildhall").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build the server: %v %s", err, out))
	}
	return run()
}

// Each drill holds with small figures what a busy machine cannot change.
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

func TestOneDrillIsNamed(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{nil, {"none"}, {"neighbour", "neighbour"}} {
		if _, err := find(names); err == nil || !strings.Contains(err.Error(), "neighbour") {
			t.Errorf("%v: %v, want an error that lists the drills", names, err)
		}
	}
}

// A drill proves a promise, and stands beside the tests that do; the costs are
// figures, which promise nothing.
func TestTheDrillsStandInTheListOfPromises(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../RELIABILITY.md")
	if err != nil {
		t.Fatal(err)
	}
	var told, want []string
	for _, m := range regexp.MustCompile("`make drill NAME=([a-z]+)`").FindAllSubmatch(text, -1) {
		told = append(told, string(m[1]))
	}
	for _, d := range drills {
		if d.name != "costs" {
			want = append(want, d.name)
		}
	}
	slices.Sort(told)
	slices.Sort(want)
	if told = slices.Compact(told); !slices.Equal(told, want) {
		t.Errorf("RELIABILITY.md names the drills %q, there are %q", told, want)
	}
}

func TestAStageThatADrillDoesNotHaveIsRefused(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context()) // nothing is to begin
	end()
	for _, c := range []struct{ name, stage, known string }{
		{"webhooks", "a flod of one guild", "a flood of one guild"},
		{"overload", pruning, slowDatabase},
		{"neighbour", pruning, "[]"},
	} {
		if err := run(ended, []string{"-stage", c.stage, c.name}, io.Discard); err == nil || !strings.Contains(err.Error(), c.known) {
			t.Errorf("%s -stage %q: %v, want an error that names %s", c.name, c.stage, err, c.known)
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

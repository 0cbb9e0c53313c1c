//go:build slow

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
				database := dbtest.OverTCP(t, dbtest.New(t).URL).String() // some drills put a proxy in front of it
				d.run(&place{Place: r.Over(database, rig.Config{Program: program}), small: true, waiting: 5000})
			})
			if absent := (missing{}); errors.As(err, &absent) {
				testutil.Without(t, absent.name, err)
			} else if err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
		})
	}
}

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
	"time"

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

// drilled runs a drill of a size for tests. Everything it holds must hold.
func drilled(t *testing.T, run func(p place, r *report) error) {
	t.Helper()
	var out strings.Builder
	r := &report{out: &out}
	err := run(place{databaseURL: dbtest.New(t).URL, program: program}, r)
	if err == nil {
		err = r.conclude()
	}
	if err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
}

// RELIABILITY.md, Neighbours.
func TestAGuildDoesNotNoticeItsNeighboursWorst(t *testing.T) {
	t.Parallel()
	drilled(t, func(p place, r *report) error {
		return neighbour(t.Context(), p, r, neighbourSize{ledger: 20_000, length: 2 * time.Second})
	})
}

// RELIABILITY.md, Neighbours.
func TestABotsRecordsLeaveOthersAlone(t *testing.T) {
	t.Parallel()
	drilled(t, func(p place, r *report) error {
		return recordsWritten(t.Context(), p, r, recordsSize{wallets: 2000, length: 3 * time.Second, guilds: 5, rate: 20})
	})
}

// RELIABILITY.md, Overload.
func TestOverloadIsRefusedInTheRightForm(t *testing.T) {
	t.Parallel()
	drilled(t, func(p place, r *report) error {
		return overload(t.Context(), p, r, overloadSize{
			ledger: 2000, length: time.Second, best: []int{8}, times: []int{5, 20}, delay: 100 * time.Millisecond,
		})
	})
}

// RELIABILITY.md, Neighbours.
func TestWebhooksGoOnWhateverReceiversDo(t *testing.T) {
	t.Parallel()
	drilled(t, func(p place, r *report) error {
		return receivers(t.Context(), p, r, webhooksSize{
			watched: 4, length: time.Second, flood: 1000, hanging: 100, backlog: 100, waiting: 5000, held: 2000, old: 500,
		})
	})
}

// RELIABILITY.md, Writes.
func TestAKilledNodeLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	drilled(t, func(p place, r *report) error {
		return kills(t.Context(), p, r, killsSize{kills: 2, between: time.Second})
	})
}

// RELIABILITY.md, Writes.
func TestOutlivedKeysGoBesideKeyedWrites(t *testing.T) {
	t.Parallel()
	drilled(t, func(p place, r *report) error {
		return keys(t.Context(), p, r, keysSize{old: 5000, callers: 4, rate: 100, length: 2 * time.Minute})
	})
}

// RELIABILITY.md, Operation.
func TestWhatARestoreRevivesIsFound(t *testing.T) {
	t.Parallel()
	drilled(t, func(p place, r *report) error { return restored(t.Context(), p, r, 20) })
}

// RELIABILITY.md, Operation.
func TestARecoveryEndsAtItsInstant(t *testing.T) {
	t.Parallel()
	drilled(t, func(p place, r *report) error { return recovered(t.Context(), p, r, 20) })
}

// RELIABILITY.md, Writes and Tokens and Events.
func TestAFailoverLosesNothing(t *testing.T) {
	t.Parallel()
	drilled(t, func(p place, r *report) error { return failover(t.Context(), p, r, time.Second) })
}

// RELIABILITY.md, Operation.
func TestAnUpgradeIsNoticedByNobody(t *testing.T) {
	t.Parallel()
	drilled(t, func(p place, r *report) error {
		err := upgraded(t.Context(), p, r, upgradeSize{members: 5000, length: time.Second})
		if errors.Is(err, errNoRelease) {
			testutil.Without(t, "history", err)
		}
		return err
	})
}

// RELIABILITY.md, Operation.
func TestALostWorkerIsTheAffairOfItsGuilds(t *testing.T) {
	t.Parallel()
	drilled(t, func(p place, r *report) error {
		err := distributed(t.Context(), p, r, citusSize{length: time.Second, served: 50})
		if errors.Is(err, errNoCitus) {
			testutil.Without(t, "citus", err)
		}
		return err
	})
}

// RELIABILITY.md, Operation.
func TestAPoolerMayStandBetween(t *testing.T) {
	t.Parallel()
	testutil.Program(t, "pgbouncer")
	drilled(t, func(p place, r *report) error { return pooled(t.Context(), p, r, time.Second) })
}

func TestTheCostsOfRequestsAreMeasured(t *testing.T) {
	t.Parallel()
	drilled(t, func(p place, r *report) error { return costs(t.Context(), p, r, 200*time.Millisecond) })
}

func TestTheDrillsAreNamed(t *testing.T) {
	t.Parallel()
	for _, d := range drills {
		if found, err := find([]string{d.name}); err != nil || found.name != d.name {
			t.Errorf("%s: found %q, %v", d.name, found.name, err)
		}
	}
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
		{"webhooks", "prune", pruning},
		{"overload", pruning, slowDatabase},
		{"neighbour", pruning, "[]"},
	} {
		if err := run(ended, []string{"-stage", c.stage, c.name}, io.Discard); err == nil || !strings.Contains(err.Error(), c.known) {
			t.Errorf("%s -stage %q: %v, want an error that names %s", c.name, c.stage, err, c.known)
		}
	}
	for name, list := range stages {
		for _, stage := range list {
			if err := run(ended, []string{"-stage", stage, name}, io.Discard); err == nil || strings.Contains(err.Error(), "stage") {
				t.Errorf("%s -stage %q: %v, want it to begin", name, stage, err)
			}
		}
	}
}

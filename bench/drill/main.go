// Command drill puts a real server under the load that it promises to survive, and prints for each
// promise whether it held: make drill NAME=neighbour. Everything runs on loopback addresses and is
// removed at the end.
//
// A drill is a function. Tests run the same function with small numbers and check only those
// promises that do not depend on the machine's load.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"guildhall/bench/rig"
)

// drill is a load and the promises that have to hold under it.
type drill struct {
	name, about string
	run         func(*place)
	stages      []string // names of the stages that can be run separately
}

// drills lists all drills.
var drills = []drill{
	{"neighbour", "one guild does its worst; another one must hardly notice", neighbour, nil},
	{"overload", "far more connections than can be served, three kinds of work", overload, []string{cheapCalls, deepLists, slowDatabase}},
	{"webhooks", "receivers at their worst, and very much that waits", receiversAtTheirWorst, webhooksStageNames()},
	{"restore", "a backup is restored: what it revives is found, and revoked", restore, []string{fromDump, toInstant}},
	{"kills", "one of two nodes that do everything is killed again and again; nothing is left behind", kills, nil},
	{"mirror", "a copy of a guild is kept by fetching alone, while nodes and the copy's program are killed", mirror, nil},
	{"records", "a bot writes 500 records a call in a guild of a million wallets, and levels in a hundred guilds", records, nil},
	{"keys", "very many expired keys are deleted beside keyed writes", keys, nil},
	{"failover", "the primary is killed, its synchronous standby takes over", failover, nil},
	{"upgrade", "nodes of this program and of a made-up next release side by side, while that migrates", upgrade, nil},
	{"citus", "tables distributed over two Citus workers, of which one is killed and started again", citus, nil},
	{"pooler", "PgBouncer in transaction mode between a node and its database", pooler, nil},
}

// place is the environment of a drill: a migrated, empty private database and the server program.
type place struct {
	*rig.Place
	small   bool   // the drill runs as a test
	waiting int    // deliveries that wait for one endpoint in the drill of webhooks
	stage   string // the only stage to run; empty: all
}

// missing describes a tool or file that a drill needs and that is not installed.
type missing struct{ name, need string }

func (m missing) Error() string { return "this drill needs " + m.need }

// with returns the drill at another place. The first place stays unchanged, since statements that
// are ending may still use it as their context.
func (p *place) with(at *rig.Place) *place {
	other := *p
	other.Place = at
	return &other
}

// wants reports whether the stage is to run.
func (p *place) wants(stage string) bool { return p.stage == "" || p.stage == stage }

// sized returns the number full, or small in a test.
func sized[T any](p *place, full, small T) T {
	if p.small {
		return small
	}
	return full
}

// bound is Hold for promises that depend on the machine's load. In tests it does nothing.
func (p *place) bound(held bool, format string, args ...any) {
	if !p.small {
		p.Hold(held, format, args...)
	}
}

func main() {
	debug.SetGCPercent(400) // so that the drill's own garbage collection takes no CPU from what it measures
	rig.Main("drill", run)
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags, p := flag.NewFlagSet("drill", flag.ContinueOnError), &place{}
	program := flags.String("server", "bin/guildhall", "the server `program`")
	flags.IntVar(&p.waiting, "waiting", 5_000_000, "`deliveries` that wait for one endpoint in the drill of webhooks")
	flags.StringVar(&p.stage, "stage", "", "the only `stage` of the drill to run, such as \"a flood of one guild\" (default: all)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	d, err := find(flags.Args())
	if err != nil {
		return err
	}
	if p.stage != "" && !slices.Contains(d.stages, p.stage) {
		return fmt.Errorf("%s has no stage %q; those that can be run alone: %q", d.name, p.stage, d.stages)
	}
	err = rig.Do(ctx, out, func(r *rig.Run) {
		// Not Fast: the disk is part of the load.
		p.Place = r.Place(rig.Config{Program: *program, TCP: true})
		d.run(p)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	return nil
}

// find returns the drill with that name.
func find(names []string) (drill, error) {
	var known []string
	for _, d := range drills {
		if len(names) == 1 && d.name == names[0] {
			return d, nil
		}
		known = append(known, fmt.Sprintf("  %-10s %s", d.name, d.about))
	}
	return drill{}, fmt.Errorf("name one of the drills:\n%s", strings.Join(known, "\n"))
}

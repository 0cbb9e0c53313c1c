// Command drill puts a real server under the load that it promises to survive,
// and says for each promise whether it held. It starts a Postgres and a
// `guildhall serve` of its own; all of it stays on the loopback address and
// ends with the drill.
//
//	make drill NAME=neighbour
//	go run ./bench/drill -server bin/guildhall neighbour
//
// A drill is a function; the same function runs in the tests with small
// figures, where only those facts are held that a busy machine cannot change.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/embedded"
)

// drill is one load with what has to hold under it.
type drill struct {
	name, about string
	run         func(ctx context.Context, p place, r *report) error
}

// drills are those that the command knows, at full size.
var drills = []drill{
	{"neighbour", "one guild does its worst; another one must hardly notice", func(ctx context.Context, p place, r *report) error {
		return neighbour(ctx, p, r, fullNeighbour)
	}},
	{"overload", "far more connections than can be served, three kinds of work", func(ctx context.Context, p place, r *report) error {
		return overload(ctx, p, r, fullOverload)
	}},
	{"webhooks", "receivers at their worst, and very much that waits", func(ctx context.Context, p place, r *report) error {
		size := fullWebhooks
		size.waiting = p.waiting
		return receivers(ctx, p, r, size)
	}},
	{"restore", "a backup is restored: what it revives is found, and revoked", func(ctx context.Context, p place, r *report) error {
		if p.wants(fromDump) {
			r.say("%s:", fromDump)
			if err := restored(ctx, p, r, 2000); err != nil {
				return err
			}
		}
		if !p.wants(toInstant) {
			return nil
		}
		r.say("%s:", toInstant)
		return recovered(ctx, p, r, 2000)
	}},
	{"kills", "one of two nodes that do everything is killed again and again; nothing is left behind", func(ctx context.Context, p place, r *report) error {
		return kills(ctx, p, r, killsSize{kills: 20, between: 3 * time.Second})
	}},
	{"records", "a bot writes 500 records a call in a guild of a million wallets, and levels in a hundred guilds", func(ctx context.Context, p place, r *report) error {
		return recordsWritten(ctx, p, r, fullRecords)
	}},
	{"keys", "very many outlived keys are deleted beside keyed writes", func(ctx context.Context, p place, r *report) error {
		return keys(ctx, p, r, keysSize{old: 400_000, callers: 64, rate: 2000, length: 5 * time.Minute})
	}},
	{"failover", "the primary is killed, its synchronous standby takes over", func(ctx context.Context, p place, r *report) error {
		return failover(ctx, p, r, 10*time.Second)
	}},
	{"upgrade", "nodes of the last release and of this program side by side, while it migrates", func(ctx context.Context, p place, r *report) error {
		return upgraded(ctx, p, r, fullUpgrade)
	}},
	{"costs", "what a request and an event take of a processor; no load, figures for sizes", func(ctx context.Context, p place, r *report) error {
		return costs(ctx, p, r, 5*time.Second)
	}},
	{"citus", "tables distributed over two Citus workers, of which one is killed and started again", func(ctx context.Context, p place, r *report) error {
		return distributed(ctx, p, r, fullCitus)
	}},
	{"pooler", "PgBouncer in transaction mode between a node and its database", func(ctx context.Context, p place, r *report) error {
		return pooled(ctx, p, r, 10*time.Second)
	}},
}

// stages are those that can be run alone, of the drills that have some.
var stages = map[string][]string{
	"overload": {cheapCalls, deepLists, slowDatabase},
	"webhooks": append(webhooksStageNames(), pruning),
	"restore":  {fromDump, toInstant},
}

// place is what a drill stands on: a migrated, empty database that nobody else
// uses, and the server program.
type place struct {
	databaseURL string
	program     string
	front       []string // words in front of the program
	waiting     int      // deliveries that wait for one endpoint in the drill of webhooks
	stage       string   // the only one that is to run; empty: all
	release     string   // the commit that the drill of upgrades begins with; empty: the last release
}

// behind is the same place with words in front of the program.
func (p place) behind(front []string) place {
	p.front = front
	return p
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "drill:", err)
		os.Exit(1)
	}
}

// wants says whether a stage of that name is to run.
func (p place) wants(stage string) bool { return p.stage == "" || p.stage == stage }

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("drill", flag.ContinueOnError)
	program := flags.String("server", "bin/guildhall", "the server `program`")
	waiting := flags.Int("waiting", fullWebhooks.waiting, "`deliveries` that wait for one endpoint in the drill of webhooks")
	stage := flags.String("stage", "", "the only `stage` of the drill of overload, webhooks or restore to run, such as \"a flood of one guild\" (default: all)")
	release := flags.String("release", "", "the `commit` or tag that the drill of upgrades begins with (default: the last release)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	d, err := find(flags.Args())
	if err != nil {
		return err
	}
	if *stage != "" && !slices.Contains(stages[d.name], *stage) {
		return fmt.Errorf("%s has no stage %q; those that can be run alone: %q", d.name, *stage, stages[d.name])
	}
	// Not Fast: what the load does to the disk is part of it.
	server, err := embedded.Start(ctx, embedded.Config{TCP: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if err := db.Migrate(ctx, server.URL); err != nil {
		return err
	}
	r := &report{out: out}
	if err := d.run(ctx, place{databaseURL: server.URL, program: *program, waiting: *waiting, stage: *stage, release: *release}, r); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	return r.conclude()
}

// find returns the one drill that is named.
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

// report collects what held and what did not. Its methods may be called by
// several goroutines.
type report struct {
	out io.Writer

	mu    sync.Mutex
	broke []string
}

// say prints a figure that nothing is required of.
func (r *report) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format+"\n", args...)
}

// hold prints whether a promise held, with the figures that show it.
func (r *report) hold(held bool, format string, args ...any) {
	word, line := "held  ", fmt.Sprintf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !held {
		word = "BROKEN"
		r.broke = append(r.broke, line)
	}
	fmt.Fprintf(r.out, "  %s  %s\n", word, line)
}

// conclude fails if anything that had to hold did not.
func (r *report) conclude() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.broke) > 0 {
		return fmt.Errorf("%d promises did not hold:\n  %s", len(r.broke), strings.Join(r.broke, "\n  "))
	}
	return nil
}

// Command growth shows what requests, sweeps and an idle node cost Postgres in
// installations of different size: with 10, 1,000 and 100,000 guilds, each of the
// same few rows. None of it may grow with the number of guilds. Blocks that were
// touched are what counts, since they are the same on every machine; an index that
// is one level deeper is one more.
//
//	go run ./bench/growth -guilds 10,1000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type options struct {
	server   string
	guilds   []int
	requests int
	idle     time.Duration
	verbose  bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench/growth:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o options
	guilds := flag.String("guilds", "10,1000,100000", "numbers of guilds")
	flag.StringVar(&o.server, "server", "bin/guildhall", "the server `program`")
	flag.IntVar(&o.requests, "requests", 200, "requests of a kind, one after the other")
	flag.DurationVar(&o.idle, "idle", 20*time.Second, "how long an idle node is watched")
	flag.BoolVar(&o.verbose, "statements", false, "print on which statements an idle node's Postgres spends its time")
	flag.Parse()
	for text := range strings.SplitSeq(*guilds, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 10 {
			return fmt.Errorf("-guilds: %q is no number of ten guilds or more", text)
		}
		o.guilds = append(o.guilds, n)
	}
	found := make([][]line, len(o.guilds))
	for i, n := range o.guilds {
		var err error
		if found[i], err = measure(ctx, o, n); err != nil {
			return fmt.Errorf("with %d guilds: %w", n, err)
		}
	}
	show(o.guilds, found)
	return grown(found[0], found[len(found)-1])
}

// mostIdle is how many statements a second an idle node may ask for.
const mostIdle = 30

// grown says what costs more with many guilds than with few. An index may be
// deeper; an idle node looks through a bounded number of endpoints each time, and
// is held to the number of its statements.
func grown(few, many []line) error {
	var errs []error
	for i, l := range many {
		switch {
		case l.name == idleNode && l.cost.statements >= mostIdle:
			errs = append(errs, fmt.Errorf("an idle node asks for %.1f statements a second, and may for %d", l.cost.statements, mostIdle))
		case l.name != idleNode && l.cost.blocks > 5+3*few[i].cost.blocks:
			errs = append(errs, fmt.Errorf("%s grows: %.1f blocks with few guilds, %.1f with many", l.name, few[i].cost.blocks, l.cost.blocks))
		}
	}
	return errors.Join(errs...)
}

// line is what one kind of work costs.
type line struct {
	name string
	cost cost
}

// cost is what Postgres has done, for each time that the work was done, or for
// each second of an idle node.
type cost struct{ statements, blocks, us float64 }

func (c cost) each(n float64) cost { return cost{c.statements / n, c.blocks / n, c.us / n} }

// show prints a line for each kind of work and a column for each size.
func show(guilds []int, found [][]line) {
	fmt.Printf("\n%-32s", "statements, blocks, us of Postgres")
	for _, n := range guilds {
		fmt.Printf("  %24s", strconv.Itoa(n)+" guilds")
	}
	fmt.Println()
	for i := range found[0] {
		fmt.Printf("%-34s", found[0][i].name)
		for _, lines := range found {
			c := lines[i].cost
			fmt.Printf("  %6.1f %8.1f %8.0f", c.statements, c.blocks, c.us)
		}
		fmt.Println()
	}
}

// measure makes an installation with so many guilds and measures everything.
func measure(ctx context.Context, o options, guilds int) (lines []line, err error) {
	p, err := newPlace(ctx, guilds)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	for _, part := range []func(context.Context, options) ([]line, error){p.sweeps, p.requests, p.idle} {
		found, err := part(ctx, o)
		if err != nil {
			return nil, err
		}
		lines = append(lines, found...)
	}
	return lines, nil
}

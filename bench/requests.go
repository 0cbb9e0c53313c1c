package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"guildhall/bench/proc"
)

type requestOptions struct {
	server   string
	wallets  int
	seconds  float64
	rounds   int
	clients  []int
	only     []string
	requests int
	profile  string
}

// requestBench loads a million wallets, starts `guildhall serve` and the plainest
// program (plainest.go), and drives one after the other, again and again, so that
// what else the machine does falls on both. The ratio within a run is what counts;
// medians of the rounds are shown.
func requestBench(flags *flag.FlagSet) func(context.Context) error {
	var o requestOptions
	flags.StringVar(&o.server, "server", "bin/guildhall", "the server `program`")
	flags.IntVar(&o.wallets, "wallets", 1_000_000, "wallets and level records to load")
	flags.Float64Var(&o.seconds, "seconds", 3, "length of one measurement")
	flags.IntVar(&o.rounds, "rounds", 5, "measurements of each side, in turn")
	flags.IntVar(&o.requests, "requests", 100_000, "requests of the memory test, 0 for none")
	flags.StringVar(&o.profile, "profile", "", "operation to drive for 30 s with the last of -clients while `perf` or pprof looks on")
	clients := numbers(flags, "clients", 1, []int{atOnce8, atOnce32}, "numbers of connections")
	only := names(flags, "only", "", "operations to measure, by the beginnings of their names; all when empty")
	short := flags.Bool("short", false, "a look that takes few minutes: 100,000 wallets, three rounds of a second, no memory test")
	address := flags.String("plainest", "", "serve the plainest program on this address; the program starts itself so")
	tokens := flags.String("tokens", "", "its tokens, a `file`")
	return func(ctx context.Context) error {
		if *address != "" {
			return servePlainest(ctx, *address, *tokens)
		}
		if o.clients, o.only = *clients, *only; *short {
			o.wallets, o.seconds, o.rounds, o.requests = 100_000, 1, 3, 0
		}
		h, err := start(ctx, o)
		if err != nil {
			return err
		}
		return errors.Join(h.measure(ctx), h.stop())
	}
}

// measure runs every operation and prints the table.
func (h *host) measure(ctx context.Context) error {
	if h.profile != "" {
		return h.drive(ctx)
	}
	fmt.Printf("\n%-27s %3s  %9s %7s %7s  %9s %7s %7s  %6s %5s  %8s %8s\n",
		"", "", "plainest", "p50", "p99", "server", "p50", "p99", "", "", "CPU/req", "CPU/req")
	fmt.Printf("%-27s %3s  %9s %7s %7s  %9s %7s %7s  %6s %5s  %8s %8s\n",
		"operation", "", "/s", "ms", "ms", "/s", "ms", "ms", "ratio", "goal", "server", "Postgres")
	for _, op := range operations(h) {
		if !h.wanted(op.name) {
			continue
		}
		if err := h.lines(ctx, op); err != nil {
			return fmt.Errorf("%s: %w", op.name, err)
		}
	}
	return h.memory(ctx)
}

// wanted says whether the operation is to be measured.
func (o requestOptions) wanted(name string) bool {
	return len(o.only) == 0 || slices.ContainsFunc(o.only, func(beginning string) bool { return strings.HasPrefix(name, beginning) })
}

// lines measures one operation with each number of clients.
func (h *host) lines(ctx context.Context, op operation) (err error) {
	if op.prepare != nil {
		undo, err := op.prepare(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, undo()) }()
	}
	clients := h.clients
	if op.clients != nil {
		clients = op.clients
	}
	for _, c := range clients {
		if err := h.line(ctx, op, c); err != nil {
			return err
		}
	}
	return nil
}

// line measures one operation with one number of clients, each side in turn.
func (h *host) line(ctx context.Context, op operation, clients int) error {
	address, request := h.plainestAddress, op.request
	switch op.against {
	case pageOne:
		address, request = h.node.HTTP, get(h.token, "/economy/leaderboard")
	case xpPageOne:
		address, request = h.node.HTTP, get(h.token, "/levelling/leaderboard")
	case nothing, plain:
	}
	var theirs, ours []*sample
	var ratios []float64
	var server, postgres time.Duration
	for range h.rounds {
		other := &sample{}
		if op.against != nothing {
			s, err := drive(ctx, address, request, clients, h.length())
			if err != nil {
				return err
			}
			other = &s
		}
		serverBefore, postgresBefore := proc.CPU(h.node.PID), proc.CPUOfTree(h.Postmaster)
		s, err := drive(ctx, h.node.HTTP, op.request, clients, h.length())
		if err != nil {
			return err
		}
		server += proc.CPU(h.node.PID) - serverBefore
		postgres += proc.CPUOfTree(h.Postmaster) - postgresBefore
		theirs, ours = append(theirs, other), append(ours, &s)
		switch op.against {
		case plain:
			ratios = append(ratios, s.rate()/other.rate())
		case pageOne, xpPageOne:
			ratios = append(ratios, s.at(0.5)/other.at(0.5))
		case nothing:
		}
	}
	n := 0
	for _, s := range ours {
		n += s.n()
	}
	other, ratio, goal := fmt.Sprintf("%25s", ""), "", ""
	if op.against != nothing {
		other, ratio = shown(theirs), fmt.Sprintf("%.2f", median(ratios))
	}
	if g := op.goals[clients]; g > 0 {
		goal = fmt.Sprintf("%.2f", g)
	}
	fmt.Printf("%-27s %3d  %s  %s  %6s %5s  %5.0f us %5.0f us\n",
		op.name, clients, other, shown(ours), ratio, goal, per(server, n), per(postgres, n))
	return nil
}

// shown is the medians of some rounds: rate, p50 and p99.
func shown(rounds []*sample) string {
	var rates, halves, tails []float64
	for _, s := range rounds {
		rates, halves, tails = append(rates, s.rate()), append(halves, s.at(0.5)), append(tails, s.at(0.99))
	}
	return fmt.Sprintf("%9.0f %7.3f %7.3f", median(rates), median(halves), median(tails))
}

func median(list []float64) float64 {
	slices.Sort(list)
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

func per(d time.Duration, n int) float64 { return float64(d.Microseconds()) / float64(max(n, 1)) }

// drive drives one operation for a while.
func (h *host) drive(ctx context.Context) error {
	for _, op := range operations(h) {
		if op.name == h.profile {
			fmt.Printf("driving %s, server process %d, profiles at http://%s/debug/pprof/\n", op.name, h.node.PID, h.node.Ops)
			s, err := drive(ctx, h.node.HTTP, op.request, h.clients[len(h.clients)-1], 30*time.Second)
			if err != nil {
				return err
			}
			fmt.Printf("%.0f /s\n", s.rate())
			return nil
		}
	}
	return fmt.Errorf("there is no operation %q", h.profile)
}

// memory prints what the server holds resident: at rest, after the requests,
// and after as many again.
func (h *host) memory(ctx context.Context) error {
	if h.requests == 0 {
		return nil
	}
	fmt.Printf("\nresident memory of the server: %d MB at rest after its start\n", h.resting>>20)
	op := operations(h)[0]
	for range 3 {
		for left := h.requests; left > 0; {
			s, err := drive(ctx, h.node.HTTP, op.request, 8, time.Second)
			if err != nil {
				return err
			}
			left -= s.n()
		}
		fmt.Printf("  %d MB after %d requests of %s more\n", proc.RSS(h.node.PID)>>20, h.requests, op.name)
	}
	return nil
}

// Command bench measures a real server against the database it stands on. It
// starts a Postgres with fsync on, loads a million wallets, starts `guildhall
// serve`, and runs each operation in turn with pgbench, which runs the same
// statements without anything in front of them. The two alternate, so that what
// else the machine does falls on both; the ratio is what counts.
//
//	make bench
//	go run ./bench -seconds 5 -rounds 3 -only getWallet,adjustBalance
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

	"guildhall/bench/proc"
)

type options struct {
	server   string
	wallets  int
	seconds  float64
	rounds   int
	clients  []int
	only     []string
	requests int
	profile  string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o options
	var clients, only, handwritten string
	flag.StringVar(&o.server, "server", "bin/guildhall", "the server `program`")
	flag.IntVar(&o.wallets, "wallets", 1_000_000, "wallets and level records to load")
	flag.Float64Var(&o.seconds, "seconds", 2, "length of one measurement")
	flag.IntVar(&o.rounds, "rounds", 2, "measurements of each side, in turn")
	flag.StringVar(&clients, "clients", "1,8,32", "numbers of connections")
	flag.StringVar(&only, "only", "", "operations to measure, all when empty")
	flag.IntVar(&o.requests, "requests", 100_000, "requests of the memory test, 0 for none")
	flag.StringVar(&o.profile, "profile", "", "operation to drive for 30 s with 8 clients while `perf` or pprof looks on")
	flag.StringVar(&handwritten, "handwritten", "", "serve the hand-written handler on this address; the program starts itself so")
	flag.Parse()
	if handwritten != "" {
		return serveByHand(ctx, handwritten)
	}
	for _, c := range strings.Split(clients, ",") {
		n, err := strconv.Atoi(c)
		if err != nil || n < 1 {
			return fmt.Errorf("-clients: %q is no number of connections", c)
		}
		o.clients = append(o.clients, n)
	}
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	h, err := start(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(h.measure(ctx), h.stop())
}

// wanted says whether the operation is to be measured.
func (o options) wanted(name string) bool {
	if len(o.only) == 0 {
		return true
	}
	for _, n := range o.only {
		if strings.HasPrefix(name, n) {
			return true
		}
	}
	return false
}

// measure runs every operation and prints the table.
func (h *host) measure(ctx context.Context) error {
	if h.profile != "" {
		return h.drill(ctx)
	}
	fmt.Printf("\n%-26s %3s  %9s %7s %7s  %9s %7s %7s  %6s %5s  %8s %8s\n",
		"", "", "pgbench", "p50", "p99", "server", "p50", "p99", "", "", "CPU/req", "CPU/req")
	fmt.Printf("%-26s %3s  %9s %7s %7s  %9s %7s %7s  %6s %5s  %8s %8s\n",
		"operation", "", "/s", "ms", "ms", "/s", "ms", "ms", "ratio", "goal", "server", "Postgres")
	for _, op := range operations(h) {
		if !h.wanted(op.name) {
			continue
		}
		for _, c := range h.clients {
			if op.once && c != 8 && len(h.clients) > 1 {
				continue
			}
			if err := h.line(ctx, op, c); err != nil {
				return fmt.Errorf("%s with %d clients: %w", op.name, c, err)
			}
		}
	}
	return h.memory(ctx)
}

// line measures one operation with one number of clients, each side in turn.
func (h *host) line(ctx context.Context, op operation, clients int) error {
	var theirs, ours, hand sample
	var server, postgres, byHand time.Duration
	for range h.rounds {
		s, err := h.pgbench(ctx, op, clients)
		if err != nil {
			return err
		}
		theirs.add(s)
		serverBefore, postgresBefore := proc.CPU(h.serverPID), proc.CPUOfTree(h.postgresPID)
		if s, err = drive(ctx, h.address, op.request, clients, h.length()); err != nil {
			return err
		}
		ours.add(s)
		server += proc.CPU(h.serverPID) - serverBefore
		postgres += proc.CPUOfTree(h.postgresPID) - postgresBefore
		if op.byHand {
			before := proc.CPU(h.handPID)
			if s, err = drive(ctx, h.handAddress, op.request, clients, h.length()); err != nil {
				return err
			}
			hand.add(s)
			byHand += proc.CPU(h.handPID) - before
		}
	}
	goal := ""
	if op.goal > 0 && clients == 8 {
		goal = fmt.Sprintf("%.2f", op.goal)
	}
	fmt.Printf("%-26s %3d  %9.0f %7.3f %7.3f  %9.0f %7.3f %7.3f  %6.3f %5s  %5.0f us %5.0f us\n",
		op.name, clients, theirs.rate(), theirs.at(0.5), theirs.at(0.99), ours.rate(), ours.at(0.5), ours.at(0.99),
		ours.rate()/theirs.rate(), goal, per(server, ours.n()), per(postgres, ours.n()))
	if op.byHand {
		goal = ""
		if clients == 8 {
			goal = "0.95"
		}
		fmt.Printf("%-26s %3d  %9.0f %7.3f %7.3f  %9s %7s %7s  %6.3f %5s  %5.0f us\n",
			"  a hand-written handler", clients, hand.rate(), hand.at(0.5), hand.at(0.99), "", "", "", ours.rate()/hand.rate(), goal, per(byHand, hand.n()))
	}
	return nil
}

func per(d time.Duration, n int) float64 { return float64(d.Microseconds()) / float64(max(n, 1)) }

// drill drives one operation for a while.
func (h *host) drill(ctx context.Context) error {
	for _, op := range operations(h) {
		if op.name == h.profile {
			fmt.Printf("driving %s, server process %d, profiles at http://%s/debug/pprof/\n", op.name, h.serverPID, h.ops)
			s, err := drive(ctx, h.address, op.request, 8, 30*time.Second)
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
			s, err := drive(ctx, h.address, op.request, 8, time.Second)
			if err != nil {
				return err
			}
			left -= s.n()
		}
		fmt.Printf("  %d MB after %d requests of %s more\n", proc.RSS(h.serverPID)>>20, h.requests, op.name)
	}
	return nil
}

// Command webhooks measures deliveries with everything on one machine: a
// Postgres with fsync on, the load, the deliverers and the receivers. It prints
//
//   - what one claim costs while more and more endpoints wait or are down;
//   - how long events take from their commit to the receiver, alone, beside
//     endpoints that are in trouble, and with a month of settled deliveries;
//   - how fast a backlog goes out with one node and with two;
//   - what a node costs Postgres that has nothing to do.
//
// Only ratios within one run mean something.
//
//	go run ./bench/webhooks
//	go run ./bench/webhooks -only claims -claims 10,1000 -seconds 2
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"guildhall/bench/crowd"
)

// size is how big the measurements are.
type size struct {
	rate    int           // events a second
	seconds int           // length of one measurement
	claims  []int         // numbers of endpoints that wait or are down
	others  int           // endpoints in trouble
	each    int           // deliveries that wait for each of those with a backlog
	slow    time.Duration // how long receivers of backlogs take to answer
	beside  []string      // kinds of trouble, by key; empty: all
	settled int           // deliveries in the log
	backlog int           // events to drain
	nodes   int           // most nodes that drain
}

// sections are the measurements, by the names under which -only asks for them.
var sections = []struct {
	name string
	run  func(context.Context, *host, size) error
}{
	{"claims", claims}, {"latency", latency}, {"trouble", trouble}, {"settled", settled}, {"drain", drain}, {"idle", idle},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench/webhooks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	var s size
	flag.IntVar(&s.rate, "rate", 200, "events per `second`")
	flag.IntVar(&s.seconds, "seconds", 10, "`length` of one measurement")
	flag.IntVar(&s.others, "others", 10_000, "`endpoints` that are in trouble beside those measured")
	flag.IntVar(&s.each, "each", 100, "`deliveries` that wait for each endpoint with a backlog")
	flag.DurationVar(&s.slow, "slow", 200*time.Millisecond, "how `long` receivers of backlogs take to answer")
	flag.IntVar(&s.settled, "settled", 1_000_000, "settled `deliveries` in the log")
	flag.IntVar(&s.backlog, "backlog", 100_000, "`events` of the backlog that is drained")
	flag.IntVar(&s.nodes, "nodes", 2, "most `nodes` that drain it")
	numbers := flag.String("claims", "10,1000,10000,100000", "`numbers` of endpoints that wait or are down while claims are measured")
	only := flag.String("only", "", "the `sections` wanted, of claims,latency,trouble,settled,drain,idle; empty: all")
	beside := flag.String("beside", "hang,500,backlog", "the `kinds` of trouble wanted")
	verbose := flag.Bool("statements", false, "print on which statements Postgres spends its time")
	flag.Parse()
	s.beside = strings.Split(*beside, ",")
	for _, n := range strings.Split(*numbers, ",") {
		number, err := strconv.Atoi(n)
		if err != nil {
			return fmt.Errorf("-claims: %w", err)
		}
		s.claims = append(s.claims, number)
	}

	h, err := newHost(ctx, *verbose)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	for _, section := range sections {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), section.name) {
			continue
		}
		began := time.Now()
		if err := section.run(ctx, h, s); err != nil {
			return fmt.Errorf("%s: %w", section.name, err)
		}
		fmt.Printf("(%s took %.0f s)\n\n", section.name, time.Since(began).Seconds())
	}
	return nil
}

// claims prints what a claim costs while one endpoint is sent to and others
// wait: half of them for the next attempt, half of them blocked.
func claims(ctx context.Context, h *host, s size) error {
	fmt.Printf("%-44s %9s %12s %14s %10s\n", "one claim, while this many endpoints wait", "claims", "wall ms", "in Postgres ms", "ratio")
	var first float64
	for _, n := range s.claims {
		p, err := h.place(ctx)
		if err != nil {
			return err
		}
		err = p.measured(ctx, func() error {
			if err := p.endpoints(ctx, 10, p.quick.URL); err != nil {
				return err
			}
			if err := p.crowd(ctx, n-n/2, crowd.Of{URL: p.quick.URL, Each: 1, Wait: crowd.Retry}); err != nil {
				return err
			}
			if err := p.crowd(ctx, n/2, crowd.Of{URL: p.quick.URL, Each: 1, Wait: crowd.Blocked}); err != nil {
				return err
			}
			m, err := p.steady(ctx, s.rate, s.seconds)
			if err != nil {
				return err
			}
			if first == 0 {
				first = m.claimPostgres
			}
			fmt.Printf("%-44d %9.0f %12.2f %14.2f %10.2f\n", n, m.claims, m.claimWall, m.claimPostgres, m.claimPostgres/first)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const latencyHead = "%-44s %8s %8s %8s %8s %10s %10s %11s\n"

func printLatencyHead(about string) {
	fmt.Printf(latencyHead, about, "events", "p50 ms", "p99 ms", "max ms", "claim ms", "settle ms", "stmts/event")
}

func (m measurement) print(name string, more ...any) {
	fmt.Printf("%-44s %8d %8.1f %8.1f %8.1f %10.2f %10.2f %11.2f%s\n", name, len(m.took), m.at(0.5), m.at(0.99), m.at(1), m.claimWall, m.settleWall, m.statements, fmt.Sprint(more...))
}

// latency prints how long events take from their commit to the receiver.
func latency(ctx context.Context, h *host, s size) error {
	printLatencyHead(fmt.Sprintf("%d events a second, from commit to receiver", s.rate))
	for _, n := range []int{1, 10, 100} {
		p, err := h.place(ctx)
		if err != nil {
			return err
		}
		err = p.measured(ctx, func() error {
			if err := p.endpoints(ctx, n, p.quick.URL); err != nil {
				return err
			}
			m, err := p.steady(ctx, s.rate, s.seconds)
			if err == nil {
				m.print(fmt.Sprintf("%d endpoints", n))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// trouble prints the same beside endpoints that are in trouble, each time after
// a measurement without them.
func trouble(ctx context.Context, h *host, s size) error {
	printLatencyHead(fmt.Sprintf("10 endpoints, and beside them %d that", s.others))
	for _, kind := range []struct {
		key, name string
		of        func(p *place) crowd.Of
	}{
		{"hang", "hang", func(p *place) crowd.Of { return crowd.Of{URL: p.hole, Each: 1} }},
		{"500", "answer 500", func(p *place) crowd.Of { return crowd.Of{URL: p.broken.URL, Each: 1} }},
		{"backlog", fmt.Sprintf("have a backlog of %d, answers in %s", s.each, s.slow), func(p *place) crowd.Of {
			return crowd.Of{URL: p.slow.URL, Each: s.each}
		}},
	} {
		if len(s.beside) > 0 && !slices.Contains(s.beside, kind.key) {
			continue
		}
		p, err := h.place(ctx)
		if err != nil {
			return err
		}
		p.delay.Store(int64(s.slow))
		err = p.measured(ctx, func() error {
			if err := p.endpoints(ctx, 10, p.quick.URL); err != nil {
				return err
			}
			alone, err := p.steady(ctx, s.rate, s.seconds)
			if err != nil {
				return err
			}
			if err := p.crowd(ctx, s.others, kind.of(p)); err != nil {
				return err
			}
			m, err := p.steady(ctx, s.rate, s.seconds)
			if err != nil {
				return err
			}
			alone.print("  (alone)")
			m.print(kind.name, fmt.Sprintf("  p99 %.2f times", m.at(0.99)/alone.at(0.99)))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// settled prints the same with a log of a month's deliveries.
func settled(ctx context.Context, h *host, s size) error {
	printLatencyHead("100 endpoints, and in the log")
	p, err := h.place(ctx)
	if err != nil {
		return err
	}
	return p.measured(ctx, func() error {
		if err := p.endpoints(ctx, 100, p.quick.URL); err != nil {
			return err
		}
		m, err := p.steady(ctx, s.rate, s.seconds)
		if err != nil {
			return err
		}
		m.print("  what was just delivered")
		if err := p.fillLog(ctx, s.settled); err != nil {
			return err
		}
		if m, err = p.steady(ctx, s.rate, s.seconds); err == nil {
			m.print(fmt.Sprintf("%d settled deliveries", s.settled))
		}
		return err
	})
}

// drain prints how fast a backlog over 100 endpoints goes out, with one node and
// with more.
func drain(ctx context.Context, h *host, s size) error {
	fmt.Printf("%-44s %8s %10s %10s %10s %11s\n", fmt.Sprintf("a backlog of %d over 100 endpoints", s.backlog), "s", "events/s", "claim ms", "settle ms", "stmts/event")
	for _, delay := range []time.Duration{0, s.slow} {
		var one float64
		for nodes := 1; nodes <= s.nodes; nodes++ {
			p, err := h.place(ctx)
			if err != nil {
				return err
			}
			p.delay.Store(int64(delay))
			err = p.measured(ctx, func() error {
				if err := p.crowd(ctx, 100, crowd.Of{URL: p.slow.URL, Each: s.backlog / 100}); err != nil {
					return err
				}
				m, took, err := p.drain(ctx, nodes, s.backlog/100*100)
				if err != nil {
					return err
				}
				rate := float64(s.backlog/100*100) / took.Seconds()
				if nodes == 1 {
					one = rate
				}
				fmt.Printf("%-44s %8.1f %10.0f %10.2f %10.2f %11.2f  %.2f times one node\n", fmt.Sprintf("%d nodes, answers in %s", nodes, delay), took.Seconds(), rate,
					m.claimWall, m.settleWall, m.statements, rate/one)
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// idle prints what a node costs Postgres that has nothing to do, with few
// endpoints and with many.
func idle(ctx context.Context, h *host, s size) error {
	fmt.Printf("%-44s %14s %16s\n", "a node with nothing to do, and this many wait", "Postgres CPU ms/s", "statements/s")
	for _, n := range []int{0, s.others} {
		p, err := h.place(ctx)
		if err != nil {
			return err
		}
		err = p.measured(ctx, func() error {
			if err := p.endpoints(ctx, 10, p.quick.URL); err != nil {
				return err
			}
			if err := p.crowd(ctx, n, crowd.Of{URL: p.quick.URL, Each: 1, Wait: crowd.Blocked}); err != nil {
				return err
			}
			quiet, err := p.idle(ctx, 0, s.seconds)
			if err != nil {
				return err
			}
			u, err := p.idle(ctx, 1, s.seconds)
			if err == nil {
				fmt.Printf("%-44d %14.1f %16.1f   (without a node %.1f ms/s)\n", n, u.cpu, u.statements, quiet.cpu)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

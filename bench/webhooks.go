package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"time"

	"guildhall/bench/crowd"
)

// webhookOptions say how big the measurements are.
type webhookOptions struct {
	rate    int           // events a second
	seconds int           // length of one measurement
	claims  []int         // numbers of endpoints that wait or are down
	others  int           // endpoints in trouble
	each    int           // deliveries that wait for each of those with a backlog
	slow    time.Duration // how long receivers of backlogs take to answer
	beside  []string      // kinds of trouble, by key; empty: all
	verbose bool          // print the nodes' statements of each measurement
	settled int           // deliveries in the log
	backlog int           // events to drain
	nodes   int           // most nodes that drain
}

// webhookBench measures deliveries with everything on one machine: a Postgres with
// fsync on, the load, the deliverers and the receivers. It prints
//
//   - what one claim costs while more and more endpoints wait or are down;
//   - how long events take from their commit to the receiver, alone, beside
//     endpoints that are in trouble, and with a month of settled deliveries;
//   - how fast a backlog goes out with one node and with two;
//   - what a node costs Postgres that has nothing to do.
func webhookBench(flags *flag.FlagSet) func(context.Context) error {
	var o webhookOptions
	flags.IntVar(&o.rate, "rate", 200, "events per `second`")
	flags.IntVar(&o.seconds, "seconds", 10, "`length` of one measurement")
	flags.IntVar(&o.others, "others", 10_000, "`endpoints` that are in trouble beside those measured")
	flags.IntVar(&o.each, "each", 100, "`deliveries` that wait for each endpoint with a backlog")
	flags.DurationVar(&o.slow, "slow", 200*time.Millisecond, "how `long` receivers of backlogs take to answer")
	flags.IntVar(&o.settled, "settled", 1_000_000, "settled `deliveries` in the log")
	flags.IntVar(&o.backlog, "backlog", 100_000, "`events` of the backlog that is drained")
	flags.IntVar(&o.nodes, "nodes", 2, "most `nodes` that drain it")
	flags.BoolVar(&o.verbose, "statements", false, "print on which statements Postgres spends its time")
	claims := numbers(flags, "claims", 1, []int{10, 1000, 10_000, 100_000}, "numbers of endpoints that wait or are down while claims are measured")
	only := names(flags, "only", "claims,latency,trouble,settled,drain,idle", "sections wanted")
	beside := names(flags, "beside", "hang,500,backlog", "kinds of trouble wanted")
	return func(ctx context.Context) error {
		o.claims, o.beside = *claims, *beside
		for _, section := range sections {
			if !slices.Contains(*only, section.name) {
				continue
			}
			began := time.Now()
			if err := section.run(ctx, o); err != nil {
				return fmt.Errorf("%s: %w", section.name, err)
			}
			fmt.Printf("(%s took %.0f s)\n\n", section.name, time.Since(began).Seconds())
		}
		return nil
	}
}

// sections are the measurements, by the names under which -only asks for them.
var sections = []struct {
	name string
	run  func(context.Context, webhookOptions) error
}{
	{"claims", claims}, {"latency", latency}, {"trouble", trouble}, {"settled", settled}, {"drain", drain}, {"idle", idle},
}

// claims prints what a claim costs while one endpoint is sent to and others
// wait: half of them for the next attempt, half of them blocked.
func claims(ctx context.Context, o webhookOptions) error {
	fmt.Printf("%-44s %9s %12s %14s %10s\n", "one claim, while this many endpoints wait", "claims", "wall ms", "in Postgres ms", "ratio")
	var first float64
	for _, n := range o.claims {
		err := o.at(ctx, 10, func(p *webhookPlace) error {
			if err := p.crowd(ctx, n-n/2, crowd.Of{URL: p.quick.URL, Each: 1, Wait: crowd.Retry}); err != nil {
				return err
			}
			if err := p.crowd(ctx, n/2, crowd.Of{URL: p.quick.URL, Each: 1, Wait: crowd.Blocked}); err != nil {
				return err
			}
			m, err := p.steady(ctx)
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

func printLatencyHead(about string) {
	fmt.Printf("%-44s %8s %8s %8s %8s %10s %10s %11s\n", about, "events", "p50 ms", "p99 ms", "max ms", "claim ms", "settle ms", "stmts/event")
}

func (m measurement) print(name string, more ...any) {
	fmt.Printf("%-44s %8d %8.1f %8.1f %8.1f %10.2f %10.2f %11.2f%s\n", name, m.n(), m.at(0.5), m.at(0.99), m.at(1), m.claimWall, m.settleWall, m.statements, fmt.Sprint(more...))
}

// latency prints how long events take from their commit to the receiver.
func latency(ctx context.Context, o webhookOptions) error {
	printLatencyHead(fmt.Sprintf("%d events a second, from commit to receiver", o.rate))
	for _, n := range []int{1, 10, 100} {
		if err := o.at(ctx, n, func(p *webhookPlace) error {
			m, err := p.steady(ctx)
			if err == nil {
				m.print(fmt.Sprintf("%d endpoints", n))
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// trouble prints the same beside endpoints that are in trouble, each time after
// a measurement without them.
func trouble(ctx context.Context, o webhookOptions) error {
	printLatencyHead(fmt.Sprintf("10 endpoints, and beside them %d that", o.others))
	for _, kind := range []struct {
		key, name string
		of        func(p *webhookPlace) crowd.Of
	}{
		{"hang", "hang", func(p *webhookPlace) crowd.Of { return crowd.Of{URL: p.hole, Each: 1} }},
		{"500", "answer 500", func(p *webhookPlace) crowd.Of { return crowd.Of{URL: p.broken.URL, Each: 1} }},
		{"backlog", fmt.Sprintf("have a backlog of %d, answers in %s", o.each, o.slow), func(p *webhookPlace) crowd.Of {
			return crowd.Of{URL: p.slow.URL, Each: o.each}
		}},
	} {
		if !slices.Contains(o.beside, kind.key) {
			continue
		}
		if err := o.at(ctx, 10, func(p *webhookPlace) error {
			p.delay.Store(int64(o.slow))
			alone, err := p.steady(ctx)
			if err != nil {
				return err
			}
			if err := p.crowd(ctx, o.others, kind.of(p)); err != nil {
				return err
			}
			m, err := p.steady(ctx)
			if err != nil {
				return err
			}
			alone.print("  (alone)")
			m.print(kind.name, fmt.Sprintf("  p99 %.2f times", m.at(0.99)/alone.at(0.99)))
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// settled prints the same with a log of a month's deliveries.
func settled(ctx context.Context, o webhookOptions) error {
	printLatencyHead("100 endpoints, and in the log")
	return o.at(ctx, 100, func(p *webhookPlace) error {
		m, err := p.steady(ctx)
		if err != nil {
			return err
		}
		m.print("  what was just delivered")
		if err := p.fillLog(ctx, o.settled); err != nil {
			return err
		}
		if m, err = p.steady(ctx); err == nil {
			m.print(fmt.Sprintf("%d settled deliveries", o.settled))
		}
		return err
	})
}

// drain prints how fast a backlog goes out, with one node and with more, and what
// is pending when the last of it has been answered: to a hundred endpoints, and to
// a single one that answers at once.
func drain(ctx context.Context, o webhookOptions) error {
	fmt.Printf("%-44s %8s %10s %8s %10s %10s %11s\n",
		fmt.Sprintf("a backlog of %d", o.backlog), "s", "events/s", "pending", "claim ms", "settle ms", "stmts/event")
	for _, to := range []struct {
		endpoints int
		delay     time.Duration
	}{{100, 0}, {100, o.slow}, {1, 0}} {
		var one float64
		for nodes := 1; nodes <= o.nodes; nodes++ {
			err := o.at(ctx, 0, func(p *webhookPlace) error {
				p.delay.Store(int64(to.delay))
				total := o.backlog / to.endpoints * to.endpoints
				if err := p.crowd(ctx, to.endpoints, crowd.Of{URL: p.slow.URL, Each: total / to.endpoints}); err != nil {
					return err
				}
				m, pending, err := p.drain(ctx, nodes, total)
				if err != nil {
					return err
				}
				rate := float64(total) / m.took.Seconds()
				if nodes == 1 {
					one = rate
				}
				fmt.Printf("%-44s %8.1f %10.0f %8d %10.2f %10.2f %11.2f  %.2f times one node\n",
					fmt.Sprintf("%d endpoints, %d nodes, answers in %s", to.endpoints, nodes, to.delay), m.took.Seconds(), rate, pending,
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
func idle(ctx context.Context, o webhookOptions) error {
	fmt.Printf("%-44s %14s %16s\n", "a node with nothing to do, and this many wait", "Postgres CPU ms/s", "statements/s")
	for _, n := range []int{0, o.others} {
		if err := o.at(ctx, 10, func(p *webhookPlace) error {
			if err := p.crowd(ctx, n, crowd.Of{URL: p.quick.URL, Each: 1, Wait: crowd.Blocked}); err != nil {
				return err
			}
			quiet, err := p.idle(ctx, 0)
			if err != nil {
				return err
			}
			u, err := p.idle(ctx, 1)
			if err == nil {
				fmt.Printf("%-44d %14.1f %16.1f   (without a node %.1f ms/s)\n", n, u.cpu, u.statements, quiet.cpu)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

package main

import (
	"flag"
	"fmt"
	"net/url"
	"strings"
	"time"

	"guildhall/bench/rig"
)

// webhookOptions are the sizes of the measurements.
type webhookOptions struct {
	*rig.Run
	server  string
	rate    int           // events a second
	length  time.Duration // duration of one measurement
	claims  []int         // numbers of endpoints that wait or fail
	others  int           // endpoints in trouble
	each    int           // waiting deliveries of each endpoint with a backlog
	slow    time.Duration // how long the receivers with backlogs take to respond
	beside  []string      // kinds of trouble, by key
	verbose bool          // print the nodes' statements for each measurement
	backlog int           // events to drain
	most    int           // nodes that drain the backlog
}

// webhookBench measures deliveries with everything on one machine: a Postgres with fsync on, nodes
// that write and deliver, and the receivers. It prints
//
//   - what one claim costs while more and more endpoints wait or fail;
//   - how long events take from the write's response to the receiver, alone and beside endpoints in
//     trouble;
//   - how fast a backlog is sent with one node and with two.
//
// The statements of an event include those of its write. The benchmark growth measures an idle
// node.
func webhookBench(flags *flag.FlagSet) func(*rig.Run, string) {
	var o webhookOptions
	flags.IntVar(&o.rate, "rate", 200, "events per `second`")
	seconds := flags.Int("seconds", 10, "`length` of one measurement")
	flags.IntVar(&o.others, "others", 10_000, "`endpoints` that are in trouble beside those measured")
	flags.IntVar(&o.each, "each", 100, "`deliveries` that wait for each endpoint with a backlog")
	flags.DurationVar(&o.slow, "slow", 200*time.Millisecond, "how `long` receivers of backlogs take to answer")
	flags.IntVar(&o.backlog, "backlog", 100_000, "`events` of the backlog that is drained")
	flags.IntVar(&o.most, "nodes", 2, "most `nodes` that drain it")
	flags.BoolVar(&o.verbose, "statements", false, "print on which statements Postgres spends its time")
	claims := numbers(flags, "claims", []int{10, 1000, 10_000, 100_000}, "numbers of endpoints that wait or are down beside claims")
	only := flags.String("only", "claims,trouble,drain", "sections wanted")
	beside := flags.String("beside", "hang,500,backlog", "kinds of trouble wanted")
	return func(r *rig.Run, server string) {
		o.Run, o.server, o.claims, o.beside, o.length = r, server, *claims, strings.Split(*beside, ","), time.Duration(*seconds)*time.Second
		sections(r, *only, section{"claims", o.claimed}, section{"trouble", o.trouble}, section{"drain", o.drain})
	}
}

// webhookPlace is a database with a running server (rig.Place), and receivers of webhooks.
type webhookPlace struct {
	*rig.Place
	o        webhookOptions
	receiver *rig.Receiver
	watched  *rig.Watched
}

// nodeRole is the database role of the nodes, by which their statements are told apart.
const nodeRole = "bench_node"

// at starts a new server and runs a measurement on it with the given number of watched endpoints.
func (o webhookOptions) at(endpoints int, measure func(*webhookPlace)) {
	o.Part(func(part *rig.Run) {
		// Not Fast: waiting for the disk is part of the measurement.
		p := &webhookPlace{Place: part.Place(rig.Config{Program: o.server, Statements: true}), o: o, receiver: part.Receiver()}
		p.Exec(`CREATE ROLE ` + nodeRole + ` LOGIN SUPERUSER`)
		p.Place = p.Through(func(u *url.URL) { u.User = url.User(nodeRole) })
		p.watched = p.Watch(p.receiver, endpoints)
		measure(p)
		if o.verbose {
			p.Statements(nodeRole)
		}
	})
}

// counts are running totals of the nodes: transactions, their milliseconds, and what Postgres did
// for them.
type counts struct {
	claims, claimMs, records, recordMs float64
	Statements, ClaimMs                float64
}

func (p *webhookPlace) counts(nodes ...*rig.Node) (c counts) {
	const name = "guildhall_webhook_transaction_duration_seconds"
	for _, n := range nodes {
		c.claims += n.Metric(p.Run, name+`_count{kind="claim"`)
		c.claimMs += 1000 * n.Metric(p.Run, name+`_sum{kind="claim"`)
		c.records += n.Metric(p.Run, name+`_count{kind="record"`)
		c.recordMs += 1000 * n.Metric(p.Run, name+`_sum{kind="record"`)
	}
	// The statements of a claim: two polls, one lock, one lease.
	p.Get(&c, `
		SELECT coalesce(sum(calls), 0)::float8 AS statements,
		       coalesce(sum(total_exec_time) FILTER (WHERE query ~
		           'RECURSIVE hop|unnest.*webhook_schedule s ON|SKIP LOCKED|WITH o AS MATERIALIZED'), 0)::float8 AS claimms
		FROM pg_stat_statements s
		JOIN pg_roles r ON r.oid = s.userid
		WHERE r.rolname = $1`, nodeRole)
	return c
}

// since returns what one claim, one recording of results and one event have cost since before.
func (c counts) since(before counts, events int) counts {
	claims, records := max(c.claims-before.claims, 1), max(c.records-before.records, 1)
	return counts{
		claims: claims, claimMs: (c.claimMs - before.claimMs) / claims, recordMs: (c.recordMs - before.recordMs) / records,
		ClaimMs: (c.ClaimMs - before.ClaimMs) / claims, Statements: (c.Statements - before.Statements) / float64(max(events, 1)),
	}
}

// steady writes events at the rate, with one node, and returns their times and costs.
func (p *webhookPlace) steady() (events *rig.Tally, each counts) {
	p.Part(func(part *rig.Place) {
		n := part.Serve()
		p.watched.For(n, p.o.rate, 3*time.Second) // opens connections, and caches statements and endpoints
		before := p.counts(n)
		events = p.watched.For(n, p.o.rate, p.o.length)
		each = p.counts(n).since(before, events.N())
	})
	return events, each
}

// claimed prints what a claim costs while one endpoint is sent to and others wait: half of them for
// the next attempt, half for the end of a block.
func (o webhookOptions) claimed() {
	o.Say("%-44s %9s %12s %14s %10s", "one claim, while this many endpoints wait", "claims", "wall ms", "in Postgres ms", "ratio")
	var first float64
	for _, n := range o.claims {
		o.at(10, func(p *webhookPlace) {
			p.Crowd(n-n/2, rig.Crowd{URL: p.receiver.URL, Each: 1, Wait: rig.Retry})
			p.Crowd(n/2, rig.Crowd{URL: p.receiver.URL, Each: 1, Wait: rig.Blocked})
			p.Vacuum()
			_, each := p.steady()
			if first == 0 {
				first = each.ClaimMs
			}
			o.Say("%-44d %9.0f %12.2f %14.2f %10.2f", n, each.claims, each.claimMs, each.ClaimMs, each.ClaimMs/first)
		})
	}
}

// latencyOf measures, prints a line, and returns the p99.
func (p *webhookPlace) latencyOf(name string) float64 {
	events, each := p.steady()
	p.Say("%-44s %8v %8.1f %8.1f %8.1f %10.2f %10.2f %11.2f",
		name, events.N(), events.Ms(0.5), events.Ms(0.99), events.Ms(1), each.claimMs, each.recordMs, each.Statements)
	return events.Ms(0.99)
}

// trouble prints how long events take from the write's response to the receiver, alone and then
// beside endpoints in trouble.
func (o webhookOptions) trouble() {
	o.Say("%-44s %8s %8s %8s %8s %10s %10s %11s", fmt.Sprintf("10 endpoints, and beside them %d that", o.others),
		"events", "p50 ms", "p99 ms", "max ms", "claim ms", "record ms", "stmts/event")
	for _, kind := range o.beside {
		o.at(10, func(p *webhookPlace) {
			p.receiver.Answer("/broken", rig.After(0, 500))
			p.receiver.Answer("/slow", rig.After(o.slow, 200))
			of, known := map[string]rig.Crowd{
				"hang":    {URL: p.Hole(), Each: 1},
				"500":     {URL: p.receiver.URL + "/broken", Each: 1},
				"backlog": {URL: p.receiver.URL + "/slow", Each: o.each},
			}[kind]
			p.Need(known, "there is no trouble of the kind %q", kind)
			alone := p.latencyOf("  (alone)")
			p.Crowd(o.others, of)
			p.Vacuum()
			p.Say("  p99 %.2f times", p.latencyOf(kind)/alone)
		})
	}
}

// drain prints how fast a backlog is sent with one node and with more, to a hundred endpoints and
// to a single fast one, and what is still pending when the last delivery was answered.
func (o webhookOptions) drain() {
	o.Say("%-44s %8s %10s %8s %10s %10s %11s",
		fmt.Sprintf("a backlog of %d", o.backlog), "s", "events/s", "pending", "claim ms", "record ms", "stmts/event")
	for _, to := range []struct {
		endpoints int
		delay     time.Duration
	}{{100, 0}, {100, o.slow}, {1, 0}} {
		var one float64
		for nodes := 1; nodes <= o.most; nodes++ {
			o.at(0, func(p *webhookPlace) {
				name := fmt.Sprintf("%d endpoints, %d nodes, answers in %s", to.endpoints, nodes, to.delay)
				rate := p.drained(name, nodes, to.endpoints, to.delay)
				if nodes == 1 {
					one = rate
				}
				p.Say("  %.2f times one node", rate/one)
			})
		}
	}
}

// drained lets nodes send a backlog and returns the events per second.
func (p *webhookPlace) drained(name string, nodes, endpoints int, delay time.Duration) (rate float64) {
	if delay > 0 {
		p.receiver.Answer("/backlog", rig.After(delay, 200))
	}
	all := p.o.backlog / endpoints * endpoints
	p.Crowd(endpoints, rig.Crowd{URL: p.receiver.URL + "/backlog", Each: all / endpoints, Wait: rig.Blocked})
	p.Vacuum()
	before := p.counts()
	senders := make([]*rig.Node, nodes)
	for i := range senders {
		senders[i] = p.Serve()
	}
	p.Exec(`UPDATE webhook_schedule SET next_due = now(), failures = 0, blocks = 0, failing_since = NULL, blocked_until = NULL`)
	arrived := p.Await(time.Hour, func() bool { return p.receiver.Asked("/backlog") >= all })
	p.Need(arrived, "%d of %d events arrived", p.receiver.Asked("/backlog"), all)
	requests := p.receiver.Requests("/backlog")
	took := requests[all-1].Sub(requests[0]).Seconds()
	c := p.counts(senders...).since(before, all)
	pending := p.Count(`SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`)
	p.Say("%-44s %8.1f %10.0f %8d %10.2f %10.2f %11.2f", name, took, float64(all)/took, pending, c.claimMs, c.recordMs, c.Statements)
	return float64(all) / took
}

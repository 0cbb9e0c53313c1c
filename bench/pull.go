package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"sync"
	"time"

	"guildhall/bench/rig"
)

// pulls is a node from which a bot fetches events.
type pulls struct {
	*rig.Place
	node          *rig.Node
	key           string
	calls, guilds int
	length        time.Duration // duration of one measurement

	mu      sync.Mutex
	arrived map[string]time.Time // when events arrived, by the reason of the change
	fetches int
}

// pullBench measures the cost and speed of fetching events. It prints goals in parentheses.
func pullBench(flags *flag.FlagSet) func(*rig.Run, string) {
	p := &pulls{arrived: make(map[string]time.Time)}
	flags.IntVar(&p.calls, "calls", 5000, "`calls` that wait on one node, each for an endpoint of its own")
	flags.IntVar(&p.guilds, "guilds", 5000, "`guilds` of the stream")
	seconds := flags.Int("seconds", 10, "`length` of one measurement")
	only := flags.String("only", "adjust,rate,waiting,stream", "sections wanted")
	return func(r *rig.Run, server string) {
		p.length = time.Duration(*seconds) * time.Second
		p.Place = r.Place(rig.Config{Program: server, Statements: true})
		p.key = p.Key()
		p.Exec(`INSERT INTO guilds (id, name, owner_id, member_count)
			SELECT ((n + 1000000) * 4194304::bigint)::text, 'bench', '1', 1 FROM generate_series(0, $1::int) AS n`, max(p.calls, p.guilds))
		p.node = p.Serve("GUILDHALL_RATE_BOT=off")
		sections(r, *only, section{"adjust", p.adjust}, section{"rate", p.rate}, section{"waiting", p.waiting}, section{"stream", p.stream})
	}
}

// home returns the id of the nth guild. Consecutive guilds belong to different shards.
func home(n int) string { return strconv.Itoa((n + 1_000_000) << 22) }

// request returns a request about a guild.
func (p *pulls) request(guild, method, path, body string) []byte {
	return rig.Request(method, path, p.key, []byte(body), "Guild-Id: "+guild)
}

// fetch fetches and acknowledges until ctx ends. Both bodies begin with of.
func (p *pulls) fetch(ctx context.Context, guild, path, of, pull string) {
	p.Fetch(ctx, rig.Fetcher{
		Addresses: []string{p.node.HTTP}, Token: p.key, Headers: []string{"Guild-Id: " + guild}, Path: path, Of: of, Pull: pull,
		Take: func(_ context.Context, events []rig.Event) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.fetches++
			for _, e := range events {
				p.arrived[e.Data.Reason] = time.Now()
			}
			return true
		},
	})
}

// lags changes balances at a rate, in several guilds in turn, and prints how long each event took
// from the write's response until it was fetched.
func (p *pulls) lags(rate, guilds int) {
	p.mu.Lock()
	clear(p.arrived)
	p.mu.Unlock()
	calls, lags := p.Lags(rig.Load{
		Address: p.node.HTTP, Connections: 50, Rate: rate, Total: rate * int(p.length/time.Second),
		Request: func(_, n int) []byte {
			return p.request(home(n%guilds), "POST", "/economy/adjust", fmt.Sprintf(`{"user_id":"%d","delta":1,"reason":"%d"}`, 1+n%500, n))
		},
	}, func(n int) time.Time {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.arrived[strconv.Itoa(n)]
	})
	p.Hold(calls.AllOK(), "each change is answered: %v", calls)
	p.Hold(lags.Ms(1) < 60_000, "each event is fetched")
	p.Say("%d events a second in %d guilds: fetched after %.1f ms (p50), %.1f ms (p99; 25), changes answered after %.1f and %.1f",
		rate, guilds, lags.Ms(0.5), lags.Ms(0.99), calls.Ms(0.5), calls.Ms(0.99))
}

// statements returns how often statements with such a text were executed.
func (p *pulls) statements(like string) int {
	return p.Count(`SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query ~ $1 AND query !~ 'INSERT INTO|pg_stat'`, like)
}

// waiting starts many long polls without events and then measures events in a hundred guilds, with
// these polls and without. The polls start evenly spread, as those of independent callers, and are
// renewed every 20 s.
func (p *pulls) waiting() {
	paths := make([]string, p.calls)
	for n := range paths {
		paths[n] = p.endpoint(home(n))
	}
	const looked, wait = `AS p \(guild_id, endpoint_id\)`, 20
	call := func(ctx context.Context, n int) {
		if rig.Pause(ctx, time.Duration(n)*wait*time.Second/time.Duration(p.calls)) {
			p.fetch(ctx, home(n), paths[n], "", fmt.Sprintf(`"wait":%d`, wait))
		}
	}
	few, rested := min(100, p.calls), p.node.Resident()
	waits := func(calls int) {
		all := func() bool {
			rig.Pause(p, 200*time.Millisecond)
			return p.node.Metric(p.Run, "guildhall_webhook_waiting_callers") >= float64(calls*98/100) // the other polls are just being renewed
		}
		p.Hold(p.Await(2*time.Minute, all), "%d calls wait", calls)
	}
	stop := p.Start(p.calls, call)
	waits(p.calls)
	looks := p.statements(looked)
	rig.Pause(p, 5*time.Second)
	p.Say("%d calls wait: %d MB more (150), %.1f looks a second (4)",
		p.calls, p.node.Resident()-rested, float64(p.statements(looked)-looks)/5)
	p.lags(200, few)
	stop()
	stop = p.Start(few, call)
	waits(few)
	p.lags(200, few)
	stop()
}

// endpoint registers a pull endpoint in a guild and returns the path of its events.
func (p *pulls) endpoint(guild string) string {
	var made struct{ ID string }
	p.Ask(p.node.HTTP, p.request(guild, "POST", "/webhooks", `{"delivery":"pull","events":["economy.balance_changed"]}`), &made)
	return "/webhooks/" + made.ID + "/events"
}

// rate lets four callers fetch the waiting events of one endpoint.
func (p *pulls) rate() {
	guild := home(p.guilds)
	path := p.endpoint(guild)
	change := func(_, _ int) []byte {
		return p.request(guild, "POST", "/economy/adjustments", string(members(500).changes()))
	}
	new(rig.Tally).Run(p, rig.Load{Address: p.node.HTTP, Connections: 2, For: time.Second, Request: change})
	const pending = `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`
	waits, begun := p.Count(pending), time.Now()
	stop := p.Start(4, func(ctx context.Context, _ int) { p.fetch(ctx, guild, path, "", `"wait":0`) })
	p.Hold(p.Becomes(time.Minute, 0, pending), "all that waits is fetched")
	took := time.Since(begun)
	stop()
	p.Say("4 callers fetch and acknowledge %d events of one endpoint: %.0f a second (2,000)",
		waits, float64(waits)/took.Seconds())
}

// put creates or changes the stream and waits for its backfill.
func (p *pulls) put(events string) {
	p.Ask(p.node.HTTP, p.request(home(0), "PUT", "/bot/streams/bench", `{"echo":true,"events":["`+events+`"]}`), nil)
	known := p.Becomes(time.Minute, 1, `SELECT count(*) FROM bot_streams WHERE name = 'bench' AND backfilled IS NULL`)
	p.Hold(known, "all guilds know of the stream")
}

// stream lets four shards fetch the events of many guilds.
func (p *pulls) stream() {
	const of = `stream_deliveries|bot_streams`
	p.put("economy.balance_changed")
	before, fetches := p.statements(of), p.fetches
	stop := p.Start(4, func(ctx context.Context, n int) {
		p.fetch(ctx, home(0), "/bot/events", `"stream":"bench",`, fmt.Sprintf(`"shards":4,"shard":%d,"wait":20`, n))
	})
	p.lags(500, p.guilds)
	stop()
	each := float64(max(p.fetches-fetches, 1))
	p.Say("  of a stream, by four shards: %.1f events and %.1f statements a fetch",
		500*p.length.Seconds()/each, float64(p.statements(of)-before)/each)
}

// adjust changes balances without a stream and with one that wants other events, alternately.
func (p *pulls) adjust() {
	change := func(_, _ int) []byte {
		return p.request(home(1), "POST", "/economy/adjust", string(members(500).change()))
	}
	changed := func() float64 {
		t := new(rig.Tally).Run(p, rig.Load{Address: p.node.HTTP, Connections: 8, For: p.length / 3, Request: change})
		p.Hold(t.AllOK(), "each change succeeds: %v", t)
		return t.Rate()
	}
	var without, beside []float64
	for range 3 {
		without = append(without, changed())
		p.put("case.created")
		beside = append(beside, changed())
		p.Ask(p.node.HTTP, p.request(home(0), "DELETE", "/bot/streams/bench", ""), nil)
	}
	p.Say("%.0f adjustments a second, %.2f times as many beside a stream that does not want them (1)",
		median(without), median(beside)/median(without))
}

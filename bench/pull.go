package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"guildhall/bench/node"
	"guildhall/bench/proc"
	"guildhall/bench/testbed"
	"guildhall/internal/access/auth"
)

// pulls is a node from which a bot fetches events.
type pulls struct {
	*testbed.Place
	node                   *node.Node
	key                    string
	calls, guilds, seconds int
	client                 http.Client

	mu      sync.Mutex
	arrived map[string]time.Time // by the event's reason
	fetches int
}

// pullBench measures what it costs to fetch events, and how fast that is. Goals stand in
// parentheses.
func pullBench(flags *flag.FlagSet) func(context.Context) error {
	server := flags.String("server", "bin/guildhall", "the server `program`")
	p := &pulls{arrived: make(map[string]time.Time), client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1 << 14}}}
	flags.IntVar(&p.calls, "calls", 5000, "`calls` that wait on one node, each for an endpoint of its own")
	flags.IntVar(&p.guilds, "guilds", 5000, "`guilds` of the stream")
	flags.IntVar(&p.seconds, "seconds", 10, "`length` of one measurement")
	return func(ctx context.Context) (err error) {
		if p.Place, err = testbed.New(ctx, testbed.Config{Statements: true}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		made, err := auth.CreateKey(ctx, p.DB, auth.NewKey{Env: "test", Name: "bench"})
		if err != nil {
			return err
		}
		p.key = made.Secret
		if err := p.Exec(ctx, []string{`INSERT INTO guilds (id, name, owner_id, member_count)
			SELECT ((n + 1000000) * 4194304::bigint)::text, 'bench', '1', 1 FROM generate_series(0, $1::int) AS n`}, max(p.calls, p.guilds)); err != nil {
			return err
		}
		if p.node, err = p.Serve(ctx, *server, "GUILDHALL_RATE_BOT=off"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.node.Stop()) }()
		return errors.Join(p.adjust(ctx), p.rate(ctx), p.waiting(ctx), p.stream(ctx))
	}
}

// home is the n-th guild. Neighbours are of different shards.
func home(n int) string { return strconv.Itoa((n + 1_000_000) << 22) }

// ask sends one request about a guild, again while the server is busy. When ctx has ended
// it finds nothing.
func (p *pulls) ask(ctx context.Context, guild, method, path, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.node.HTTP+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = http.Header{"Authorization": {"Bearer " + p.key}, "X-Forwarded-Proto": {"https"}, "Content-Type": {"application/json"}, "Guild-Id": {guild}}
	resp, err := p.client.Do(req)
	if err == nil {
		defer resp.Body.Close()
		if err = json.NewDecoder(resp.Body).Decode(into); resp.StatusCode >= http.StatusMultipleChoices {
			err = fmt.Errorf("%s %s was answered %s: %v", method, path, resp.Status, into)
		}
		if resp.StatusCode == http.StatusServiceUnavailable && pause(ctx, time.Second) == nil {
			return p.ask(ctx, guild, method, path, body, into)
		}
	}
	if ctx.Err() != nil || errors.Is(err, io.EOF) { // a 204 has no body
		return nil
	}
	return err
}

// fetch fetches and acknowledges until ctx ends, or nothing comes though it would not
// wait. Both bodies begin with of.
func (p *pulls) fetch(ctx context.Context, guild, path, of, shard string, wait int) error {
	for ctx.Err() == nil {
		var got struct {
			Data []struct {
				ID   string
				Data struct{ Reason string }
			}
		}
		err := p.ask(ctx, guild, "POST", path+"/pull", fmt.Sprintf(`{%s%s"wait":%d}`, of, shard, wait), &got)
		if err != nil || wait+len(got.Data) == 0 {
			return err
		}
		now, ids := time.Now(), make([]string, len(got.Data))
		p.mu.Lock()
		p.fetches++
		for i, e := range got.Data {
			ids[i], p.arrived[e.Data.Reason] = e.ID, now
		}
		p.mu.Unlock()
		if len(ids) > 0 {
			if err := p.ask(ctx, guild, "POST", path+"/ack", `{`+of+`"event_ids":["`+strings.Join(ids, `","`)+`"]}`, new(any)); err != nil {
				return err
			}
		}
	}
	return nil
}

// lags changes balances at a rate, in turn in some guilds, and prints how long each took
// from its answer until it was fetched.
func (p *pulls) lags(ctx context.Context, rate, guilds int) error {
	p.mu.Lock()
	clear(p.arrived)
	p.mu.Unlock()
	answered, errs := make([]time.Time, rate*p.seconds), make([]error, rate*p.seconds+1)
	var load sync.WaitGroup
	for begun, n := time.Now(), 0; n < len(answered); n++ {
		time.Sleep(time.Until(begun.Add(time.Duration(n) * time.Second / time.Duration(rate))))
		load.Go(func() {
			errs[n] = p.ask(ctx, home(n%guilds), "POST", "/economy/adjust", fmt.Sprintf(`{"user_id":"%d","delta":1,"reason":"%d"}`, 1+n%500, n), new(any))
			answered[n] = time.Now()
		})
	}
	load.Wait()
	errs[len(answered)] = arrival(ctx, len(answered), func() int { p.mu.Lock(); defer p.mu.Unlock(); return len(p.arrived) })
	var s sample
	for n, at := range answered {
		s.latencies = append(s.latencies, max(p.arrived[strconv.Itoa(n)].Sub(at), 0))
	}
	fmt.Printf("%d events a second in %d guilds: fetched after %.1f ms (p50), %.1f ms (p99; 25)\n", rate, guilds, s.at(0.5), s.at(0.99))
	return cmp.Or(errs...)
}

// count is a number that the database knows; 0 where it knows none.
func (p *pulls) count(ctx context.Context, query string) (n int) {
	_ = p.Admin.QueryRowContext(ctx, query).Scan(&n)
	return n
}

// statements is how many statements have had a text like that.
func (p *pulls) statements(ctx context.Context, like string) int {
	return p.count(ctx, `SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query ~ '`+like+`' AND query !~ 'INSERT INTO|pg_stat'`)
}

// beside has callers at work while something is measured.
func beside(ctx context.Context, callers int, call func(ctx context.Context, n int) error, measure func() error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	errs := make([]error, callers)
	for n := range callers {
		all.Go(func() { errs[n] = call(ctx, n) })
	}
	err := measure()
	stop()
	all.Wait()
	return cmp.Or(append(errs, err)...)
}

// waiting has many calls wait, first for nothing, then for what happens in a hundred guilds.
func (p *pulls) waiting(ctx context.Context) (err error) {
	paths := make([]string, p.calls)
	for n := range paths {
		if paths[n], err = p.endpoint(ctx, home(n)); err != nil {
			return err
		}
	}
	const opened, looked = `fetched_by IS NULL OR`, `AS p \(guild_id, endpoint_id\)`
	rested, before := proc.RSS(p.node.PID), p.statements(ctx, opened)
	return beside(ctx, p.calls, func(ctx context.Context, n int) error { return p.fetch(ctx, home(n), paths[n], "", "", 20) }, func() error {
		err := arrival(ctx, p.calls, func() int { return p.statements(ctx, opened) - before })
		looks := p.statements(ctx, looked)
		err = errors.Join(err, pause(ctx, 5*time.Second))
		fmt.Printf("%d calls wait: %d MB more (150), %.1f looks a second (4)\n", p.calls, (proc.RSS(p.node.PID)-rested)>>20, float64(p.statements(ctx, looked)-looks)/5)
		return errors.Join(err, p.lags(ctx, 200, min(100, p.calls)))
	})
}

// endpoint makes a pull endpoint in a guild, and returns the path of its events.
func (p *pulls) endpoint(ctx context.Context, guild string) (string, error) {
	var made struct{ Data struct{ ID string } }
	err := p.ask(ctx, guild, "POST", "/webhooks", `{"delivery":"pull","events":["economy.balance_changed"]}`, &made)
	return "/webhooks/" + made.Data.ID + "/events", err
}

// rate has four callers fetch what waits for one endpoint.
func (p *pulls) rate(ctx context.Context) error {
	guild := home(p.guilds)
	path, err := p.endpoint(ctx, guild)
	if err == nil {
		_, err = drive(ctx, p.node.HTTP, requests{500}.postMany("/economy/adjustments", false, p.key+"\r\nGuild-Id: "+guild), 2, time.Second)
	}
	waits, begun := p.count(ctx, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`), time.Now()
	left := func() int {
		return waits - p.count(ctx, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`)
	}
	err = errors.Join(err, beside(ctx, 4, func(ctx context.Context, _ int) error { return p.fetch(ctx, guild, path, "", "", 0) },
		func() error { return arrival(ctx, waits, left) }))
	fmt.Printf("4 callers fetch and acknowledge %d events of one endpoint: %.0f a second (2,000)\n", waits, float64(waits)/time.Since(begun).Seconds())
	return err
}

// put begins or changes the stream, and waits until the guilds know of it.
func (p *pulls) put(ctx context.Context, events string) error {
	err := p.ask(ctx, home(0), "PUT", "/bot/streams/bench", `{"echo":true,"events":["`+events+`"]}`, new(any))
	known := func() int {
		return p.count(ctx, `SELECT count(*) FROM bot_streams WHERE name = 'bench' AND walked IS NULL`)
	}
	return errors.Join(err, arrival(ctx, 1, known))
}

// stream has four shards fetch what happens in many guilds.
func (p *pulls) stream(ctx context.Context) error {
	const of = `stream_deliveries|bot_streams`
	err := p.put(ctx, "economy.balance_changed")
	before, fetches := p.statements(ctx, of), p.fetches
	err = errors.Join(err, beside(ctx, 4, func(ctx context.Context, n int) error {
		return p.fetch(ctx, home(0), "/bot/events", `"stream":"bench",`, fmt.Sprintf(`"shards":4,"shard":%d,`, n), 20)
	}, func() error { return p.lags(ctx, 500, p.guilds) }))
	each := float64(max(p.fetches-fetches, 1))
	fmt.Printf("  of a stream, by four shards: %.1f events and %.1f statements a fetch\n", float64(500*p.seconds)/each, float64(p.statements(ctx, of)-before)/each)
	return err
}

// adjust changes balances without a stream and beside one that wants others, in turn.
func (p *pulls) adjust(ctx context.Context) (err error) {
	var without, beside []float64
	for range 3 {
		for _, rates := range []*[]float64{&without, &beside} {
			s, failed := drive(ctx, p.node.HTTP, requests{500}.post("/economy/adjust", false, `{"user_id":"%d","delta":%d}`, p.key+"\r\nGuild-Id: "+home(1)), 8, time.Duration(p.seconds)*time.Second/3)
			*rates = append(*rates, s.rate())
			if err = errors.Join(err, failed); rates == &without {
				err = errors.Join(err, p.put(ctx, "case.created"))
			}
		}
		err = errors.Join(err, p.ask(ctx, home(0), "DELETE", "/bot/streams/bench", "", new(any)))
	}
	fmt.Printf("%.0f adjustments a second, %.2f times as many beside a stream that does not want them (1)\n", median(without), median(beside)/median(without))
	return err
}

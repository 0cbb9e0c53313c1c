package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"guildhall/bench/rig"
)

// fetcher is a program that fetches the events of a pull endpoint from either node.
type fetcher struct {
	*place
	rig.Fetcher
}

// fetcher registers a pull endpoint of guild A as soon as that succeeds.
func (p *place) fetcher(token string, addresses []string, events ...string) *fetcher {
	request := rig.Request("POST", "/webhooks", token, fmt.Appendf(nil, `{"delivery":"pull","events":["%s"]}`, strings.Join(events, `","`)))
	c := &rig.Caller{Address: addresses[0]}
	defer c.Close()
	p.Hold(p.Await(time.Minute, func() bool { return rig.OK(c.Send(p, request)) }), "a pull endpoint is made")
	var made struct{ ID string }
	p.Must(c.Data(&made))
	return p.fetcherOf("/webhooks/"+made.ID+"/events", token, addresses)
}

func (p *place) fetcherOf(path, token string, addresses []string) *fetcher {
	return &fetcher{p, rig.Fetcher{Addresses: addresses, Token: token, Path: path, Pull: `"wait":1,"lease":10`}}
}

// begin starts the program. The returned function kills it.
func (f *fetcher) begin() (kill func()) {
	return f.Start(1, func(ctx context.Context, _ int) { f.Fetch(ctx, f.Fetcher) })
}

// takes starts a program that processes `most` events or a few more and then ignores further ones.
// The returned function kills it and returns the processed events.
func (f *fetcher) takes(most int) (kill func() map[string]bool) {
	seen := map[string]bool{}
	f.Take = func(_ context.Context, events []rig.Event) bool {
		if len(seen) >= most {
			return false
		}
		for _, e := range events {
			seen[e.ID] = true
		}
		return true
	}
	end := f.begin()
	return func() map[string]bool {
		end()
		return seen
	}
}

// endpoint returns the id of the endpoint that the program fetches from.
func (f *fetcher) endpoint() string { return strings.Split(f.Path, "/")[2] }

// acknowledged waits until all events for the program are acknowledged, and reports whether they
// are.
func (f *fetcher) acknowledged() bool {
	return f.Becomes(2*time.Minute, 0, `SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state <> 'delivered'`, f.endpoint())
}

// fetches starts a program that fetches some event types of guild A. The returned function checks
// that each event was fetched, and stops the program.
func (p *place) fetches(token string, addresses []string, events ...string) (each func()) {
	f := p.fetcher(token, addresses, events...)
	kill := f.takes(math.MaxInt)
	return func() {
		acknowledged, seen := f.acknowledged(), kill()
		var events []string
		p.Select(&events, `SELECT event_id FROM webhook_deliveries WHERE endpoint_id = $1`, f.endpoint())
		missing := lacking(events, seen)
		all := acknowledged && missing == 0 && len(events) > 0
		p.Hold(all, "each of %d events is fetched (%d are not) and acknowledged", len(events), missing)
		sent := p.Count(`SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND attempts > 0`, f.endpoint())
		p.Hold(sent == 0, "none of them was sent (%d)", sent)
	}
}

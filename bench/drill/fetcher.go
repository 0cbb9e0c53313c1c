package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"guildhall/bench/rig"
)

// fetchedEvent is an event as those who fetch need it here.
type fetchedEvent struct {
	ID, Type, Timestamp string
	Data                struct {
		ID, Reason string
		UserID     string `json:"user_id"`
		Balance    int64
	}
}

// fetcher is a program that fetches what is kept for a pull endpoint, from either node,
// and acknowledges what it has taken.
type fetcher struct {
	*place
	path, token string
	addresses   [2]string
	take        func(ctx context.Context, events []fetchedEvent) bool
}

// fetcher makes a pull endpoint of guild A, as soon as it can be made.
func (p *place) fetcher(token string, addresses [2]string, events []string) *fetcher {
	list, err := json.Marshal(events)
	p.Must(err)
	c := &rig.Caller{Address: addresses[0]}
	defer c.Close()
	request := rig.Request("POST", "/webhooks", token, fmt.Appendf(nil, `{"delivery":"pull","events":%s}`, list))
	p.Hold(p.Await(time.Minute, func() bool { return rig.OK(c.Send(p, request)) }), "a pull endpoint is made")
	var made struct{ ID string }
	p.Must(c.Data(&made))
	return &fetcher{place: p, path: "/webhooks/" + made.ID + "/events", token: token, addresses: addresses}
}

// begin starts the program. The function that it returns kills it.
func (f *fetcher) begin() (kill func()) {
	life, end := context.WithCancel(f)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.live(life)
	}()
	return func() {
		end()
		<-ended
	}
}

// live fetches, takes and acknowledges, in this order, until it is killed between any two
// steps.
func (f *fetcher) live(ctx context.Context) {
	at := [2]*rig.Caller{{Address: f.addresses[0]}, {Address: f.addresses[1]}}
	defer at[0].Close()
	defer at[1].Close()
	for try := 0; ctx.Err() == nil; try++ {
		c := at[try%2]
		if a := c.Send(ctx, rig.Request("POST", f.path+"/pull", f.token, []byte(`{"wait":1,"lease":10}`))); !rig.OK(a) {
			rig.Pause(ctx, 50*time.Millisecond)
			continue
		}
		var events []fetchedEvent
		f.Must(c.Data(&events))
		if len(events) == 0 || !f.take(ctx, events) { // what is not taken comes again
			continue
		}
		ids := make([]string, len(events))
		for i, e := range events {
			ids[i] = e.ID
		}
		c.Send(ctx, rig.Request("POST", f.path+"/ack", f.token, fmt.Appendf(nil, `{"event_ids":["%s"]}`, strings.Join(ids, `","`))))
	}
}

// takes starts the program, which takes so many events or a few more, and leaves those
// that come then. The function that it returns kills it, and returns what it has taken.
func (f *fetcher) takes(most int) (kill func() map[string]bool) {
	seen := map[string]bool{}
	f.take = func(_ context.Context, events []fetchedEvent) bool {
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

// endpoint is the id of the endpoint that the program fetches from.
func (f *fetcher) endpoint() string { return strings.Split(f.path, "/")[2] }

// acknowledged waits until all that is kept for the program is acknowledged, and reports
// whether it is.
func (f *fetcher) acknowledged() bool {
	return f.Await(2*time.Minute, func() bool {
		return f.Count(`SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state <> 'delivered'`, f.endpoint()) == 0
	})
}

// fetches has a program fetch some events of guild A from now on. The function that it
// returns holds that each has come, and ends the program.
func (p *place) fetches(token string, addresses [2]string, events ...string) (each func()) {
	f := p.fetcher(token, addresses, events)
	kill := f.takes(math.MaxInt)
	return func() {
		acknowledged, seen := f.acknowledged(), kill()
		var events []string
		p.Select(&events, `SELECT event_id FROM webhook_deliveries WHERE endpoint_id = $1`, f.endpoint())
		missing := 0
		for _, id := range events {
			if !seen[id] {
				missing++
			}
		}
		p.Hold(acknowledged && missing == 0 && len(events) > 0, "each of %d events is fetched (%d are not) and acknowledged", len(events), missing)
		sent := p.Count(`SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND attempts > 0`, f.endpoint())
		p.Hold(sent == 0, "none of them was sent (%d)", sent)
	}
}

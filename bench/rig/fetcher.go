package rig

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Event is an event as those who fetch need it here.
type Event struct {
	ID, Type, Timestamp string
	Data                struct {
		ID, Reason string
		UserID     string `json:"user_id"`
		Balance    int64
	}
}

// Fetcher is a program that fetches events, from each address in turn, and acknowledges
// those that it has taken.
type Fetcher struct {
	Addresses []string
	Token     string
	Headers   []string
	Path      string // of the events
	Of, Pull  string // members of the bodies: of both, and of the one that fetches
	Take      func(ctx context.Context, events []Event) bool
}

// Fetch fetches, takes and acknowledges, in this order, until ctx ends between any two
// steps. Events that are not taken come again.
func (r *Run) Fetch(ctx context.Context, f Fetcher) {
	callers := make([]*Caller, len(f.Addresses))
	for i, address := range f.Addresses {
		callers[i] = &Caller{Address: address}
		defer callers[i].Close()
	}
	for try := 0; ctx.Err() == nil; try++ {
		c := callers[try%len(callers)]
		send := func(action, body string) bool {
			return OK(c.Send(ctx, Request("POST", f.Path+action, f.Token, []byte(body), f.Headers...)))
		}
		if !send("/pull", `{`+f.Of+f.Pull+`}`) {
			Pause(ctx, 50*time.Millisecond)
			continue
		}
		var events []Event
		if c.Body.Len() > 0 { // a 204 has none
			r.Must(c.Data(&events))
		}
		if len(events) == 0 || !f.Take(ctx, events) {
			continue
		}
		ids := make([]string, len(events))
		for i, e := range events {
			ids[i] = e.ID
		}
		send("/ack", fmt.Sprintf(`{%s"event_ids":["%s"]}`, f.Of, strings.Join(ids, `","`)))
	}
}

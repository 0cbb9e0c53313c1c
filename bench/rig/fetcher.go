package rig

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Event is an event, with the fields that fetching programs need here.
type Event struct {
	ID, Type, Timestamp string
	Data                struct {
		ID, Reason string
		UserID     string `json:"user_id"`
		Balance    int64
	}
}

// Fetcher describes a program that fetches events, from each address in turn, and acknowledges
// those that it has processed.
type Fetcher struct {
	Addresses []string
	Token     string
	Headers   []string
	Path      string // the path of the events
	Of, Pull  string // JSON members of the request bodies: of both requests, and of the pull
	Take      func(ctx context.Context, events []Event) bool
}

// Fetch pulls, processes and acknowledges events until ctx ends, which may be between any two of
// these steps. Events that were not acknowledged are pulled again.
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
		if c.Body.Len() > 0 { // a 204 has no body
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

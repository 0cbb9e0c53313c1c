package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"guildhall/bench/rig"
	"guildhall/internal/service/guildfile"
)

// oneTicket is a guild file with a guild and the ticket that paysAndPosts writes to.
const oneTicket = `{"record":"guild","id":"%[1]s"}
{"record":"ticket","guild_id":"%[1]s","opener_id":"7","id":"the-ticket","channel_id":"77"}
`

// writers send keyed writes one after the other, to either address. Each is retried until it
// succeeds.
type writers struct {
	name      string   // the prefix of the writers' idempotency keys
	addresses []string // the two addresses
	token     string
	request   func(writer int, key string) (path, body string)
	again     bool // repeat acknowledged writes once
	responses rig.Tally

	mu          sync.Mutex
	rounds      int
	done        map[string]time.Time // when each key was acknowledged
	unanswered  atomic.Int64
	notReplayed atomic.Int64
}

// paysAndPosts makes two of the writers post messages, and the others pay members.
func paysAndPosts(writer int, key string) (path, body string) {
	if writer < 2 {
		return "/tickets/the-ticket/message", fmt.Sprintf(`{"content":"%s","author_id":"55"}`, key)
	}
	return "/economy/adjust", fmt.Sprintf(`{"user_id":"7%d","delta":1,"reason":"%s"}`, writer, key)
}

// retryTimeout is how long a write is retried.
const retryTimeout = time.Minute

// begin starts n writers. The returned function stops them after their current writes have
// succeeded or timed out.
func (w *writers) begin(p *place, n int) (stop func()) {
	if w.done == nil {
		w.done = map[string]time.Time{}
	}
	w.rounds++
	round := w.rounds
	return p.Start(n, func(ctx context.Context, i int) {
		at := [2]*rig.Caller{{Address: w.addresses[0]}, {Address: w.addresses[1]}}
		defer at[0].Close()
		defer at[1].Close()
		for n := 0; ctx.Err() == nil; n++ {
			w.write(p, at, i, fmt.Sprintf("%s%d-%d-%d", w.name, round, i, n))
		}
	})
}

// write sends one write until its outcome is known. An acknowledged one has to be answered so again.
func (w *writers) write(ctx context.Context, at [2]*rig.Caller, writer int, key string) {
	path, body := w.request(writer, key)
	request := rig.Request("POST", path, w.token, []byte(body), "Idempotency-Key: "+key)
	send := func(try int) bool {
		a := at[(len(key)+try)%2].Send(ctx, request)
		w.responses.Add(a)
		return rig.OK(a)
	}
	for begun, try := time.Now(), 0; time.Since(begun) < retryTimeout; try++ {
		if !send(try) {
			rig.Pause(ctx, 50*time.Millisecond)
			continue
		}
		w.mu.Lock()
		w.done[key] = time.Now()
		w.mu.Unlock()
		if w.again && !send(try+1) {
			w.notReplayed.Add(1)
		}
		rig.Pause(ctx, 5*time.Millisecond)
		return
	}
	w.unanswered.Add(1)
}

// firstAfter returns when the first write after an instant was acknowledged.
func (w *writers) firstAfter(instant time.Time) (first time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.done {
		if at.After(instant) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// checkWrites checks how the writes ended.
func (p *place) checkWrites(w *writers) {
	p.Say("%d writes: %v", len(w.done), &w.responses)
	unanswered := int(w.unanswered.Load())
	p.Hold(unanswered == 0, "the outcome of each write is known after it was sent again (%d of %d did not)", unanswered, len(w.done)+unanswered)
	internal := w.responses.Count(func(a rig.Response) bool { return a.Code == "internal_error" })
	p.Hold(internal == 0, "no answer is an internal error (%d are)", internal)
}

// compare compares the acknowledged writes with the database, and the events with those that
// arrived. Changes by the example clients in the demo guild are ignored.
func (p *place) compare(w *writers, hook *rig.Receiver) {
	var rows []struct {
		Key   string
		Times int
	}
	p.Select(&rows, `
		SELECT reason AS key, count(*) AS times FROM ledger_entries WHERE reason IS NOT NULL AND guild_id <> $1 GROUP BY reason
		UNION ALL
		SELECT content, count(*) FROM ticket_messages WHERE guild_id <> $1 GROUP BY content
		UNION ALL
		SELECT reason, count(*) FROM cases WHERE guild_id <> $1 GROUP BY reason
		UNION ALL
		SELECT prize, count(*) FROM giveaways WHERE guild_id <> $1 GROUP BY prize`, guildfile.DemoGuild)
	twice, kept := 0, 0
	for _, row := range rows {
		if row.Times != 1 {
			twice++
		}
		if _, acknowledged := w.done[row.Key]; acknowledged {
			kept++
		}
	}
	p.Hold(kept == len(w.done) && kept > 0, "each acknowledged write is there (%d of %d)", kept, len(w.done))
	p.Hold(twice == 0, "and once (%d are not)", twice)
	var events []string
	p.Select(&events, `SELECT id FROM webhook_events WHERE guild_id <> $1`, guildfile.DemoGuild)
	p.Await(2*time.Minute, func() bool { return lacking(events, hook.Events()) == 0 })
	missing := lacking(events, hook.Events())
	p.Hold(missing == 0 && len(events) >= len(w.done), "each of %d events arrives (%d have not)", len(events), missing)
}

// lacking returns how many of the ids were not seen.
func lacking[T any](ids []string, seen map[string]T) (n int) {
	for _, id := range ids {
		if _, there := seen[id]; !there {
			n++
		}
	}
	return n
}

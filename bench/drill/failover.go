package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/embedded"
	"guildhall/internal/service/guildfile"
)

// pair is a primary with its synchronous standby.
type pair struct{ primary, standby *embedded.Server }

// failover kills the primary under two nodes that write, deliver and post, and
// promotes the standby at once, as whatever watches over a database would. It
// needs servers of its own.
func failover(ctx context.Context, p place, r *report, length time.Duration) (err error) {
	both, err := startPair(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, both.primary.Stop(), both.standby.Stop()) }()
	if p.databaseURL, err = both.url(); err != nil {
		return err
	}
	hook := newReceiver()
	defer hook.Close()
	if err := p.load(ctx, oneTicket); err != nil {
		return err
	}
	if err := p.register(ctx, guildA, hook); err != nil {
		return err
	}
	tokens, err := p.tokens(ctx, guildA, 2)
	if err != nil {
		return err
	}
	var nodes []*server
	for range 2 {
		s, err := p.serve(ctx, drillEnv...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Stop()) }()
		nodes = append(nodes, s)
	}
	w := &writers{addresses: [2]string{nodes[0].HTTP, nodes[1].HTTP}, token: tokens[1], request: paysAndPosts}
	stop := w.begin(ctx, 8)
	pause(ctx, length)
	if err := p.revokeFirst(ctx); err != nil {
		return err
	}
	killed := time.Now()
	if err := both.primary.Kill(); err != nil {
		return err
	}
	if err := both.standby.Promote(ctx); err != nil {
		return err
	}
	promoted := time.Since(killed)
	r.hold(awaited(ctx, time.Minute, func() bool { return !w.firstAfter(killed.Add(promoted)).IsZero() }), "writes succeed again")
	pause(ctx, length)
	stop()

	back := w.firstAfter(killed.Add(promoted))
	r.say("%d writes: %v", len(w.done), &w.responses)
	r.say("without service: %.2f s from the kill to the first write after it, of which the promotion took %.2f s", back.Sub(killed).Seconds(), promoted.Seconds())
	r.hold(w.unsettled == 0, "each write that got no answer settles when it is sent again (%d of %d did not)", w.unsettled, len(w.done)+w.unsettled)
	r.hold(w.responses.count(func(a response) bool { return a.code == "internal_error" }) == 0, "no answer is an internal error")
	for i, s := range nodes {
		c := &caller{address: s.HTTP}
		a := c.send(ctx, request("GET", "/me", tokens[0], nil))
		c.close()
		r.hold(a.status == 401, "the token that was revoked is refused by node %d (%d)", i+1, a.status)
	}
	return w.compare(ctx, p, r, hook)
}

// oneTicket writes a guild file with the guild and the ticket that paysAndPosts
// writes to.
func oneTicket(w io.Writer) error {
	_, err := fmt.Fprintf(w, `{"record":"guild","id":"%[1]s"}
{"record":"ticket","guild_id":"%[1]s","opener_id":"7","id":"the-ticket","channel_id":"77"}
`, guildA)
	return err
}

func startPair(ctx context.Context) (_ pair, err error) {
	var both pair
	if both.primary, err = embedded.Start(ctx, embedded.Config{TCP: true}); err != nil {
		return both, err
	}
	if err := db.Migrate(ctx, both.primary.URL); err != nil {
		return both, errors.Join(err, both.primary.Stop())
	}
	if both.standby, err = embedded.Start(ctx, embedded.Config{TCP: true, Of: both.primary}); err != nil {
		return both, errors.Join(err, both.primary.Stop())
	}
	if err := both.synchronous(ctx); err != nil {
		return both, errors.Join(err, both.standby.Stop(), both.primary.Stop())
	}
	return both, nil
}

// synchronous has the primary wait for its standby at each commit.
func (b pair) synchronous(ctx context.Context) error {
	pool, err := db.OpenSQL(b.primary.URL, "drill", 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	for _, statement := range []string{`ALTER SYSTEM SET synchronous_standby_names = '*'`, `SELECT pg_reload_conf()`} {
		if _, err := pool.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	var state string
	if !awaited(ctx, time.Minute, func() bool {
		err = pool.QueryRowContext(ctx, `SELECT sync_state FROM pg_stat_replication`).Scan(&state)
		return err == nil && state == "sync"
	}) {
		return fmt.Errorf("the standby does not follow: %q, %w", state, err)
	}
	return nil
}

// url names both servers.
func (b pair) url() (string, error) {
	one, err := url.Parse(b.primary.URL)
	if err != nil {
		return "", err
	}
	two, err := url.Parse(b.standby.URL)
	if err != nil {
		return "", err
	}
	one.Host += "," + two.Host
	q := one.Query()
	q.Set("target_session_attrs", "read-write")
	one.RawQuery = q.Encode()
	return one.String(), nil
}

// revokeFirst revokes the oldest token of guild A.
func (p place) revokeFirst(ctx context.Context) error {
	d, err := db.Open(db.Config{URL: p.databaseURL, Writers: 1, Readers: 1, Name: "drill"})
	if err != nil {
		return err
	}
	defer d.Close()
	all, err := auth.List(ctx, d, guildA)
	if err != nil {
		return err
	}
	return auth.Revoke(ctx, d, guildA, all[0].ID)
}

// writers send keyed writes one after the other, each until it is answered with
// success, to either address.
type writers struct {
	name      string // begins their keys
	addresses [2]string
	token     string
	request   func(writer int, key string) (path string, body []byte)
	again     bool // acknowledged changes are sent once more
	responses tally

	mu          sync.Mutex
	rounds      int
	done        map[string]time.Time // by key, when it was acknowledged
	unsettled   int
	notReplayed int
}

// paysAndPosts has two of the writers post messages, and the others pay members.
func paysAndPosts(writer int, key string) (path string, body []byte) {
	if writer < 2 {
		return "/tickets/the-ticket/message", fmt.Appendf(nil, `{"content":"%s","author_id":"55"}`, key)
	}
	return "/economy/adjust", fmt.Appendf(nil, `{"user_id":"7%d","delta":1,"reason":"%s"}`, writer, key)
}

// settleTimeout is how long a write is sent again.
const settleTimeout = time.Minute

// begin starts n of them. The function it returns ends them once their last writes
// have settled.
func (w *writers) begin(ctx context.Context, n int) (stop func()) {
	if w.done == nil {
		w.done = map[string]time.Time{}
	}
	w.rounds++
	round := w.rounds
	going, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			var at [2]*caller
			for k := range at {
				at[k] = &caller{address: w.addresses[k]}
				defer at[k].close()
			}
			for n := 0; going.Err() == nil; n++ {
				w.write(ctx, at, i, fmt.Sprintf("%s%d-%d-%d", w.name, round, i, n))
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

func (w *writers) write(ctx context.Context, at [2]*caller, writer int, key string) {
	path, body := w.request(writer, key)
	for begun, try := time.Now(), 0; time.Since(begun) < settleTimeout; try++ {
		a := at[(len(key)+try)%2].send(ctx, request("POST", path, w.token, body, "Idempotency-Key: "+key))
		w.responses.add(a)
		if ok(a) {
			w.acknowledged(key)
			if w.again {
				w.replay(ctx, at[(len(key)+try+1)%2], request("POST", path, w.token, body, "Idempotency-Key: "+key))
			}
			pause(ctx, 5*time.Millisecond)
			return
		}
		pause(ctx, 50*time.Millisecond)
	}
	w.mu.Lock()
	w.unsettled++
	w.mu.Unlock()
}

func (w *writers) acknowledged(key string) {
	w.mu.Lock()
	w.done[key] = time.Now()
	w.mu.Unlock()
}

// replay sends what was acknowledged again, which has to be answered as it was.
func (w *writers) replay(ctx context.Context, to *caller, again []byte) {
	a := to.send(ctx, again)
	w.responses.add(a)
	if !ok(a) {
		w.mu.Lock()
		w.notReplayed++
		w.mu.Unlock()
	}
}

// firstAfter is when the first write was acknowledged after an instant.
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

// compare holds what was acknowledged against what is there, and events against
// what has arrived. Changes by clients of examples/ in the demo guild are no part of
// it.
func (w *writers) compare(ctx context.Context, p place, r *report, hook *receiver) error {
	d, err := db.Open(db.Config{URL: p.databaseURL, Writers: 1, Readers: 1, Name: "drill"})
	if err != nil {
		return err
	}
	defer d.Close()
	var rows []struct {
		Key   string `db:"key"`
		Times int    `db:"times"`
	}
	if err := d.Reader().SelectContext(ctx, &rows, `
		SELECT reason AS key, count(*) AS times FROM ledger_entries WHERE reason IS NOT NULL AND guild_id <> $1 GROUP BY reason
		UNION ALL
		SELECT content, count(*) FROM ticket_messages WHERE guild_id <> $1 GROUP BY content
		UNION ALL
		SELECT reason, count(*) FROM cases WHERE guild_id <> $1 GROUP BY reason
		UNION ALL
		SELECT prize, count(*) FROM giveaways WHERE guild_id <> $1 GROUP BY prize`, guildfile.DemoGuild); err != nil {
		return err
	}
	twice, kept := 0, 0
	for _, row := range rows {
		if row.Times != 1 {
			twice++
		}
		if _, acknowledged := w.done[row.Key]; acknowledged {
			kept++
		}
	}
	r.hold(kept == len(w.done) && kept > 0, "each acknowledged write is there (%d of %d)", kept, len(w.done))
	r.hold(twice == 0, "and once (%d are not)", twice)
	var events []string
	if err := d.Reader().SelectContext(ctx, &events, `SELECT id FROM webhook_events WHERE guild_id <> $1`, guildfile.DemoGuild); err != nil {
		return err
	}
	missing := func() (n int) {
		seen := hook.events()
		for _, id := range events {
			if seen[id] == 0 {
				n++
			}
		}
		return n
	}
	r.hold(awaited(ctx, 2*time.Minute, func() bool { return missing() == 0 }) && len(events) >= len(w.done), "each of %d events arrives (%d have not)", len(events), missing())
	return nil
}

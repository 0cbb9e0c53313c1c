package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"guildhall/internal/base/db"
)

// killsSize is how big the drill is.
type killsSize struct {
	kills   int
	between time.Duration // from one kill to the next
}

// kills kills one of two nodes again and again, which pay, file cases, post messages,
// run giveaways and deliver, and starts it anew at the same address. Then it looks
// for what a dead node may have left behind.
func kills(ctx context.Context, p place, r *report, size killsSize) (err error) {
	hook := newReceiver()
	defer hook.Close()
	if err := p.load(ctx, oneTicket); err != nil {
		return err
	}
	if err := p.register(ctx, guildA, hook); err != nil {
		return err
	}
	tokens, err := p.tokens(ctx, guildA, 1)
	if err != nil {
		return err
	}
	w := &writers{token: tokens[0], request: everything}
	var nodes [2]*server
	for i := range nodes {
		if w.addresses[i], err = freeAddress(); err != nil {
			return err
		}
		if nodes[i], err = p.serveAt(ctx, w.addresses[i]); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, nodes[i].Stop()) }()
	}
	stop := w.begin(ctx, 8)
	for k := range size.kills {
		pause(ctx, size.between)
		if err := errors.Join(nodes[k%2].Kill(), nodes[k%2].Stop()); err != nil {
			stop()
			return err
		}
		if nodes[k%2], err = p.serveAt(ctx, w.addresses[k%2]); err != nil {
			stop()
			return err
		}
	}
	stop()
	r.say("%d kills, %d writes: %v", size.kills, len(w.done), &w.responses)
	r.hold(w.unsettled == 0, "each write settles when it is sent again (%d did not)", w.unsettled)
	r.hold(w.responses.count(func(a response) bool { return a.code == "internal_error" }) == 0, "no answer is an internal error")
	if err := leftBehind(ctx, p, r); err != nil {
		return err
	}
	return w.compare(ctx, p, r, hook)
}

// everything has the writers do something of each kind that has work behind it.
func everything(writer int, key string) (path string, body []byte) {
	switch {
	case writer < 2:
		return paysAndPosts(writer, key)
	case writer == 2 && strings.HasSuffix(key, "0"):
		return "/giveaways", fmt.Appendf(nil, `{"channel_id":"77","prize":"%s","winner_count":1,"ends_at":"%s"}`,
			key, time.Now().Add(3*time.Second).UTC().Format(time.RFC3339))
	case writer < 4:
		return "/cases", fmt.Appendf(nil, `{"user_id":"7%d","moderator_id":"8","type":"note","reason":"%s"}`, writer, key)
	}
	return paysAndPosts(writer, key)
}

// freeAddress is one on which nobody listens, so that a node can come back to it.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (p place) serveAt(ctx context.Context, address string) (*server, error) {
	return p.serve(ctx, append([]string{"GUILDHALL_HTTP_LISTEN=" + address}, drillEnv...)...)
}

// leftovers counts what only a node that is at work may hold, and what waits.
var leftovers = []struct{ what, query string }{
	{"leases of deliveries", `SELECT count(*) FROM webhook_deliveries WHERE lease_until IS NOT NULL`},
	{"deliveries that wait", `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`},
	{"attempts beside the log", `SELECT count(*) FROM webhook_deliveries WHERE unlogged IS NOT NULL`},
	{"endpoints that are due", `SELECT count(*) FROM webhook_schedule WHERE urgent OR releasing OR next_due < now() - interval '1 minute'`},
	{"messages without an outcome", `SELECT count(*) FROM chat_intents WHERE state <> 'sent'`},
	{"keys that are in use", `SELECT count(*) FROM idempotency_keys WHERE state = 'running'`},
	{"giveaways that have not ended", `SELECT count(*) FROM giveaways WHERE status <> 'ended'`},
	// One that ended before a worker came to post it is not posted any more.
	{"giveaways without their message", `SELECT count(*) FROM giveaways g WHERE message_id IS NULL
		AND EXISTS (SELECT FROM chat_intents i WHERE i.guild_id = g.guild_id AND i.id = g.post_id)`},
	{"giveaways without just one first draw", `SELECT count(*) FROM giveaways g
		WHERE (SELECT count(*) FROM giveaway_draws d WHERE d.guild_id = g.guild_id AND d.giveaway_id = g.id) <> 1`},
	{"jobs that have not ended", `SELECT count(*) FROM river_job WHERE state NOT IN ('completed', 'cancelled')`},
	{"transactions", `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
		AND xact_start < now() - interval '10 s'`},
}

// leftBehind waits for each of them to be none: a lease runs out within 20 s, and a
// job of a dead node is found within minutes.
func leftBehind(ctx context.Context, p place, r *report) error {
	pool, err := db.OpenSQL(p.databaseURL, "drill", 4)
	if err != nil {
		return err
	}
	defer pool.Close()
	begun := time.Now()
	var all sync.WaitGroup
	for _, l := range leftovers {
		all.Go(func() {
			n := -1
			none := awaited(ctx, 5*time.Minute, func() bool {
				err := pool.QueryRowContext(ctx, l.query).Scan(&n)
				return err == nil && n == 0
			})
			r.hold(none, "left behind are no %s, %.0f s after the last write (%d)", l.what, time.Since(begun).Seconds(), n)
		})
	}
	all.Wait()
	return nil
}

package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"guildhall/bench/rig"
)

// kills kills one of two nodes again and again, which pay, file cases, post messages,
// run giveaways and deliver, and starts it anew at the same address. Then it looks
// for what a dead node may have left behind.
func kills(p *place) {
	hook := p.Receiver()
	p.LoadText(oneTicket, guildA)
	p.Register(guildA, hook.URL)
	w := &writers{token: p.Token(guildA), request: everything}
	var nodes [2]*rig.Node
	for i := range nodes {
		nodes[i] = p.Serve()
		w.addresses = append(w.addresses, nodes[i].HTTP)
	}
	each := p.fetches(w.token, w.addresses, "economy.balance_changed", "case.created", "giveaway.ended")
	stop := w.begin(p, 8)
	times := sized(p, 20, 2)
	for k := range times {
		rig.Pause(p, sized(p, 3*time.Second, time.Second))
		nodes[k%2] = p.Restart(nodes[k%2])
	}
	stop()
	p.Say("%d kills", times)
	p.settled(w)
	p.leftBehind()
	p.compare(w, hook)
	each()
}

// everything has the writers do something of each kind that has work behind it.
func everything(writer int, key string) (path, body string) {
	switch {
	case writer == 2 && strings.HasSuffix(key, "0"):
		return "/giveaways", fmt.Sprintf(`{"channel_id":"77","prize":"%s","winner_count":1,"ends_at":"%s"}`,
			key, time.Now().Add(3*time.Second).UTC().Format(time.RFC3339))
	case writer == 2 || writer == 3:
		return "/cases", fmt.Sprintf(`{"user_id":"7%d","moderator_id":"8","type":"note","reason":"%s"}`, writer, key)
	}
	return paysAndPosts(writer, key)
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
func (p *place) leftBehind() {
	begun := time.Now()
	var all sync.WaitGroup
	for _, l := range leftovers {
		all.Go(func() {
			n := -1
			none := p.Await(5*time.Minute, func() bool { n = p.Count(l.query); return n == 0 })
			p.Hold(none, "left behind are no %s, %.0f s after the last write (%d)", l.what, time.Since(begun).Seconds(), n)
		})
	}
	all.Wait()
}

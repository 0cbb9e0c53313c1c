package main

import (
	_ "embed"
	"fmt"
	"strings"
	"time"

	"guildhall/bench/rig"
)

// kills kills one of two nodes again and again while they pay, create cases, post messages, run
// giveaways and deliver, and restarts it at the same address. Then it checks that dead nodes have
// left nothing unfinished.
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
	p.checkWrites(w)
	p.leftBehind()
	p.compare(w, hook)
	each()
}

// everything returns a write of each kind that causes background work.
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

//go:embed leftovers.sql
var leftovers string

// leftBehind waits until no unfinished work is left.
func (p *place) leftBehind() {
	begun := time.Now()
	var left []struct {
		What string
		N    int
	}
	none := p.Await(5*time.Minute, func() bool {
		left = nil
		p.Select(&left, leftovers)
		return len(left) == 0
	})
	p.Hold(none, "nothing is left behind %.0f s after the last write %v", time.Since(begun).Seconds(), left)
}

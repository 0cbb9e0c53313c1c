package main

import (
	"net/url"
	"time"

	"guildhall/bench/rig"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/embedded"
)

// failover kills the primary under two nodes that write, deliver and post, and promotes the standby
// at once, as a failover manager would. It starts its own servers.
func failover(p *place) {
	length := sized(p, 10*time.Second, time.Second)
	primary := p.Postgres(embedded.Config{TCP: true})
	p.Must(db.Migrate(p, primary.URL))
	standby := p.Postgres(embedded.Config{TCP: true, Of: primary})
	p = p.with(p.At(primary.URL))
	p.Exec(`ALTER SYSTEM SET synchronous_standby_names = '*'`)
	p.Exec(`SELECT pg_reload_conf()`)
	p.Hold(p.Becomes(time.Minute, 1, `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`),
		"the standby follows at each commit")
	other, err := url.Parse(standby.URL)
	p.Must(err)
	// The database URL lists two servers, of which one accepts writes.
	p = p.with(p.At(p.Through(func(u *url.URL) {
		u.Host += "," + other.Host
		u.RawQuery += "&target_session_attrs=read-write"
	}).URL))
	hook := p.Receiver()
	p.LoadText(oneTicket, guildA)
	p.Register(guildA, hook.URL)
	tokens := p.Tokens(guildA, 2)
	nodes := [2]*rig.Node{p.Serve(), p.Serve()}
	w := &writers{addresses: []string{nodes[0].HTTP, nodes[1].HTTP}, token: tokens[1], request: paysAndPosts}
	each := p.fetches(w.token, w.addresses, "economy.balance_changed")
	stop := w.begin(p, 8)
	rig.Pause(p, length)
	p.revokeFirst()
	killed := time.Now()
	p.Must(primary.Kill())
	p.Must(standby.Promote(p))
	promoted := time.Now()
	p.Hold(p.Await(time.Minute, func() bool { return !w.firstAfter(promoted).IsZero() }), "writes succeed again")
	rig.Pause(p, length)
	stop()

	p.Say("without service: %.2f s from the kill to the first write after it, of which the promotion took %.2f s",
		w.firstAfter(promoted).Sub(killed).Seconds(), promoted.Sub(killed).Seconds())
	p.checkWrites(w)
	for _, n := range nodes {
		p.refused(n, tokens[0])
	}
	p.compare(w, hook)
	each()
}

// revokeFirst revokes the oldest token of guild A.
func (p *place) revokeFirst() {
	all, err := auth.List(p, p.DB, guildA)
	p.Must(err)
	p.Must(auth.Revoke(p, p.DB, guildA, all[0].ID))
}

// refused checks that a token is refused as invalid.
func (p *place) refused(n *rig.Node, token string) {
	a := p.Send(n.HTTP, rig.Request("GET", "/me", token, nil))
	p.Hold(a.Status == 401, "a token that was revoked is refused (%d)", a.Status)
}

package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"guildhall/bench/rig"
)

// mirror keeps a copy of a guild's data only by fetching its events, while members are paid and
// cases are created. Nodes are killed, and so is the program with the copy: it loses the events
// that it has not saved in the copy by then.
func mirror(p *place) {
	p.LoadText(oneTicket, guildA)
	w := &writers{token: p.Token(guildA), request: paysManyAndFiles}
	var nodes [2]*rig.Node
	for i := range nodes {
		nodes[i] = p.Serve()
		w.addresses = append(w.addresses, nodes[i].HTTP)
	}
	c := &copier{p.fetcher(w.token, w.addresses, "economy.balance_changed", "case.created"), copied{}}
	c.Take = c.keep
	changes := func() int { return p.Count(`SELECT count(*) FROM webhook_events`) }
	stop := w.begin(p, 8)
	kills := 0
	for ; changes() < sized(p, 100_000, 2000) || kills < 4; kills++ {
		kill := c.begin()
		rig.Pause(p, time.Duration(500+kills%7*200)*time.Millisecond)
		kill()
		if kills%2 == 1 {
			nodes[kills/2%2] = p.Restart(nodes[kills/2%2])
		}
	}
	stop()
	p.checkWrites(w)
	kill := c.begin()
	all := p.Becomes(10*time.Minute, 0, `SELECT count(*) FROM webhook_deliveries WHERE state <> 'delivered'`)
	kill()
	p.Hold(all, "each of %d events is acknowledged, after %d kills of the copy's program and %d of nodes", changes(), kills, kills/2)
	c.compare()
}

// paysManyAndFiles pays fifty members in one call, or creates a case.
func paysManyAndFiles(writer int, key string) (path, body string) {
	if writer < 2 {
		return "/cases", fmt.Sprintf(`{"user_id":"7%d","moderator_id":"8","type":"note","reason":"%s"}`, writer, key)
	}
	pays := make([]string, 50)
	for i := range pays {
		pays[i] = fmt.Sprintf(`{"user_id":"7%d","delta":%d}`, (writer*17+i*(len(key)+1))%90, 1+i%3)
	}
	return "/economy/adjustments", `{"adjustments":[` + strings.Join(pays, ",") + `]}`
}

// copier is the program with the copy.
type copier struct {
	*fetcher
	kept copied // the copy as of the last save, which survives a kill
}

// copied holds balances by member and case reasons by id, each with the instant of the event it
// came from.
type copied map[string]struct{ Is, At string }

// keep applies events to the copy, unless the program is killed meanwhile.
func (c *copier) keep(ctx context.Context, events []rig.Event) bool {
	is := maps.Clone(c.kept)
	for _, e := range events {
		name, value := "case "+e.Data.ID, e.Data.Reason
		if e.Type == "economy.balance_changed" {
			name, value = "wallet "+e.Data.UserID, fmt.Sprint(e.Data.Balance)
		}
		if e.Timestamp > is[name].At { // events arrive in any order and more than once
			is[name] = struct{ Is, At string }{value, e.Timestamp}
		}
	}
	if ctx.Err() != nil {
		return false
	}
	c.kept = is
	return ctx.Err() == nil
}

// compare compares the copy with the database.
func (c *copier) compare() {
	var rows []struct{ Name, Value string }
	c.Select(&rows, `
		SELECT 'wallet ' || user_id AS name, balance::text AS value FROM wallets UNION ALL SELECT 'case ' || id, reason FROM cases`)
	there, here := map[string]string{}, map[string]string{}
	for _, row := range rows {
		there[row.Name] = row.Value
	}
	for name, one := range c.kept {
		here[name] = one.Is
	}
	c.Hold(maps.Equal(there, here) && len(there) > 0, "the copy of %d wallets and cases equals the database's %d", len(here), len(there))
}

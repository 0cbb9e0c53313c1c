package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"guildhall/bench/rig"
)

// mirror keeps a copy of a guild by fetching its events and nothing else, while members
// are paid and cases filed. Nodes are killed, and so is the program that keeps the copy:
// what it has not written to its file by then is gone.
func mirror(p *place) {
	p.LoadText(oneTicket, guildA)
	w := &writers{token: p.Token(guildA), request: paysManyAndFiles}
	var nodes [2]*rig.Node
	for i := range nodes {
		w.addresses[i] = p.freeAddress()
		nodes[i] = p.Serve("GUILDHALL_HTTP_LISTEN=" + w.addresses[i])
	}
	var made struct{ ID string }
	body := `{"delivery":"pull","events":["economy.balance_changed","case.created"]}`
	p.Ask(w.addresses[0], rig.Request("POST", "/webhooks", w.token, []byte(body)), &made)
	c := &copier{place: p, file: filepath.Join(p.Folder(), "copy"), path: "/webhooks/" + made.ID + "/events", token: w.token, addresses: w.addresses}
	changes := func() int { return p.Count(`SELECT count(*) FROM webhook_events`) }
	stop := w.begin(p, 8)
	kills := 0
	for ; changes() < sized(p, 100_000, 2000) || kills < 4; kills++ {
		kill := c.begin()
		rig.Pause(p, time.Duration(500+kills%7*200)*time.Millisecond)
		kill()
		if kills%2 == 1 {
			at := kills / 2 % 2
			p.Must(nodes[at].Kill())
			nodes[at] = p.Serve("GUILDHALL_HTTP_LISTEN=" + w.addresses[at])
		}
	}
	stop()
	p.settled(w)
	kill := c.begin()
	all := p.Await(10*time.Minute, func() bool { return p.Count(`SELECT count(*) FROM webhook_deliveries WHERE state <> 'delivered'`) == 0 })
	kill()
	p.Hold(all, "each of %d events is acknowledged, after %d kills of the copy's program and %d of nodes", changes(), kills, kills/2)
	c.compare()
}

// paysManyAndFiles has the writers pay fifty members in a call, or file a case.
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

// copier is the program that keeps a copy.
type copier struct {
	*place
	file, path, token string
	addresses         [2]string
}

// copied is what it keeps: balances by member and reasons of cases by id, each with the
// instant of the event that told it.
type copied map[string]struct{ Is, At string }

// kept is the copy as it stands in the file.
func (c *copier) kept() copied {
	is := copied{}
	text, err := os.ReadFile(c.file)
	if os.IsNotExist(err) {
		return is
	}
	c.Must(err)
	c.Must(json.Unmarshal(text, &is))
	return is
}

// begin starts the program. The function that it returns kills it.
func (c *copier) begin() (kill func()) {
	life, end := context.WithCancel(c)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.live(life)
	}()
	return func() {
		end()
		<-ended
	}
}

// live fetches, writes the copy and acknowledges, in this order, until it is killed
// between any two steps. Either node will do.
func (c *copier) live(ctx context.Context) {
	is := c.kept()
	at := [2]*rig.Caller{{Address: c.addresses[0]}, {Address: c.addresses[1]}}
	defer at[0].Close()
	defer at[1].Close()
	for try := 0; ctx.Err() == nil; try++ {
		if a := at[try%2].Send(ctx, rig.Request("POST", c.path+"/pull", c.token, []byte(`{"wait":1,"lease":10}`))); !rig.OK(a) {
			rig.Pause(ctx, 50*time.Millisecond)
			continue
		}
		var events []struct {
			ID, Type, Timestamp string
			Data                struct {
				ID, Reason string
				UserID     string `json:"user_id"`
				Balance    int64
			}
		}
		c.Must(at[try%2].Data(&events))
		ids := make([]string, len(events))
		for i, e := range events {
			ids[i] = e.ID
			name, value := "case "+e.Data.ID, e.Data.Reason
			if e.Type == "economy.balance_changed" {
				name, value = "wallet "+e.Data.UserID, fmt.Sprint(e.Data.Balance)
			}
			if e.Timestamp > is[name].At { // they come in any order, and again
				is[name] = struct{ Is, At string }{value, e.Timestamp}
			}
		}
		if len(events) > 0 && c.write(ctx, is) { // else they come again, as where this fails
			at[try%2].Send(ctx, rig.Request("POST", c.path+"/ack", c.token, fmt.Appendf(nil, `{"event_ids":["%s"]}`, strings.Join(ids, `","`))))
		}
	}
}

// write replaces the file, unless the program is killed before.
func (c *copier) write(ctx context.Context, is copied) bool {
	text, err := json.Marshal(is)
	c.Must(err)
	c.Must(os.WriteFile(c.file+".new", text, 0o600))
	if ctx.Err() != nil {
		return false
	}
	c.Must(os.Rename(c.file+".new", c.file))
	return ctx.Err() == nil
}

// compare holds the copy against the database.
func (c *copier) compare() {
	var rows []struct{ Name, Value string }
	c.Select(&rows, `SELECT 'wallet ' || user_id AS name, balance::text AS value FROM wallets UNION ALL SELECT 'case ' || id, reason FROM cases`)
	there, here := map[string]string{}, map[string]string{}
	for _, row := range rows {
		there[row.Name] = row.Value
	}
	for name, one := range c.kept() {
		here[name] = one.Is
	}
	c.Hold(maps.Equal(there, here) && len(there) > 0, "the copy of %d wallets and cases equals the database's %d", len(here), len(there))
}

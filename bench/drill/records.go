package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"guildhall/bench/rig"
)

// bot is a bot with a key of every guild.
type bot struct {
	*place
	address, key string
	wallets      int // number of wallets of the guild in which it writes
}

// request returns a request in a guild.
func (b *bot) request(guild, method, path string, body any) []byte {
	text, err := json.Marshal(body)
	b.Must(err)
	if body == nil {
		text = nil
	}
	return rig.Request(method, path, b.key, text, "Guild-Id: "+guild)
}

// chronicle holds records that a bot writes again and again, with the time of each record's last
// change.
type chronicle struct {
	*bot
	caller rig.Caller
	last   map[string]string // instant, by kind of record and user id
	list   []map[string]any
}

func (b *bot) chronicle() *chronicle {
	return &chronicle{bot: b, caller: rig.Caller{Address: b.address}, last: map[string]string{}}
}

// add adds n records of a kind; the ith has points + i as its counter.
func (c *chronicle) add(n int, kind, counter string, points int) {
	for i := range n {
		user := fmt.Sprint(800000000000000000 + i)
		r := map[string]any{"record": kind, "user_id": user, counter: points + i}
		if at := c.last[kind+user]; at != "" {
			r["if_updated_at"] = at
		}
		c.list = append(c.list, r)
	}
}

// send writes the added records. A call that ctx interrupts does not count.
func (c *chronicle) send(ctx context.Context, guild string, seen *rig.Tally) {
	list := c.list
	c.list = nil
	a := c.caller.Send(ctx, c.request(guild, "POST", "/records", map[string]any{"records": list}))
	if ctx.Err() != nil {
		return
	}
	seen.Add(a)
	var answers []struct {
		ID        string  `json:"id"`
		UpdatedAt *string `json:"updated_at"`
	}
	c.Need(rig.OK(a), "a call with %d records is answered %d %s", len(list), a.Status, a.Code)
	c.Must(c.caller.Data(&answers))
	for i, answer := range answers {
		if answer.UpdatedAt != nil {
			c.last[fmt.Sprint(list[i]["record"])+answer.ID] = *answer.UpdatedAt
		}
	}
}

// write writes wallets, levels and cases, 500 in a call, without pause until ctx ends.
func (b *bot) write(ctx context.Context, seen *rig.Tally) {
	c := b.chronicle()
	defer c.caller.Close()
	for round := 0; ctx.Err() == nil; round++ {
		c.add(225, "wallet", "balance", round*7)
		c.add(225, "level", "total_xp", round*90)
		for i := range 50 {
			c.list = append(c.list, map[string]any{
				"record": "case", "id": fmt.Sprint("c-", i), "user_id": fmt.Sprint(800000000000000000 + i), "moderator_id": "7",
				"type": "warn", "reason": fmt.Sprint("round ", round),
			})
		}
		c.send(ctx, guildA, seen)
	}
}

// deepPage reads the middle of a leaderboard again and again.
func (b *bot) deepPage(ctx context.Context, seen *rig.Tally) {
	page := b.request(guildA, "GET", fmt.Sprintf("/economy/leaderboard?per_page=25&page=%d", max(1, b.wallets/50)), nil)
	seen.Run(ctx, rig.Load{Address: b.address, Connections: 1, Rate: 20, Request: func(_, _ int) []byte { return page }})
}

// records makes a bot write 500 records in a call without pause in a large guild with two listening
// endpoints, and then change levels in many guilds. Another guild must hardly notice.
func records(p *place) {
	length := sized(p, 20*time.Second, 3*time.Second)
	b := &bot{place: p, wallets: sized(p, 1_000_000, 2000)}
	p.loadGuilds(map[string]int{guildA: b.wallets, guildB: 1000})
	node := p.Serve("GUILDHALL_RATE_BOT=off")
	b.address, b.key = node.HTTP, p.Key()
	for range 2 {
		p.Ask(b.address, b.request(guildA, "POST", "/webhooks", map[string]any{"delivery": "pull", "events": []string{
			"economy.balance_changed", "xp.level_up", "xp.level_down", "case.created", "case.updated",
		}}), nil)
	}
	v := p.victim(node)
	var pagesAlone, pagesBeside, calls rig.Tally
	base := v.live(length, func(ctx context.Context) { b.deepPage(ctx, &pagesAlone) })
	v.judge("alone", base)
	beside := v.live(length, func(ctx context.Context) {
		stop := b.Start(1, func(context.Context, int) { b.deepPage(ctx, &pagesBeside) })
		b.write(ctx, &calls)
		stop()
	})
	v.judge("beside records", beside)
	// Measures for comparison a busy CPU core: a bot without pauses keeps one core busy, however
	// little a call costs.
	busy := v.live(length, func(ctx context.Context) {
		_ = exec.CommandContext(ctx, "sh", "-c", "while :; do :; done").Run() // the end of ctx stops it
	})
	p.Say("calls with 500 records: %v", &calls)
	p.Say("a deep page: p95 %.1f ms alone, %.1f ms beside them", pagesAlone.Ms(0.95), pagesBeside.Ms(0.95))
	alone, with := base.calls.Ms(0.95), beside.calls.Ms(0.95)
	p.Say("another guild's p95: %.1f ms alone, %.1f ms beside them, %.1f ms beside a core that only counts (%d cores)",
		alone, with, busy.calls.Ms(0.95), runtime.NumCPU())
	p.Hold(calls.Count(rig.OK) > 1, "the bot's calls succeed: %v", &calls)
	p.bound(calls.Ms(0.95) < 150, "500 records take less than 150 ms (p95 %.1f)", calls.Ms(0.95))
	p.bound(with <= alone*1.1, "another guild's p95 moves by a tenth at most")
	b.manyLevels(length)
}

// manyLevels changes several levels a second in each of many guilds, with one call a second for
// each guild.
func (b *bot) manyLevels(length time.Duration) {
	guilds, rate := sized(b.place, 100, 5), sized(b.place, 50, 20)
	name := func(i int) string { return fmt.Sprint(400000000000000000 + i) }
	for i := range guilds {
		b.Ask(b.address, b.request(name(i), "POST", "/records", map[string]any{"records": []any{map[string]any{"record": "guild"}}}), nil)
	}
	var calls rig.Tally
	stop := b.Start(guilds, func(ctx context.Context, i int) {
		c := b.chronicle()
		defer c.caller.Close()
		for due, round := time.Duration(i)*time.Second/time.Duration(guilds), 0; rig.Pause(ctx, due); round++ {
			begun := time.Now()
			c.add(rate, "level", "total_xp", round*15)
			c.send(ctx, name(i), &calls)
			due = time.Second - time.Since(begun)
		}
	})
	rig.Pause(b, length)
	stop()
	due := guilds * int(length/time.Second)
	b.Say("%d guilds, %d level changes a second each: of %d calls due %v", guilds, rate, due, &calls)
	b.Hold(calls.AllOK(), "every change of levels succeeds: %v", &calls)
	b.bound(calls.N() >= due*9/10, "%d level changes a second in each of %d guilds are kept up with", rate, guilds)
}

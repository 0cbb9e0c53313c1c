package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"guildhall/bench/rig"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/embedded"
)

// The stages of the drill.
const (
	fromDump  = "from a dump"
	toInstant = "from a base backup and the write-ahead log, to an instant"
)

// restore takes a backup while deliveries wait, continues, restores the backup, and checks what
// came back: a revoked token, deliveries that had arrived, events that were fetched. Then it takes
// the installation into service as docs/operate/backup.md describes.
func restore(p *place) {
	for _, stage := range []struct {
		name string
		do   func(*place)
	}{{fromDump, dumped}, {toInstant, recovered}} {
		if p.wants(stage.name) {
			p.Part(func(part *rig.Place) {
				part.Say("%s:", stage.name)
				stage.do(p.with(part))
			})
		}
	}
}

// dumped restores a dump into a new database of the same server.
func dumped(p *place) {
	l, file := p.beginLife(), filepath.Join(p.Folder(), "dump")
	l.goThrough(func() {
		begun := time.Now()
		p.client("pg_dump", "--format", "custom", "--file", file)
		p.Say("the dump of %d writes whose events wait took %.1f s", l.writes, time.Since(begun).Seconds())
	})
	fresh := p.with(p.empty())
	fresh.client("pg_restore", "--exit-on-error", file)
	l.intoServiceAgain(fresh)
}

// recovered restores an old base backup and replays the write-ahead log up to an instant. It starts
// its own servers.
func recovered(p *place) {
	primary := p.Postgres(embedded.Config{TCP: true, Archive: true})
	p.Must(db.Migrate(p, primary.URL))
	base, err := primary.BaseBackup(p)
	p.Must(err)
	p = p.with(p.At(primary.URL))
	l := p.beginLife()
	var until time.Time
	l.goThrough(func() { p.Get(&until, `SELECT clock_timestamp()`) })
	var last string
	p.Get(&last, `SELECT pg_walfile_name(pg_switch_wal())`)
	archived := p.Becomes(time.Minute, 1, `SELECT count(*) FROM pg_stat_archiver WHERE last_archived_wal >= $1`, last)
	p.Hold(archived, "what was written gets into the archive")
	begun := time.Now()
	past := p.Postgres(embedded.Config{TCP: true, From: &embedded.Recovery{Of: primary, Base: base, Until: until}})
	p.Say("recovery to %s took %.1f s", until.Format(time.RFC3339Nano), time.Since(begun).Seconds())
	l.intoServiceAgain(p.with(p.At(past.URL)))
}

// life is what happened to an installation before and after its backup.
type life struct {
	*place
	hook   *rig.Receiver
	tokens []string
	writes int            // writes before the backup, and as many after it
	taken  time.Time      // when the backup was taken
	before map[string]int // events that had arrived before the restore
	path   string         // path of the events of the guild's pull endpoint
	kept   []string       // events that waited at the pull endpoint when the backup was taken
}

// beginLife creates a guild with two tokens and a receiver.
func (p *place) beginLife() *life {
	l := &life{place: p, hook: p.Receiver(), writes: sized(p, 2000, 20)}
	p.LoadText(oneTicket, guildA)
	p.Register(guildA, l.hook.URL)
	l.tokens = p.Tokens(guildA, 2)
	return l
}

// goThrough writes while no node delivers and a program fetches half of the events, takes the
// backup, and continues: waiting events arrive or are fetched, the first token is revoked, a third
// token is created, and the second writes.
func (l *life) goThrough(take func()) {
	silent := l.Serve("GUILDHALL_ROLES=api")
	f := l.fetcher(l.tokens[0], []string{silent.HTTP}, "economy.balance_changed")
	kill := f.takes(l.writes / 2)
	done := l.pay(silent, l.tokens[0], "before", l.writes)
	kill()
	l.Must(silent.Stop())
	l.path = f.Path
	l.Select(&l.kept, `SELECT event_id FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 'pending'`, f.endpoint())
	l.taken = time.Now().UTC()
	take()
	n := l.Serve()
	done += l.pay(n, l.tokens[1], "since", l.writes)
	l.Hold(done == 2*l.writes, "%d of %d writes before and after the backup succeed", done, 2*l.writes)
	arrived := func() bool { return len(l.hook.Events()) == 2*l.writes }
	l.Hold(l.Await(2*time.Minute, arrived), "%d of %d events arrive", len(l.hook.Events()), 2*l.writes)
	l.fetchesAll(l.place, n, l.tokens[1])
	l.revokeFirst()
	l.Token(guildA)
	l.before = l.hook.Events()
	l.Must(n.Stop())
}

// intoServiceAgain takes the restored installation into service and checks what happens to
// deliveries and tokens from before and after its backup.
func (l *life) intoServiceAgain(fresh *place) {
	out, err := fresh.Output("restore", "check", "--since", l.taken.Format(time.RFC3339Nano), "--old-database-url", l.URL)
	l.Say("%s", out)
	l.Hold(err != nil && strings.Contains(out, "revived  token") && strings.Contains(out, "lost     token"),
		"restore check names the token that works again and the one that is gone")
	l.countWrites(fresh)
	_, err = fresh.Output("token", "revoke", "--all", "--every-guild")
	l.Hold(err == nil, "every token is revoked")
	out, err = fresh.Output("doctor", "--books", "--webhook-allow", rig.Loopback)
	l.Hold(err == nil, "doctor finds nothing failed\n%s", out)

	n := fresh.Serve()
	for _, t := range l.tokens {
		l.refused(n, t)
	}
	token := fresh.Token(guildA)
	l.Hold(l.pay(n, token, "after", 1) == 1, "a token made since writes")
	again := func() (n int) {
		for id, times := range l.hook.Events() {
			if l.before[id] > 0 && times > l.before[id] {
				n++
			}
		}
		return n
	}
	l.Hold(l.Await(time.Minute, func() bool { return again() == l.writes }),
		"%d of %d deliveries that waited in the backup came again under the ids they had", again(), l.writes)
	fewer := func() int { return len(l.hook.Events()) - len(l.before) }
	l.Hold(l.Await(time.Minute, func() bool { return fewer() == 1 }), "of new events there is the one of the write since (%d)", fewer())

	got := l.fetchesAll(fresh, n, token)
	came := len(l.kept) - lacking(l.kept, got)
	l.Hold(came > 0 && came == len(l.kept) && len(got) == came+1,
		"%d of %d events that waited in the backup are fetched again, and one that is new (%d)", came, len(l.kept), len(got)-came)
}

// fetchesAll fetches and acknowledges all waiting events of a program and returns them.
func (l *life) fetchesAll(at *place, n *rig.Node, token string) map[string]bool {
	f := at.fetcherOf(l.path, token, []string{n.HTTP})
	kill := f.takes(math.MaxInt)
	l.Hold(f.acknowledged(), "what is kept for a program that fetches is acknowledged")
	return kill()
}

// countWrites checks that the writes which were acknowledged before the backup exist.
func (l *life) countWrites(fresh *place) {
	var have struct{ Before, Twice, Since int }
	fresh.Get(&have, `
		SELECT count(DISTINCT reason) FILTER (WHERE reason LIKE 'before-%') AS before,
		       count(*) FILTER (WHERE reason LIKE 'before-%') - count(DISTINCT reason) FILTER (WHERE reason LIKE 'before-%') AS twice,
		       count(*) FILTER (WHERE reason LIKE 'since-%') AS since
		FROM ledger_entries`)
	l.Hold(have.Before == l.writes && have.Twice == 0 && have.Since == 0,
		"each write acknowledged before the instant is there once (%d of %d, %d twice), none made since (%d)",
		have.Before, l.writes, have.Twice, have.Since)
}

// pay sends that many keyed writes and returns how many succeeded.
func (p *place) pay(n *rig.Node, token, key string, writes int) int {
	return new(rig.Tally).Run(p, rig.Load{Address: n.HTTP, Connections: 1, Total: writes, Request: func(_, i int) []byte {
		name := fmt.Sprintf("%s-%d", key, i)
		body := fmt.Appendf(nil, `{"user_id":"7","delta":1,"reason":"%s"}`, name)
		return rig.Request("POST", "/economy/adjust", token, body, "Idempotency-Key: "+name)
	}}).Count(rig.OK)
}

// client runs a Postgres client program on the database.
func (p *place) client(name string, args ...string) {
	programs, err := embedded.Find(p, 0)
	p.Must(err)
	p.Tool(append([]string{filepath.Join(programs.Dir, name), "--dbname", p.URL}, args...)...)
}

// empty creates a new database on the same server.
func (p *place) empty() *rig.Place {
	name := "guildhall_drill_" + strings.ToLower(rand.Text())
	p.Exec(`CREATE DATABASE ` + name + ` TEMPLATE template0`)
	p.Cleanup(func() error {
		_, err := p.SQL.ExecContext(context.WithoutCancel(p), `DROP DATABASE `+name+` WITH (FORCE)`)
		return err
	})
	return p.At(p.Through(func(u *url.URL) { u.Path = "/" + name }).URL)
}

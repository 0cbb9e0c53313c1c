package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"guildhall/bench/rig"
	"guildhall/internal/base/db"
)

// upgrade runs a node of this program under load. A made-up next release migrates, its node joins,
// this program's node is stopped, and the next release runs the contracting migration that waited
// for that. No caller may notice.
func upgrade(p *place) {
	u := &upgrading{place: p.with(p.empty()), members: sized(p, 20_000, 5000), front: p.balancer()}
	old := *u.Place
	u.Program = p.nextRelease()
	u.hook = u.Receiver()
	u.token = u.furnish(&old)
	// Writes of money and messages have idempotency keys, and changes of XP can be added up.
	at := []string{u.front.Listener.Addr().String(), u.front.Listener.Addr().String()}
	user := func() int { return member(rand.IntN(u.members)) }
	u.money = &writers{name: "money-", addresses: at, token: u.token, again: true, request: func(writer int, key string) (path, body string) {
		if writer < 2 {
			return paysAndPosts(writer, key)
		}
		return "/economy/adjust", fmt.Sprintf(`{"user_id":"%d","delta":%d,"reason":"%s"}`, user(), 1+rand.IntN(900), key)
	}}
	u.xp = &writers{name: "xp-", addresses: at, token: u.token, again: true, request: func(_ int, _ string) (path, body string) {
		return "/levelling/adjust", fmt.Sprintf(`{"user_id":"%d","delta":1}`, user())
	}}
	u.stages(&old)
}

// upgrading is the state that the stages share.
type upgrading struct {
	*place
	members int // members with a wallet and a level
	token   string
	hook    *rig.Receiver
	front   *balancer

	money, xp *writers
	reads     rig.Tally
}

// furnish migrates an empty database, fills it and registers the receiver, all by the old program's
// commands. It returns a token.
func (u *upgrading) furnish(old *rig.Place) string {
	var file bytes.Buffer
	fmt.Fprintf(&file, oneTicket, guildA)
	for i := range u.members {
		fmt.Fprintf(&file, `{"record":"wallet","guild_id":"%s","user_id":"%d","balance":%d}`+"\n", guildA, member(i), 1+i%977)
		fmt.Fprintf(&file, `{"record":"level","guild_id":"%s","user_id":"%d","total_xp":%d}`+"\n", guildA, member(i), 1+i%1013)
	}
	run := func(input io.Reader, args ...string) []byte {
		cmd := old.Command(args...)
		cmd.Stdin = input
		out, err := cmd.CombinedOutput()
		u.Need(err == nil, "%q of the old program: %w: %s", args, err, out)
		return out
	}
	run(nil, "migrate")
	run(&file, "import", "-")
	run(nil, "webhook", "add", "--guild", guildA, "--url", u.hook.URL, "--all-events", "--webhook-allow", rig.Loopback)
	var made struct{ Token string }
	u.Must(json.Unmarshal(run(nil, "token", "create", "--guild", guildA, "--name", "drill", "--all-scopes", "--json"), &made))
	return made.Token
}

// load sends writes and reads through the balancer until stop is called.
func (u *upgrading) load() (stop func()) {
	money, xp := u.money.begin(u.place, 6), u.xp.begin(u.place, 3)
	reads := u.Start(1, func(ctx context.Context, _ int) {
		u.reads.Run(ctx, rig.Load{Address: u.money.addresses[0], Connections: 3, Rate: 600, Request: u.read})
	})
	return func() {
		reads()
		money()
		xp()
	}
}

// read returns the request of a read.
func (u *upgrading) read(_, n int) []byte {
	deep := max(1, u.members/25)
	return rig.Request("GET", []string{
		"/me", "/guild", "/tickets", "/tickets/the-ticket/messages", "/cases", "/giveaways", "/webhooks",
		fmt.Sprint("/economy/wallet/", member(n%u.members)), "/economy/leaderboard", fmt.Sprint("/economy/leaderboard?page=", deep),
		"/economy/ledger", fmt.Sprint("/levelling/user/", member(n%u.members)), fmt.Sprint("/levelling/leaderboard?page=", deep),
	}[n%13], u.token, nil)
}

// stages runs the stages of the upgrade.
func (u *upgrading) stages(old *rig.Place) {
	length := sized(u.place, 10*time.Second, time.Second)
	before := old.Serve()
	u.watch(before, &u.front.old)
	stop := u.load()
	rig.Pause(u, length)
	u.migrate("while the old node serves")
	rig.Pause(u, length)
	after := u.Serve()
	u.watch(after, &u.front.new)
	u.unfinished(after)
	alone := u.front.old.served.Load()
	rig.Pause(u, length)
	stop()
	beside, taken := u.front.old.served.Load()-alone, u.front.new.served.Load()
	u.Hold(beside > 0 && taken > 0, "both nodes serve side by side (the old one %d, the new one %d requests)", beside, taken)
	u.comparePages("old", before)
	u.comparePages("new", after)

	stop = u.load()
	begun := time.Now()
	u.Must(before.Stop())
	u.Say("the old node is stopped after %.1f s", time.Since(begun).Seconds())
	u.finishMigrating(old)
	each := u.fetches(u.token, u.money.addresses, "economy.balance_changed")
	rig.Pause(u, length)
	stop()
	u.comparePages("remaining", after)
	u.judge() // while the new node still sends deliveries
	each()
}

// migrate runs the next release's migrations under load and returns the command's output.
func (u *upgrading) migrate(when string) string {
	begun := time.Now()
	out, err := u.Output("migrate")
	u.Need(err == nil, "migrate %s: %w: %s", when, err, out)
	u.Say("migrate %s took %.1f s: %s", when, time.Since(begun).Seconds(), strings.TrimSpace(out))
	return out
}

// unfinished checks that the next release says what its contracting migration waits for: in its
// log, in doctor, and in migrate, which stops there.
func (u *upgrading) unfinished(n *rig.Node) {
	log := n.Log()
	u.Hold(strings.Count(log, "unfinished") == 1, "the new node's log says once that the upgrade is unfinished (%d times)", strings.Count(log, "unfinished"))
	doctor, _ := u.Output("doctor") // fails because of other findings
	for name, out := range map[string]string{"doctor": doctor, "migrate": u.migrate("once more")} {
		u.Hold(strings.Contains(out, "unfinished") && strings.Contains(out, "node "), "%s says that it waits for the old node", name)
	}
	kept := u.Count(`SELECT count(*)::bigint FROM pg_constraint WHERE conname = $1`, contracted)
	u.Hold(kept == 1, "the contracting migration has not run")
}

// finishMigrating runs the contracting migration once the old node has ended, which the database
// may notice some seconds late.
func (u *upgrading) finishMigrating(old *rig.Place) {
	var out string
	done := u.Await(time.Minute, func() bool {
		out = u.migrate("without the old node")
		return !strings.Contains(out, "unfinished") || !rig.Pause(u, time.Second)
	})
	kept := u.Count(`SELECT count(*)::bigint FROM pg_constraint WHERE conname = $1`, contracted)
	u.Hold(done && kept == 0 && strings.Contains(out, fmt.Sprint(db.SchemaVersion()+2)), "the schema is the next release's at the end: %s", out)
	out, err := old.Output("migrate")
	u.Hold(err != nil && strings.Contains(out, db.ErrProgramTooOld.Error()), "the old program does not run any more: %s", out)
}

// judge compares the responses to callers with the database and with the events that have arrived.
func (u *upgrading) judge() {
	for _, w := range []*writers{u.money, u.xp} {
		u.Say("writes of %s*:", w.name)
		u.checkWrites(w)
		u.Hold(w.responses.Count(rig.Failed) == 0, "no write is answered with 5xx, or not at all (%d)", w.responses.Count(rig.Failed))
		u.Hold(w.notReplayed.Load() == 0, "each is answered again when it is sent again (%d were not)", w.notReplayed.Load())
	}
	u.Say("reads: %v", &u.reads)
	u.Hold(u.reads.AllOK(), "each read succeeds (%d of %d)", u.reads.Count(rig.OK), u.reads.N())
	want := len(u.xp.done)
	for i := range u.members {
		want += 1 + i%1013
	}
	have := u.Count(`SELECT sum(total_xp)::bigint FROM levels WHERE guild_id = $1`, guildA)
	u.Hold(have == want, "the acknowledged XP is there once (%d, want %d)", have, want)
	u.compare(u.money, u.hook)
}

// comparePages compares a node's leaderboard pages with the rows while there are no writes.
func (u *upgrading) comparePages(which string, n *rig.Node) {
	const size = 25
	for path, query := range map[string]string{
		"/economy/leaderboard":   `SELECT user_id FROM wallets WHERE guild_id = $1 ORDER BY balance DESC, length(user_id), user_id`,
		"/levelling/leaderboard": `SELECT user_id FROM levels WHERE guild_id = $1 ORDER BY total_xp DESC, length(user_id), user_id`,
	} {
		var want []string
		u.Select(&want, query, guildA)
		last, wrong := len(want)/size, 0 // pages that are full
		for _, page := range []int{1, 2, last / 3, last / 2, last} {
			var got []struct {
				UserID string `json:"user_id"`
			}
			u.Ask(n.HTTP, rig.Request("GET", fmt.Sprintf("%s?page=%d&per_page=%d", path, page, size), u.token, nil), &got)
			wrong += size - len(got)
			for i, row := range got {
				if row.UserID != want[(page-1)*size+i] {
					wrong++
				}
			}
		}
		u.Hold(wrong == 0, "pages of %s by the %s node are right up to number %d (%d rows are not)", path, which, last, wrong)
	}
}

// contracted is the constraint that the next release's contracting migration drops.
const contracted = "cases_reason_length"

// nextRelease builds a made-up next release, this source with one more ordinary and one contracting
// migration, and returns the program's path.
func (p *place) nextRelease() (program string) {
	tree, err := exec.CommandContext(p, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	p.Need(err == nil, "find the source tree: %w", err)
	folder := p.Folder()
	replace := make(map[string]string)
	for name, text := range map[string]string{
		fmt.Sprintf("%04d_next.sql", db.SchemaVersion()+1):          "-- +goose Up\nALTER TABLE cases ADD COLUMN next text;\n",
		fmt.Sprintf("contract/%04d_next.sql", db.SchemaVersion()+2): "-- +goose Up\nALTER TABLE cases DROP CONSTRAINT " + contracted + ";\n",
	} {
		file := filepath.Join(folder, strings.ReplaceAll(name, "/", "-"))
		p.Must(os.WriteFile(file, []byte(text), 0o600))
		replace[filepath.Join(strings.TrimSpace(string(tree)), "migrations", name)] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	p.Must(err)
	p.Must(os.WriteFile(filepath.Join(folder, "overlay.json"), overlay, 0o600))
	program = filepath.Join(folder, "guildhall")
	out, err := exec.CommandContext(p, "go", "build", "-overlay", filepath.Join(folder, "overlay.json"),
		"-ldflags", "-s -w -X main.version=next", "-o", program, "guildhall/cmd/guildhall").CombinedOutput()
	p.Need(err == nil, "build the next release: %w: %s", err, out)
	return program
}

// balancer is a load balancer that sends each request to a node that is ready. It never sends a
// request twice.
type balancer struct {
	*httptest.Server
	old, new backend
}

// backend is a node behind the balancer.
type backend struct {
	ready  atomic.Pointer[rig.Node] // nil while the node is not ready
	served atomic.Int64
}

func (p *place) balancer() *balancer {
	b := &balancer{}
	b.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Header.Set("X-Forwarded-Proto", "https")
			for _, i := range rand.Perm(2) {
				to := []*backend{&b.old, &b.new}[i]
				if n := to.ready.Load(); n != nil {
					to.served.Add(1)
					r.SetURL(&url.URL{Scheme: "http", Host: n.HTTP})
					return
				}
			}
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
		ErrorLog:  log.New(io.Discard, "", 0), // callers of a node that stops get a 502
	})
	p.Cleanup(func() error { b.Close(); return nil })
	return b
}

// watch polls a node's readiness ten times a second, and returns once the node is ready.
func (p *place) watch(n *rig.Node, b *backend) {
	p.Start(1, func(ctx context.Context, _ int) {
		for going := true; going; going = rig.Pause(ctx, 100*time.Millisecond) {
			if n.Ready(ctx) {
				b.ready.Store(n)
			} else {
				b.ready.Store(nil)
			}
		}
	})
	p.Await(time.Minute, func() bool { return b.ready.Load() != nil })
}

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"guildhall/internal/base/db"
)

type upgradeSize struct {
	members int           // with a wallet and a level each
	length  time.Duration // of each stage
}

var fullUpgrade = upgradeSize{members: 20_000, length: 10 * time.Second}

// upgraded begins with a node of the last release on its own schema, under load.
// This program migrates, its node comes in beside, the old one is stopped, and
// what the migrations have left for then is done. No caller may notice.
func upgraded(ctx context.Context, p place, r *report, size upgradeSize) (err error) {
	old, remove, err := p.released(ctx)
	if err != nil {
		return err
	}
	defer remove()
	p, drop, err := p.empty(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	old.databaseURL = p.databaseURL
	hook := newReceiver()
	defer hook.Close()
	token, err := old.furnish(ctx, hook, size.members)
	if err != nil {
		return err
	}
	u := &upgrade{place: p, old: old, report: r, size: size, token: token, hook: hook, front: newBalancer()}
	defer u.front.Close()
	probing, cancel := context.WithCancel(ctx)
	defer cancel()
	return u.stages(ctx, probing)
}

// upgrade is what the stages share.
type upgrade struct {
	place
	old    place
	report *report
	size   upgradeSize
	token  string
	hook   *receiver
	front  *balancer

	money, xp *writers
	reads     tally
}

// furnish migrates an empty database, fills it, and registers the receiver, all by
// the release's own command line.
func (p place) furnish(ctx context.Context, hook *receiver, members int) (token string, err error) {
	if out, err := p.command(ctx, "migrate"); err != nil {
		return "", fmt.Errorf("migrate to the last release: %w: %s", err, out)
	}
	var file bytes.Buffer
	fmt.Fprintf(&file, `{"record":"guild","id":"%[1]s"}`+"\n"+`{"record":"ticket","guild_id":"%[1]s","opener_id":"7","id":"the-ticket","channel_id":"77"}`+"\n", guildA)
	for i := range members {
		fmt.Fprintf(&file, `{"record":"wallet","guild_id":"%s","user_id":"%s","balance":%d}`+"\n", guildA, upgradeMember(i), 1+i%977)
		fmt.Fprintf(&file, `{"record":"level","guild_id":"%s","user_id":"%s","total_xp":%d}`+"\n", guildA, upgradeMember(i), 1+i%1013)
	}
	cmd := exec.CommandContext(ctx, p.program, "import", "-")
	cmd.Env = append(os.Environ(), "GUILDHALL_DATABASE_URL="+p.databaseURL, "GUILDHALL_SECRET_KEY="+base64.StdEncoding.EncodeToString(secretKey))
	cmd.Stdin = &file
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("import: %w: %s", err, out)
	}
	if out, err := p.command(ctx, "webhook", "add", "--guild", guildA, "--url", hook.URL, "--all-events", "--webhook-allow", loopback); err != nil {
		return "", fmt.Errorf("webhook add: %w: %s", err, out)
	}
	out, err := p.command(ctx, "token", "create", "--guild", guildA, "--name", "drill", "--all-scopes", "--json")
	if err != nil {
		return "", fmt.Errorf("token create: %w: %s", err, out)
	}
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		return "", fmt.Errorf("token create: %w: %s", err, out)
	}
	return made.Token, nil
}

func upgradeMember(i int) string { return fmt.Sprint(500_000_000_000_000_000 + i) }

// stages goes through the upgrade. The balancer asks the nodes until probing ends.
func (u *upgrade) stages(ctx, probing context.Context) (err error) {
	before, err := u.old.serve(ctx, drillEnv...)
	if err != nil {
		return err
	}
	stopped := false
	defer func() {
		if !stopped {
			err = errors.Join(err, before.Stop())
		}
	}()
	first := u.front.add(probing, before)
	u.prepareLoad()

	stop := u.load(ctx)
	pause(ctx, u.size.length)
	if err := u.migrate(ctx, "while the old node serves"); err != nil {
		return err
	}
	pause(ctx, u.size.length)
	after, err := u.serve(ctx, drillEnv...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, after.Stop()) }()
	second := u.front.add(probing, after)
	alone := first.served.Load()
	pause(ctx, u.size.length)
	stop()
	u.report.hold(first.served.Load() > alone && second.served.Load() > 0, "both nodes serve side by side (the old one %d, the new one %d requests)", first.served.Load()-alone, second.served.Load())
	if err := u.comparePages(ctx, "old", before); err != nil {
		return err
	}
	if err := u.comparePages(ctx, "new", after); err != nil {
		return err
	}

	stop = u.load(ctx)
	begun := time.Now()
	stopped = true
	if err := before.Stop(); err != nil {
		return err
	}
	u.report.say("the old node is stopped after %.1f s", time.Since(begun).Seconds())
	if err := u.finishMigrating(ctx); err != nil {
		return err
	}
	pause(ctx, u.size.length)
	stop()
	if err := u.comparePages(ctx, "remaining", after); err != nil {
		return err
	}
	// While the new node still delivers.
	return u.judge(ctx)
}

// migrate runs this program's migrations under load.
func (u *upgrade) migrate(ctx context.Context, when string) error {
	begun := time.Now()
	out, err := u.command(ctx, "migrate")
	if err != nil {
		return fmt.Errorf("migrate %s: %w: %s", when, err, out)
	}
	schema, err := db.CheckSchema(ctx, u.databaseURL)
	if err != nil {
		return err
	}
	u.report.say("migrate %s took %.1f s, to version %d of %d: %s", when, time.Since(begun).Seconds(), schema.Version, db.SchemaVersion(), strings.TrimSpace(out))
	return nil
}

// finishMigrating runs the migrations that had to wait for the old node's end,
// which the database may learn of some seconds later.
func (u *upgrade) finishMigrating(ctx context.Context) (err error) {
	var schema db.Schema
	done := awaited(ctx, time.Minute, func() bool {
		if err = u.migrate(ctx, "without the old node"); err == nil {
			schema, err = db.CheckSchema(ctx, u.databaseURL)
		}
		return err != nil || schema.Waits == 0 || !pause(ctx, time.Second)
	})
	u.report.hold(done && schema.Waits == 0 && schema.Version == db.SchemaVersion() && len(schema.Invalid) == 0, "the schema is this program's at the end (%d), its indexes valid (%v)", schema.Version, schema.Invalid)
	return err
}

// prepareLoad says who writes what: money and messages, whose rows name their keys,
// and XP, which adds up.
func (u *upgrade) prepareLoad() {
	member := func() string { return upgradeMember(rand.IntN(u.size.members)) }
	at := [2]string{u.front.address(), u.front.address()}
	u.money = &writers{name: "money-", addresses: at, token: u.token, again: true, request: func(writer int, key string) (string, []byte) {
		if writer < 2 {
			return paysAndPosts(writer, key)
		}
		return "/economy/adjust", fmt.Appendf(nil, `{"user_id":"%s","delta":%d,"reason":"%s"}`, member(), 1+rand.IntN(900), key)
	}}
	u.xp = &writers{name: "xp-", addresses: at, token: u.token, again: true, request: func(_ int, _ string) (string, []byte) {
		return "/levelling/adjust", fmt.Appendf(nil, `{"user_id":"%s","delta":1}`, member())
	}}
}

// load writes and reads through the balancer until it is stopped.
func (u *upgrade) load(ctx context.Context) (stop func()) {
	money, xp := u.money.begin(ctx, 6), u.xp.begin(ctx, 3)
	going, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			c := &caller{address: u.front.address()}
			defer c.close()
			for n := i; going.Err() == nil; n++ {
				u.reads.add(c.send(ctx, request("GET", u.read(n), u.token, nil)))
				pause(ctx, 5*time.Millisecond)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
		money()
		xp()
	}
}

// read is a path that both releases know.
func (u *upgrade) read(n int) string {
	deep := max(1, u.size.members/25)
	return []string{
		"/me", "/guild", "/economy/wallet/" + upgradeMember(n%u.size.members), "/economy/leaderboard", fmt.Sprintf("/economy/leaderboard?page=%d", deep),
		"/economy/ledger", "/levelling/user/" + upgradeMember(n%u.size.members), fmt.Sprintf("/levelling/leaderboard?page=%d", deep),
		"/tickets", "/tickets/the-ticket/messages", "/cases", "/giveaways", "/webhooks",
	}[n%13]
}

// judge holds what callers were told against what is there and what has arrived.
func (u *upgrade) judge(ctx context.Context) error {
	for _, w := range []struct {
		name string
		*writers
	}{{"money and messages", u.money}, {"XP", u.xp}} {
		u.report.say("%s: %d writes, %v, p50 %.1f ms, p99 %.1f ms", w.name, len(w.done), &w.responses, ms(w.responses.at(0.5, ok)), ms(w.responses.at(0.99, ok)))
		u.report.hold(w.responses.count(failed) == 0, "no write is answered with 5xx, or not at all (%d)", w.responses.count(failed))
		u.report.hold(w.unsettled == 0 && w.notReplayed == 0, "each settles, and is answered again when it is sent again (%d and %d did not)", w.unsettled, w.notReplayed)
	}
	u.report.say("reads: %v, p50 %.1f ms, p99 %.1f ms", &u.reads, ms(u.reads.at(0.5, ok)), ms(u.reads.at(0.99, ok)))
	u.report.hold(u.reads.count(ok) == len(u.reads.all) && len(u.reads.all) > 0, "each read succeeds (%d of %d)", u.reads.count(ok), len(u.reads.all))
	if err := u.xpAddsUp(ctx); err != nil {
		return err
	}
	return u.money.compare(ctx, u.place, u.report, u.hook)
}

// xpAddsUp holds the XP that is there against what was acknowledged.
func (u *upgrade) xpAddsUp(ctx context.Context) error {
	d, err := db.Open(db.Config{URL: u.databaseURL, Writers: 1, Readers: 1, Name: "drill"})
	if err != nil {
		return err
	}
	defer d.Close()
	want := len(u.xp.done)
	for i := range u.size.members {
		want += 1 + i%1013
	}
	var have int
	if err := d.Reader().GetContext(ctx, &have, `SELECT sum(total_xp)::bigint FROM levels WHERE guild_id = $1`, guildA); err != nil {
		return err
	}
	u.report.hold(have == want, "the acknowledged XP is there once (%d, want %d)", have, want)
	return nil
}

// boards are the leaderboards, and the order that their pages have to show.
var boards = map[string]string{
	"/economy/leaderboard":   `SELECT user_id FROM wallets WHERE guild_id = $1 ORDER BY balance DESC, length(user_id), user_id`,
	"/levelling/leaderboard": `SELECT user_id FROM levels WHERE guild_id = $1 ORDER BY total_xp DESC, length(user_id), user_id`,
}

// comparePages holds a node's pages against the rows, while nobody writes.
func (u *upgrade) comparePages(ctx context.Context, which string, s *server) error {
	d, err := db.Open(db.Config{URL: u.databaseURL, Writers: 1, Readers: 1, Name: "drill"})
	if err != nil {
		return err
	}
	defer d.Close()
	const size = 25
	for path, query := range boards {
		var want []string
		if err := d.Reader().SelectContext(ctx, &want, query, guildA); err != nil {
			return err
		}
		last, wrong := (len(want)+size-1)/size, 0
		for _, page := range []int{1, 2, last / 3, last / 2, last - 1, last} {
			got, err := s.page(ctx, u.token, fmt.Sprintf("%s?page=%d&per_page=%d", path, max(page, 1), size))
			if err != nil {
				return err
			}
			from := (max(page, 1) - 1) * size
			if fmt.Sprint(got) != fmt.Sprint(want[from:min(from+size, len(want))]) {
				wrong++
			}
		}
		u.report.hold(wrong == 0, "pages of %s by the %s node are right up to the last, %d (%d are not)", path, which, last, wrong)
	}
	return nil
}

// page returns the members on a page of a leaderboard.
func (s *server) page(ctx context.Context, token, path string) (members []string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.HTTP+"/api/v1"+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("X-Forwarded-Proto", "https")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	var list struct {
		Data []struct {
			UserID string `json:"user_id"`
		}
	}
	if err := json.Unmarshal(text, &list); err != nil || res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s is answered with %s: %w, %s", path, res.Status, err, text)
	}
	for _, row := range list.Data {
		members = append(members, row.UserID)
	}
	return members, nil
}

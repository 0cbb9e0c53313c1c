package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"guildhall/internal/auth"
	"guildhall/internal/db"
	"guildhall/internal/db/embedded"
)

// restored takes a backup while deliveries wait, goes on, restores it, and looks
// at what came back: a revoked token, deliveries that had arrived. Then the
// installation is taken into service again as deploy/README.md says.
func restored(ctx context.Context, p place, r *report, writes int) (err error) {
	hook := newReceiver()
	defer hook.Close()
	if err := p.load(ctx, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, `{"record":"guild","id":"%s"}`+"\n", guildA)
		return err
	}); err != nil {
		return err
	}
	if err := p.register(ctx, guildA, hook); err != nil {
		return err
	}
	tokens, err := p.tokens(ctx, guildA, 2)
	if err != nil {
		return err
	}
	old, err := p.lifeBeforeAndAfterBackup(ctx, r, hook, tokens, writes)
	if err != nil {
		return err
	}
	defer old.remove()
	before := hook.events()

	fresh, drop, err := p.restore(ctx, old.dump)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	out, checkErr := fresh.command(ctx, "restore", "check", "--since", old.taken.Format(time.RFC3339Nano), "--old-database-url", p.databaseURL)
	r.say("%s", out)
	r.hold(checkErr != nil && strings.Contains(out, "revived  token") && strings.Contains(out, "lost     token"),
		"restore check names the token that works again and the one that is gone")
	_, checkErr = fresh.command(ctx, "token", "revoke", "--all", "--every-guild")
	r.hold(checkErr == nil, "every token is revoked")
	out, checkErr = fresh.command(ctx, "doctor", "--books", "--webhook-allow", loopback)
	r.hold(checkErr == nil, "doctor finds nothing failed\n%s", out)

	s, err := fresh.serve(ctx, drillEnv...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	c := &caller{address: s.http}
	defer c.close()
	for i, t := range tokens {
		a := c.send(ctx, request("GET", "/me", t, nil))
		r.hold(a.status == 401, "token %d of before is refused (%d)", i+1, a.status)
	}
	after, err := fresh.tokens(ctx, guildA, 1)
	if err != nil {
		return err
	}
	r.hold(s.pay(ctx, after[0], "after", 1) == 1, "a token made since writes")
	again := func() (n int) {
		for id, times := range hook.events() {
			if before[id] > 0 && times > before[id] {
				n++
			}
		}
		return n
	}
	r.hold(awaited(ctx, time.Minute, func() bool { return again() == writes }), "%d of %d deliveries that waited in the backup came again under the ids they had", again(), writes)
	r.hold(awaited(ctx, time.Minute, func() bool { return len(hook.events()) == len(before)+1 }), "of new events there is the one of the write since (%d)", len(hook.events())-len(before))
	return nil
}

var drillEnv = []string{
	"GUILDHALL_WEBHOOK_ALLOW=" + loopback, "GUILDHALL_RATE_READ=off", "GUILDHALL_RATE_WRITE=off",
}

// backup is a dump, and the instant from which on it knows nothing.
type backup struct {
	dump  string
	taken time.Time
}

func (b backup) remove() { _ = os.RemoveAll(filepath.Dir(b.dump)) }

// pay makes as many keyed writes and returns how many succeeded.
func (s *server) pay(ctx context.Context, token, key string, writes int) (done int) {
	c := &caller{address: s.http}
	defer c.close()
	for i := range writes {
		a := c.send(ctx, request("POST", "/economy/adjust", token, []byte(`{"user_id":"7","delta":1}`), fmt.Sprintf("Idempotency-Key: %s-%d", key, i)))
		if ok(a) {
			done++
		}
	}
	return done
}

// lifeBeforeAndAfterBackup writes while nobody delivers, takes the backup, and
// goes on: what waited arrives, the first token is revoked, a third is made, the
// second writes.
func (p place) lifeBeforeAndAfterBackup(ctx context.Context, r *report, hook *receiver, tokens []string, writes int) (b backup, err error) {
	silent, err := p.serve(ctx, append(drillEnv, "GUILDHALL_ROLES=api")...)
	if err != nil {
		return b, err
	}
	done := silent.pay(ctx, tokens[0], "before", writes)
	if err := silent.stop(); err != nil {
		return b, err
	}
	b.taken = time.Now().UTC()
	begun := time.Now()
	if b.dump, err = p.dump(ctx); err != nil {
		return b, err
	}
	r.say("the dump of %d writes whose events wait took %.1f s", writes, time.Since(begun).Seconds())
	s, err := p.serve(ctx, drillEnv...)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	done += s.pay(ctx, tokens[1], "since", writes)
	r.hold(done == 2*writes, "%d of %d writes before and after the backup succeed", done, 2*writes)
	r.hold(awaited(ctx, 2*time.Minute, func() bool { return len(hook.events()) == 2*writes }), "%d of %d events arrive", len(hook.events()), 2*writes)
	d, err := db.Open(db.Config{URL: p.databaseURL, Writers: 1, Readers: 1, Name: "drill"})
	if err != nil {
		return b, err
	}
	defer d.Close()
	all, err := auth.List(ctx, d, guildA)
	if err != nil {
		return b, err
	}
	if err := auth.Revoke(ctx, d, guildA, all[0].ID); err != nil {
		return b, err
	}
	_, err = p.tokens(ctx, guildA, 1)
	return b, err
}

// postgresProgram runs one of the Postgres client programs on a database, whose
// password it finds in its environment.
func postgresProgram(ctx context.Context, databaseURL, name string, args ...string) error {
	programs, err := embedded.Find(ctx, 0)
	if err != nil {
		return err
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		return err
	}
	password, _ := u.User.Password()
	u.User = url.User(u.User.Username())
	cmd := exec.CommandContext(ctx, filepath.Join(programs.Dir, name), append(args, "--dbname", u.String())...)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

func (p place) dump(ctx context.Context) (file string, err error) {
	folder, err := os.MkdirTemp("", "guildhall-drill-")
	if err != nil {
		return "", err
	}
	file = filepath.Join(folder, "dump")
	if err := postgresProgram(ctx, p.databaseURL, "pg_dump", "--format", "custom", "--file", file); err != nil {
		return "", errors.Join(err, os.RemoveAll(folder))
	}
	return file, nil
}

// restore loads a dump into a fresh database of the same server.
func (p place) restore(ctx context.Context, dump string) (fresh place, drop func() error, err error) {
	admin, err := db.OpenSQL(p.databaseURL, "drill", 1)
	if err != nil {
		return p, nil, err
	}
	name := "guildhall_restored_" + strings.ToLower(rand.Text())
	if _, err := admin.ExecContext(ctx, `CREATE DATABASE `+name+` TEMPLATE template0`); err != nil {
		return p, nil, errors.Join(err, admin.Close())
	}
	drop = func() error {
		_, err := admin.ExecContext(context.WithoutCancel(ctx), `DROP DATABASE `+name+` WITH (FORCE)`)
		return errors.Join(err, admin.Close())
	}
	u, err := url.Parse(p.databaseURL)
	if err != nil {
		return p, nil, errors.Join(err, drop())
	}
	u.Path = "/" + name
	fresh = p
	fresh.databaseURL = u.String()
	if err := postgresProgram(ctx, fresh.databaseURL, "pg_restore", "--exit-on-error", dump); err != nil {
		return p, nil, errors.Join(err, drop())
	}
	return fresh, drop, nil
}

// command runs the program's command line on the place's database.
func (p place) command(ctx context.Context, args ...string) (out string, err error) {
	cmd := exec.CommandContext(ctx, p.program, args...)
	cmd.Env = append(os.Environ(), "GUILDHALL_DATABASE_URL="+p.databaseURL, "GUILDHALL_SECRET_KEY="+base64.StdEncoding.EncodeToString(secretKey))
	text, err := cmd.CombinedOutput()
	return string(text), err
}

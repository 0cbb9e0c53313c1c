package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
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

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/embedded"
)

// The stages of the drill.
const (
	fromDump  = "from a dump"
	toInstant = "from a base backup and the write-ahead log, to an instant"
)

// restored takes a backup while deliveries wait, goes on, restores it, and looks
// at what came back: a revoked token, deliveries that had arrived. Then the
// installation is taken into service again as docs/operate/backup.md says.
func restored(ctx context.Context, p place, r *report, writes int) (err error) {
	l, err := p.beginLife(ctx, writes)
	if err != nil {
		return err
	}
	defer l.hook.Close()
	var dump string
	err = l.goThrough(ctx, r, func() error {
		begun := time.Now()
		dump, err = p.dump(ctx)
		r.say("the dump of %d writes whose events wait took %.1f s", writes, time.Since(begun).Seconds())
		return err
	})
	defer func() { _ = os.RemoveAll(filepath.Dir(dump)) }()
	if err != nil {
		return err
	}
	fresh, drop, err := p.restore(ctx, dump)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	return l.intoServiceAgain(ctx, r, fresh)
}

// recovered is restored with a base backup, which is older than everything, and the
// write-ahead log, which is replayed up to an instant. It needs servers of its own.
func recovered(ctx context.Context, p place, r *report, writes int) (err error) {
	primary, err := embedded.Start(ctx, embedded.Config{TCP: true, Archive: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, primary.Stop()) }()
	if err := db.Migrate(ctx, primary.URL); err != nil {
		return err
	}
	base, err := primary.BaseBackup(ctx)
	if err != nil {
		return err
	}
	p.databaseURL = primary.URL
	l, err := p.beginLife(ctx, writes)
	if err != nil {
		return err
	}
	defer l.hook.Close()
	pool, err := db.OpenSQL(primary.URL, "drill", 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	var until time.Time
	if err := l.goThrough(ctx, r, func() error {
		return pool.QueryRowContext(ctx, `SELECT clock_timestamp()`).Scan(&until)
	}); err != nil {
		return err
	}
	if err := archived(ctx, pool); err != nil {
		return err
	}
	begun := time.Now()
	past, err := embedded.Start(ctx, embedded.Config{TCP: true, From: &embedded.Recovery{Of: primary, Base: base, Until: until}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, past.Stop()) }()
	r.say("recovery to %s took %.1f s", until.Format(time.RFC3339Nano), time.Since(begun).Seconds())
	p.databaseURL = past.URL
	return l.intoServiceAgain(ctx, r, p)
}

// archived waits until all that was written so far is in the archive.
func archived(ctx context.Context, pool *sql.DB) error {
	var last string
	if err := pool.QueryRowContext(ctx, `SELECT pg_walfile_name(pg_switch_wal())`).Scan(&last); err != nil {
		return err
	}
	var done bool
	var err error
	if !awaited(ctx, time.Minute, func() bool {
		err = pool.QueryRowContext(ctx, `SELECT coalesce(last_archived_wal >= $1, false) FROM pg_stat_archiver`, last).Scan(&done)
		return err == nil && done
	}) {
		return fmt.Errorf("%s does not get into the archive: %w", last, err)
	}
	return nil
}

// life is what an installation went through before and after its backup.
type life struct {
	place
	hook   *receiver
	tokens []string
	writes int            // before the backup, and as many after it
	taken  time.Time      // from then on the backup knows nothing
	before map[string]int // the events that had arrived when it was restored
}

// beginLife makes a guild with two tokens and a receiver.
func (p place) beginLife(ctx context.Context, writes int) (*life, error) {
	l := &life{place: p, hook: newReceiver(), writes: writes}
	err := p.load(ctx, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, `{"record":"guild","id":"%s"}`+"\n", guildA)
		return err
	})
	if err == nil {
		err = p.register(ctx, guildA, l.hook)
	}
	if err == nil {
		l.tokens, err = p.tokens(ctx, guildA, 2)
	}
	if err != nil {
		l.hook.Close()
	}
	return l, err
}

// goThrough writes while nobody delivers, takes the backup, and goes on: what waited
// arrives, the first token is revoked, a third is made, the second writes.
func (l *life) goThrough(ctx context.Context, r *report, take func() error) (err error) {
	silent, err := l.serve(ctx, append(drillEnv, "GUILDHALL_ROLES=api")...)
	if err != nil {
		return err
	}
	done := silent.pay(ctx, l.tokens[0], "before", l.writes)
	if err := silent.Stop(); err != nil {
		return err
	}
	l.taken = time.Now().UTC()
	if err := take(); err != nil {
		return err
	}
	s, err := l.serve(ctx, drillEnv...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	done += s.pay(ctx, l.tokens[1], "since", l.writes)
	r.hold(done == 2*l.writes, "%d of %d writes before and after the backup succeed", done, 2*l.writes)
	r.hold(awaited(ctx, 2*time.Minute, func() bool { return len(l.hook.events()) == 2*l.writes }), "%d of %d events arrive", len(l.hook.events()), 2*l.writes)
	if err := l.revokeFirst(ctx); err != nil {
		return err
	}
	_, err = l.place.tokens(ctx, guildA, 1)
	l.before = l.hook.events()
	return err
}

// intoServiceAgain takes the restored installation into service, and looks at what
// it makes of the time before and after its backup.
func (l *life) intoServiceAgain(ctx context.Context, r *report, fresh place) (err error) {
	out, checkErr := fresh.command(ctx, "restore", "check", "--since", l.taken.Format(time.RFC3339Nano), "--old-database-url", l.databaseURL)
	r.say("%s", out)
	r.hold(checkErr != nil && strings.Contains(out, "revived  token") && strings.Contains(out, "lost     token"),
		"restore check names the token that works again and the one that is gone")
	if err := l.countWrites(ctx, r, fresh); err != nil {
		return err
	}
	_, checkErr = fresh.command(ctx, "token", "revoke", "--all", "--every-guild")
	r.hold(checkErr == nil, "every token is revoked")
	out, checkErr = fresh.command(ctx, "doctor", "--books", "--webhook-allow", loopback)
	r.hold(checkErr == nil, "doctor finds nothing failed\n%s", out)

	s, err := fresh.serve(ctx, drillEnv...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	c := &caller{address: s.HTTP}
	defer c.close()
	for i, t := range l.tokens {
		a := c.send(ctx, request("GET", "/me", t, nil))
		r.hold(a.status == 401, "token %d of before is refused (%d)", i+1, a.status)
	}
	after, err := fresh.tokens(ctx, guildA, 1)
	if err != nil {
		return err
	}
	r.hold(s.pay(ctx, after[0], "after", 1) == 1, "a token made since writes")
	again := func() (n int) {
		for id, times := range l.hook.events() {
			if l.before[id] > 0 && times > l.before[id] {
				n++
			}
		}
		return n
	}
	r.hold(awaited(ctx, time.Minute, func() bool { return again() == l.writes }), "%d of %d deliveries that waited in the backup came again under the ids they had", again(), l.writes)
	r.hold(awaited(ctx, time.Minute, func() bool { return len(l.hook.events()) == len(l.before)+1 }), "of new events there is the one of the write since (%d)", len(l.hook.events())-len(l.before))
	return nil
}

// countWrites looks for the writes that were acknowledged before the backup.
func (l *life) countWrites(ctx context.Context, r *report, fresh place) error {
	d, err := db.Open(db.Config{URL: fresh.databaseURL, Writers: 1, Readers: 1, Name: "drill"})
	if err != nil {
		return err
	}
	defer d.Close()
	var have struct{ Before, Twice, Since int }
	if err := d.Reader().GetContext(ctx, &have, `
		SELECT count(DISTINCT reason) FILTER (WHERE reason LIKE 'before-%') AS before,
		       count(*) FILTER (WHERE reason LIKE 'before-%') - count(DISTINCT reason) FILTER (WHERE reason LIKE 'before-%') AS twice,
		       count(*) FILTER (WHERE reason LIKE 'since-%') AS since
		FROM ledger_entries`); err != nil {
		return err
	}
	r.hold(have.Before == l.writes && have.Twice == 0 && have.Since == 0,
		"each write acknowledged before the instant is there once (%d of %d, %d twice), none made since (%d)", have.Before, l.writes, have.Twice, have.Since)
	return nil
}

var drillEnv = []string{
	"GUILDHALL_WEBHOOK_ALLOW=" + loopback, "GUILDHALL_RATE_READ=off", "GUILDHALL_RATE_WRITE=off",
}

// pay makes as many keyed writes, each again until it is answered, and returns how many
// succeeded.
func (s *server) pay(ctx context.Context, token, key string, writes int) (done int) {
	c := &caller{address: s.HTTP}
	defer c.close()
	for i := range writes {
		name := fmt.Sprintf("%s-%d", key, i)
		again := request("POST", "/economy/adjust", token, fmt.Appendf(nil, `{"user_id":"7","delta":1,"reason":"%s"}`, name), "Idempotency-Key: "+name)
		if awaited(ctx, settleTimeout, func() bool { return ok(c.send(ctx, again)) }) {
			done++
		}
	}
	return done
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

// empty makes a fresh database on the same server.
func (p place) empty(ctx context.Context) (fresh place, drop func() error, err error) {
	admin, err := db.OpenSQL(p.databaseURL, "drill", 1)
	if err != nil {
		return p, nil, err
	}
	name := "guildhall_drill_" + strings.ToLower(rand.Text())
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
	p.databaseURL = u.String()
	return p, drop, nil
}

// restore loads a dump into a fresh database of the same server.
func (p place) restore(ctx context.Context, dump string) (fresh place, drop func() error, err error) {
	if fresh, drop, err = p.empty(ctx); err != nil {
		return p, nil, err
	}
	if err := postgresProgram(ctx, fresh.databaseURL, "pg_restore", "--exit-on-error", dump); err != nil {
		return p, nil, errors.Join(err, drop())
	}
	return fresh, drop, nil
}

// command runs the program's command line on the place's database.
func (p place) command(ctx context.Context, args ...string) (out string, err error) {
	cmd := exec.CommandContext(ctx, p.program, args...)
	cmd.Env = append(os.Environ(), "GUILDHALL_ENV=test", "GUILDHALL_DATABASE_URL="+p.databaseURL, "GUILDHALL_SECRET_KEY="+base64.StdEncoding.EncodeToString(secretKey))
	text, err := cmd.CombinedOutput()
	return string(text), err
}

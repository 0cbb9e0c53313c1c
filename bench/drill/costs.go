package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"guildhall/bench/proc"
	"guildhall/internal/base/db"
)

// costClients is how many callers there are at a time: enough to keep two cores
// busy, few enough that nobody waits for long.
const costClients = 8

// costs measures how much time of a processor a request takes of the server and of
// Postgres, and an event that is delivered: what docs/operate/sizes.md computes sizes
// from. It holds no promise but that everything succeeds.
func costs(ctx context.Context, p place, r *report, length time.Duration) (err error) {
	if err := p.load(ctx, func(w io.Writer) error {
		for _, guild := range []string{guildA, guildB} {
			if _, err := fmt.Fprintf(w, `{"record":"guild","id":"%s"}`+"\n", guild); err != nil {
				return err
			}
			for i := range 1000 {
				if _, err := fmt.Fprintf(w, `{"record":"wallet","guild_id":"%s","user_id":"%s","balance":1000}`+"\n", guild, upgradeMember(i)); err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		return err
	}
	hook := newReceiver()
	defer hook.Close()
	if err := p.register(ctx, guildB, hook); err != nil {
		return err
	}
	quiet, err := p.tokens(ctx, guildA, 1)
	if err != nil {
		return err
	}
	heard, err := p.tokens(ctx, guildB, 1)
	if err != nil {
		return err
	}
	postmaster, err := p.postmaster(ctx)
	if err != nil {
		return err
	}
	s, err := p.serve(ctx, drillEnv...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	m := &costMeter{server: s, postmaster: postmaster, report: r, length: length}
	r.say("%d cores, %d callers, %s each; in microseconds of a processor:", runtime.NumCPU(), costClients, length)
	m.measure(ctx, "a read (getWallet)", func(n int64) []byte {
		return request("GET", "/economy/wallet/"+upgradeMember(int(n%1000)), quiet[0], nil)
	}, nil)
	pay := func(token string, keyed bool) func(n int64) []byte {
		return func(n int64) []byte {
			var headers []string
			if keyed {
				headers = []string{fmt.Sprintf("Idempotency-Key: cost-%d-%d", length, n)}
			}
			return request("POST", "/economy/adjust", token, fmt.Appendf(nil, `{"user_id":"%s","delta":1}`, upgradeMember(int(n%1000))), headers...)
		}
	}
	m.measure(ctx, "a write (adjustBalance)", pay(quiet[0], false), nil)
	m.measure(ctx, "a write with a key", pay(quiet[0], true), nil)
	m.measure(ctx, "a write with a key, its event delivered", pay(heard[0], true), hook)
	return nil
}

// postmaster is the process of the database's server.
func (p place) postmaster(ctx context.Context) (pid int, err error) {
	pool, err := db.OpenSQL(p.databaseURL, "drill", 1)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	var folder string
	if err := pool.QueryRowContext(ctx, `SHOW data_directory`).Scan(&folder); err != nil {
		return 0, err
	}
	return proc.Postmaster(folder)
}

type costMeter struct {
	server     *server
	postmaster int
	report     *report
	length     time.Duration
}

// measure has callers send requests for a time, waits until the events have arrived
// if there are any, and says what one of them has cost.
func (m *costMeter) measure(ctx context.Context, what string, build func(n int64) []byte, hook *receiver) {
	var responses tally
	var next atomic.Int64
	server, postgres, begun := proc.CPU(m.server.PID), proc.CPUOfTree(m.postmaster), time.Now()
	going, cancel := context.WithTimeout(ctx, m.length)
	defer cancel()
	var all sync.WaitGroup
	for range costClients {
		all.Go(func() {
			c := &caller{address: m.server.HTTP}
			defer c.close()
			for going.Err() == nil {
				responses.add(c.send(ctx, build(next.Add(1))))
			}
		})
	}
	all.Wait()
	took, n := time.Since(begun), len(responses.all)
	if hook != nil {
		m.report.hold(awaited(ctx, 2*time.Minute, func() bool { return len(hook.events()) >= n }), "the event of each arrives (%d of %d)", len(hook.events()), n)
	}
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(max(n, 1)) }
	m.report.say("  %-42s server %4.0f, Postgres %4.0f   (%.0f a second, p99 %.1f ms)", what,
		each(proc.CPU(m.server.PID)-server), each(proc.CPUOfTree(m.postmaster)-postgres), float64(n)/took.Seconds(), ms(responses.at(0.99, ok)))
	m.report.hold(responses.count(ok) == n && n > 0, "each of them succeeds: %s", strings.TrimSpace(responses.String()))
}

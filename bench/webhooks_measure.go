package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/bench/proc"
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/leaderboard"
)

// deliverer is a worker with connections of its own, as many as `guildhall serve`
// gives it.
type deliverer struct {
	*delivery.Deliverer
	registry *prometheus.Registry
	stop     func() error
}

func (p *webhookPlace) deliverer(ctx context.Context) (*deliverer, error) {
	pool, err := db.Open(db.Config{URL: p.workerURL, Writers: 4, Readers: 2, Name: worker})
	if err != nil {
		return nil, err
	}
	n := &deliverer{registry: prometheus.NewRegistry()}
	n.Deliverer, err = delivery.New(delivery.Config{DB: pool, Box: p.Box, Guard: p.cfg.Guard, Authorities: p.trusted, Metrics: n.registry})
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	n.stop = sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-ended, pool.Close())
	})
	return n, nil
}

// measurement is what was seen of events and nodes during a while.
type measurement struct {
	sample                        // from commit to receiver
	claims                float64 // number
	claimWall, settleWall float64 // ms each
	claimPostgres         float64 // ms each, in which Postgres executed its statements
	statements            float64 // of the nodes, per event
}

// counts are running totals of the nodes: units of work and the time in them, and
// what Postgres did for them.
type counts struct {
	claims, claimMs, settles, settleMs float64
	statements, claimPostgresMs        float64
	cpu                                time.Duration
}

func (p *webhookPlace) counts(ctx context.Context, nodes ...*deliverer) (c counts, err error) {
	for _, n := range nodes {
		families, err := n.registry.Gather()
		if err != nil {
			return c, err
		}
		for _, f := range families {
			if f.GetName() != "guildhall_webhook_transaction_duration_seconds" {
				continue
			}
			for _, m := range f.GetMetric() {
				count, ms := float64(m.GetHistogram().GetSampleCount()), 1000*m.GetHistogram().GetSampleSum()
				if m.GetLabel()[0].GetValue() == "claim" {
					c.claims, c.claimMs = c.claims+count, c.claimMs+ms
				} else {
					c.settles, c.settleMs = c.settles+count, c.settleMs+ms
				}
			}
		}
	}
	// The statements of a claim: two that look, one that locks, one that takes.
	err = p.Admin.QueryRowContext(ctx, `
		SELECT coalesce(sum(calls), 0)::float8,
		       coalesce(sum(total_exec_time) FILTER (WHERE query ~ 'RECURSIVE hop|unnest.*webhook_schedule s ON|SKIP LOCKED|WITH o AS MATERIALIZED'), 0)::float8
		FROM pg_stat_statements s
		JOIN pg_roles r ON r.oid = s.userid
		WHERE r.rolname = $1`, worker).Scan(&c.statements, &c.claimPostgresMs)
	c.cpu = proc.CPUOfTree(p.Postmaster)
	return c, err
}

// since is what happened after before, for so many events.
func (c counts) since(before counts, events int) measurement {
	claims, settles := max(c.claims-before.claims, 1), max(c.settles-before.settles, 1)
	return measurement{
		claims: claims, claimWall: (c.claimMs - before.claimMs) / claims, settleWall: (c.settleMs - before.settleMs) / settles,
		claimPostgres: (c.claimPostgresMs - before.claimPostgresMs) / claims, statements: (c.statements - before.statements) / float64(max(events, 1)),
	}
}

// warmUp is how long a node works before it is measured: connections,
// statements and caches are there then, and it knows its endpoints.
const warmUp = 3

// steady records events at the rate, with one node, and returns how they fared.
func (p *webhookPlace) steady(ctx context.Context) (m measurement, err error) {
	n, err := p.deliverer(ctx)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	if _, err := p.window(ctx, n, warmUp); err != nil {
		return m, err
	}
	before, err := p.counts(ctx, n)
	if err != nil {
		return m, err
	}
	took, err := p.window(ctx, n, p.seconds)
	if err != nil {
		return m, err
	}
	after, err := p.counts(ctx, n)
	m = after.since(before, len(took))
	m.latencies = took
	return m, err
}

// window records events at the rate for some seconds and returns how long each
// took from its commit to the receiver.
func (p *webhookPlace) window(ctx context.Context, node *deliverer, seconds int) ([]time.Duration, error) {
	p.mu.Lock()
	clear(p.arrived)
	p.mu.Unlock()
	total := p.rate * seconds
	committed := make([]time.Time, total)
	errs := make([]error, total)
	var load sync.WaitGroup
	begin := time.Now()
	for n := range total {
		time.Sleep(time.Until(begin.Add(time.Duration(n) * time.Second / time.Duration(p.rate))))
		load.Go(func() {
			guild := p.guilds[n%len(p.guilds)]
			committed[n], errs[n] = p.record(ctx, guild, n)
			node.Wake(guild)
		})
	}
	load.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := arrival(ctx, total, func() int { p.mu.Lock(); defer p.mu.Unlock(); return len(p.arrived) }); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	took := make([]time.Duration, total)
	for n := range total {
		took[n] = max(p.arrived[n].Sub(committed[n]), 0)
	}
	return took, nil
}

// pay is a change as a request makes it.
var pay = leaderboard.Wallets.Noted("moved", "$1", func(note string) string {
	return `
		WITH moved AS (
			INSERT INTO wallets AS w (guild_id, user_id, balance, updated_at) VALUES ($1, $2, 1, clock_timestamp())
			ON CONFLICT (guild_id, user_id) DO UPDATE SET balance = w.balance + 1, updated_at = excluded.updated_at
			RETURNING user_id, CASE WHEN xmax <> 0 THEN balance - 1 END AS was, balance AS is_now
		), ` + note + `
		SELECT`
})

// record makes one event as a request does, in a transaction that writes, and
// returns when it has committed.
func (p *webhookPlace) record(ctx context.Context, guild string, n int) (time.Time, error) {
	user := fmt.Sprint(1 + n%500)
	err := p.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, pay.For(1), guild, user)
		if err != nil {
			return err
		}
		return event.Record(ctx, tx, event.System(guild).On(time.Now()), event.BalanceChanged, map[string]any{
			"user_id": user, "balance": 130, "previous_balance": 100, "delta": 30, "reason": fmt.Sprintf("bench %d", n), "ledger_entry_id": db.NewID(),
		})
	})
	return time.Now(), err
}

// arrival waits until a number is reached. It gives up when it stands still.
func arrival(ctx context.Context, total int, have func() int) error {
	last, moved := -1, time.Now()
	for {
		n := have()
		switch {
		case n >= total:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case n != last:
			last, moved = n, time.Now()
		case time.Since(moved) > time.Minute:
			return fmt.Errorf("%d of %d events arrived", n, total)
		}
		time.Sleep(time.Millisecond)
	}
}

// drain lets nodes send out a backlog, and returns what is pending when the last of
// it has been answered.
func (p *webhookPlace) drain(ctx context.Context, nodes, total int) (m measurement, pending int, err error) {
	p.delivered.Store(0)
	begin := time.Now()
	all := make([]*deliverer, nodes)
	before, err := p.counts(ctx)
	if err != nil {
		return m, 0, err
	}
	for i := range all {
		if all[i], err = p.deliverer(ctx); err != nil {
			return m, 0, err
		}
		defer func() { err = errors.Join(err, all[i].stop()) }()
	}
	if err = arrival(ctx, total, func() int { return int(p.delivered.Load()) }); err != nil {
		return m, 0, err
	}
	took := time.Since(begin)
	after, err := p.counts(ctx, all...)
	if err != nil {
		return m, 0, err
	}
	m = after.since(before, total)
	m.took = took
	err = p.Admin.QueryRowContext(ctx, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`).Scan(&pending)
	return m, pending, err
}

// use is what Postgres does each second.
type use struct{ cpu, statements float64 } // ms, number

// idle runs nodes that have nothing to do for some seconds.
func (p *webhookPlace) idle(ctx context.Context, nodes int) (u use, err error) {
	for range nodes {
		n, err := p.deliverer(ctx)
		if err != nil {
			return u, err
		}
		defer func() { err = errors.Join(err, n.stop()) }()
	}
	if err := pause(ctx, warmUp*time.Second); err != nil {
		return u, err
	}
	before, err := p.counts(ctx)
	if err != nil {
		return u, err
	}
	if err := pause(ctx, time.Duration(p.seconds)*time.Second); err != nil {
		return u, err
	}
	after, err := p.counts(ctx)
	length := float64(p.seconds)
	return use{cpu: float64((after.cpu - before.cpu).Milliseconds()) / length, statements: (after.statements - before.statements) / length}, err
}

// pause waits for a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

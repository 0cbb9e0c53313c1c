package chores

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/dashboard"
)

// A sweep continues until no expired row is left, however many there are, runs no empty step, and
// ends in time even if the rows of one table expire as fast as they are deleted; other tables do
// not have to wait for that one. RELIABILITY.md, Operation.
func TestPruningReachesEveryKindAndKeepsUp(t *testing.T) {
	t.Parallel()
	found := map[string][]int{
		"endless": {1000}, "trickle": {7}, "two and a bit": {1000, 1000, 3}, "broken": {1000, -1}, "nothing": {0},
	}
	want := map[string]int{"endless": 5000, "trickle": 1, "two and a bit": 3, "broken": 2, "nothing": 1}
	p := newPruner(nil, prometheus.NewRegistry())
	p.kinds = nil
	for name := range found {
		p.kinds = append(p.kinds, db.Expiry{Table: name})
	}
	calls, passed := map[string]int{}, time.Duration(0)
	p.now = func() time.Time { return time.Time{}.Add(passed) }
	p.age = func(context.Context, db.Expiry) (time.Duration, error) { return 0, nil }
	p.step = func(_ context.Context, o db.Expiry) (int, error) {
		all := found[o.Table]
		n := all[min(calls[o.Table], len(all)-1)]
		calls[o.Table]++
		if o.Table == "endless" {
			passed += 5 * time.Millisecond
		}
		if n < 0 {
			return 0, errors.New(o.Table)
		}
		return n, nil
	}
	if err := p.sweep(t.Context()); err == nil || err.Error() != "broken" {
		t.Errorf("the failure of one kind is told as %v", err)
	}
	for name, want := range want {
		if calls[name] != want {
			t.Errorf("%s: %d steps, want %d", name, calls[name], want)
		}
	}
}

// For each pruned table the gauge shows how long ago its oldest expired row expired, and an index
// leads to that row. RELIABILITY.md, Operation.
func TestTheAgeOfExpiredRowsIsMeasured(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Exec(t, d, `
		INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, created_at)
		SELECT n::text, 't', n::text, 'f', now() - n * interval '1 hour' FROM generate_series(20, 30) n`)
	metrics := prometheus.NewRegistry()
	p := newPruner(d, metrics, dashboard.Expired()...)
	oldest := func() float64 {
		return testutil.Metric(t, metrics, "guildhall_expired_rows_oldest_seconds", "table=idempotency_keys")
	}
	deleting := p.step
	p.step = func(context.Context, db.Expiry) (int, error) { return 0, nil }
	if err := p.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := oldest(); got < 5*3600 || got > 5*3600+600 {
		t.Errorf("a key that expired five hours ago is shown as %v s", got)
	}
	p.step = deleting
	if err := p.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := oldest(); got != 0 {
		t.Errorf("with nothing expired it shows %v s", got)
	}
	for _, o := range p.kinds {
		indexed := dbtest.Value[bool](t, d, `
			SELECT EXISTS (SELECT FROM pg_indexes WHERE tablename = $1 AND indexdef ~ ('\(' || $2 || '[,)]'))`, o.Table, o.Since)
		if !indexed {
			t.Errorf("no index of %s begins with %s", o.Table, o.Since)
		}
	}
}

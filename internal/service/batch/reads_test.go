package batch

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/batcher"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// asked is a query with its result.
type asked struct {
	alone bool
	stack string
}

var by = auth.By{GuildID: "guild", ID: "token"}

// asking returns the Reads of a database with the given number of connections for reads.
func asking(t *testing.T, places int) (r *Reads[*asked], d *db.DB, ask func() *asked) {
	t.Helper()
	d, err := db.Open(db.Config{URL: dbtest.New(t).URL, Writers: 1, Readers: places})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	answered := func(ctx context.Context, q db.Querier, list []*asked, alone bool) error {
		for _, a := range list {
			a.alone, a.stack = alone, string(debug.Stack())
		}
		_, err := db.Get[int](ctx, q, `SELECT 1`)
		return err
	}
	r = NewReads(host(d), "ask", func(ctx context.Context, q db.Querier, a *asked) error {
		return answered(ctx, q, []*asked{a}, true)
	}, func(ctx context.Context, q db.Querier, list []*asked) error { return answered(ctx, q, list, false) })
	return r, d, func() *asked {
		t.Helper()
		a := &asked{}
		if err := r.Do(d.Reading(caller(t)), by, a); err != nil {
			t.Error(err)
		}
		return a
	}
}

func caller(t *testing.T) context.Context {
	t.Helper()
	return db.As(t.Context(), db.Caller{Token: by.ID, Guild: by.GuildID})
}

// A read beside few others runs at once, on its caller's goroutine.
func TestAReadAmongFewIsMadeAtOnce(t *testing.T) {
	t.Parallel()
	_, d, ask := asking(t, 4)
	for range 10 {
		if a := ask(); !a.alone || !strings.Contains(a.stack, "TestAReadAmongFewIsMadeAtOnce") {
			t.Errorf("alone %t, from %s", a.alone, a.stack)
		}
	}
	if s := d.Stats().Reads; s.Held != 0 {
		t.Errorf("%d places are held", s.Held)
	}
}

// crowd keeps fewReads reads unreleased until the test ends, so that further reads are
// batched.
func crowd(t *testing.T, r *Reads[*asked]) {
	t.Helper()
	for range fewReads {
		fallback, ok := errors.AsType[*batcher.Fallback](r.batches.Do(t.Context(), batcher.Caller{}, &asked{}))
		if !ok {
			t.Fatal("a read among few is batched")
		}
		t.Cleanup(fallback.Release)
	}
}

// A read beside more than few others is batched. The batch's connection counts for no token,
// so this holds for a token that has all connections that it may have.
func TestAReadAmongManyGoesIntoABatch(t *testing.T) {
	t.Parallel()
	r, d, ask := asking(t, 2)
	crowd(t, r)
	holding := caller(t)
	if err := d.Queue(holding); err != nil { // the token's share: half of the connections
		t.Fatal(err)
	}
	defer db.Unqueue(holding)
	if a := ask(); a.alone {
		t.Error("the read was not batched")
	}
}

// A read that waits behind a hanging statement falls back to a statement of its own.
// RELIABILITY.md, Overload.
func TestAReadWaitsForNoStatementThatHangs(t *testing.T) {
	t.Parallel()
	r, _, ask := asking(t, 4)
	crowd(t, r)
	hung, begun := make(chan struct{}), make(chan struct{})
	r.each = func(context.Context, db.Querier, []*asked) error {
		close(begun)
		<-hung
		return nil
	}
	var all sync.WaitGroup
	all.Go(func() { ask() })
	<-begun
	if a := ask(); !a.alone {
		t.Error("the read was answered by a statement that hangs")
	}
	close(hung)
	all.Wait()
}

package batch

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/collect"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// asked is a question, and how it was answered.
type asked struct {
	alone bool
	stack string
}

var by = auth.By{GuildID: "guild", ID: "token"}

// asking are questions to a database with so many places for reads.
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

// A read that meets few others is made on its caller's goroutine, as any other read.
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

// crowd fills the reader with as many reads as need not wait for each other, until the
// test ends.
func crowd(t *testing.T, r *Reads[*asked]) {
	t.Helper()
	for range fewReads {
		left, ok := errors.AsType[*collect.Left](r.collector.Do(t.Context(), collect.Caller{}, "", &asked{}))
		if !ok {
			t.Fatal("one among few waits for others")
		}
		t.Cleanup(left.Release)
	}
}

// A read that comes beside more goes into a batch, whose connection counts as no
// token's place: also for a token that holds as many as it may.
func TestAReadAmongManyGoesIntoABatch(t *testing.T) {
	t.Parallel()
	r, d, ask := asking(t, 2)
	crowd(t, r)
	holding := caller(t)
	if _, err := d.Queue(holding); err != nil { // its half
		t.Fatal(err)
	}
	defer db.Unqueue(holding)
	if a := ask(); a.alone {
		t.Error("it was read alone")
	}
}

// A read that waits behind a statement which has hung is made by itself in the end.
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
		t.Error("it was answered by a statement that hangs")
	}
	close(hung)
	all.Wait()
}

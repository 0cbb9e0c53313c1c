package api

import (
	"context"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/labstack/echo/v4"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/service/economy"
)

// asks is a request for a wallet on a database with so many places for reads, and
// what its operation does: it notes the stack that it is served on.
func asks(t *testing.T, places int) (u *units, request func() *reqState, next handler, stack func() string) {
	t.Helper()
	d, err := db.Open(db.Config{URL: dbtest.New(t).URL, Writers: 1, Readers: places})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	numbers, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	u = &units{db: d, readers: readers(d, false, numbers)}
	served := ""
	next = func(rs *reqState) error {
		if q := wantedOf(rs.Request().Context()); q != nil {
			q.of, q.visit = &economy.Query{Guild: "guild", User: "1"}, func(http.ResponseWriter) error {
				served = "a batch"
				return nil
			}
			return nil
		}
		served = string(debug.Stack())
		return nil
	}
	request = func() *reqState {
		rs := stated(db.As(t.Context(), db.Caller{Token: "token", Guild: "guild"}))
		rs.op = &operation{ID: "getWallet", ReadOnly: true, Scope: "economy:read", Collected: true}
		rs.by = &auth.Principal{By: auth.By{GuildID: "guild", ID: "token"}}
		rs.SetResponse(echo.NewResponse(rs.Response().Writer, rs.Echo()))
		return rs
	}
	return u, request, next, func() string { return served }
}

// A read that meets few others is made on its caller's goroutine, as any other read.
func TestAReadAmongFewIsMadeAtOnce(t *testing.T) {
	t.Parallel()
	u, request, next, stack := asks(t, 4)
	for range 10 {
		if err := u.query(request(), u.readers["getWallet"], next); err != nil || !strings.Contains(stack(), "api.(*units).read(") {
			t.Errorf("%v, served from %s", err, stack())
		}
	}
	if s := u.db.Stats().Reads; s.Held != 0 {
		t.Errorf("%d places are held", s.Held)
	}
}

// crowded fills the reader of wallets with as many reads as need not wait for each
// other, until the test ends.
func crowded(t *testing.T, u *units) *reader {
	t.Helper()
	r := u.readers["getWallet"]
	begun, over := make(chan bool), make(chan struct{})
	var all sync.WaitGroup
	for range fewReads {
		all.Go(func() {
			r.collector.Now(func() {
				begun <- true
				<-over
			})
		})
		<-begun
	}
	t.Cleanup(func() {
		close(over)
		all.Wait()
	})
	return r
}

// What comes beside more goes into a batch, whose connection is nobody's place: also
// for a token that holds as many as it may.
func TestAReadAmongManyGoesIntoABatch(t *testing.T) {
	t.Parallel()
	u, request, next, stack := asks(t, 2)
	r := crowded(t, u)
	one := request()
	if _, err := u.db.Queue(one.ctx); err != nil { // its half
		t.Fatal(err)
	}
	defer db.Unqueue(one.ctx)
	if err := u.query(request(), r, next); err != nil || stack() != "a batch" {
		t.Errorf("%v, served from %s", err, stack())
	}
}

// A read that waits behind a statement which has hung is made by itself in the end.
// RELIABILITY.md, Overload.
func TestAReadWaitsForNoStatementThatHangs(t *testing.T) {
	t.Parallel()
	u, request, next, stack := asks(t, 4)
	r := crowded(t, u)
	hung, begun := make(chan struct{}), make(chan struct{})
	r.each = func(context.Context, db.Querier, []any) error {
		close(begun)
		<-hung
		return nil
	}
	var all sync.WaitGroup
	all.Go(func() {
		if err := u.query(request(), r, func(rs *reqState) error {
			q := wantedOf(rs.Request().Context())
			q.of, q.visit = &economy.Query{}, func(http.ResponseWriter) error { return nil }
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	<-begun
	if err := u.query(request(), r, next); err != nil || !strings.Contains(stack(), "api.(*units).read(") {
		t.Errorf("%v, served from %s", err, stack())
	}
	close(hung)
	all.Wait()
}

package api

import (
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/labstack/echo/v4"

	"guildhall/internal/auth"
	"guildhall/internal/db"
	"guildhall/internal/db/dbtest"
	"guildhall/internal/economy"
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
		if q := querying(rs.Request().Context()); q != nil {
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
		rs.by = &auth.Principal{TokenID: "token", GuildID: "guild"}
		rs.SetResponse(echo.NewResponse(rs.Response().Writer, rs.Echo()))
		return rs
	}
	return u, request, next, func() string { return served }
}

// A read that meets no other is made on its caller's goroutine, as any other read.
func TestAReadAloneIsMadeAtOnce(t *testing.T) {
	t.Parallel()
	u, request, next, stack := asks(t, 4)
	for range 10 {
		if err := u.query(request(), u.readers["getWallet"], next); err != nil || !strings.Contains(stack(), "api.(*units).query(") {
			t.Errorf("%v, served from %s", err, stack())
		}
	}
	if s := u.db.Stats().Reads; s.Held != 0 {
		t.Errorf("%d places are held", s.Held)
	}
}

// A token that holds as many places as it may still reads together with others, and
// holds no lane meanwhile in which others would be read.
func TestAReadWithoutAPlaceOfItsOwnGoesIntoABatch(t *testing.T) {
	t.Parallel()
	u, request, next, stack := asks(t, 2)
	one := request()
	if _, err := u.db.Queue(one.ctx); err != nil { // its half
		t.Fatal(err)
	}
	defer db.Unqueue(one.ctx)
	if err := u.query(request(), u.readers["getWallet"], next); err != nil || stack() != "a batch" {
		t.Errorf("%v, served from %s", err, stack())
	}
}

// A read that waits behind statements which have hung is made by itself in the end.
// RELIABILITY.md, Overload.
func TestAReadWaitsForNoStatementThatHangs(t *testing.T) {
	t.Parallel()
	u, request, next, stack := asks(t, 4)
	hung, begun := make(chan struct{}), make(chan bool)
	var all sync.WaitGroup
	for range 4 { // as many as there may be beside each other
		all.Go(func() {
			u.readers["getWallet"].collector.Now(func() bool {
				begun <- true
				<-hung
				return true
			})
		})
		<-begun
	}
	if err := u.query(request(), u.readers["getWallet"], next); err != nil || !strings.Contains(stack(), "api.(*units).read(") {
		t.Errorf("%v, served from %s", err, stack())
	}
	close(hung)
	all.Wait()
}

package api

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"guildhall/internal/db"
	"guildhall/internal/db/dbtest"
)

// reading is a request for op on a database with a single place for reads.
func reading(t *testing.T) (u *units, request func() *reqState) {
	t.Helper()
	d, err := db.Open(db.Config{URL: dbtest.New(t).URL, Writers: 1, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return &units{db: d}, func() *reqState {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		return &reqState{
			Context: echo.New().NewContext(r, httptest.NewRecorder()), op: &operation{ReadOnly: true, Scope: "economy:read"},
			ctx: db.As(t.Context(), db.Caller{Token: "token", Guild: "guild"}),
		}
	}
}

// Where thousands of connections wait for their turn, none of them keeps the stack
// that serving its requests takes. What is served at once stays where it is.
// RELIABILITY.md, Overload.
func TestWhoHasWaitedIsServedOnAnotherStack(t *testing.T) {
	t.Parallel()
	u, request := reading(t)
	serve := func() (stack string, err error) {
		err = u.read(request(), func(*reqState) error {
			stack = string(debug.Stack())
			return nil
		})
		return stack, err
	}
	const here = "api.(*units).read("
	if stack, err := serve(); err != nil || !strings.Contains(stack, here) {
		t.Errorf("nobody waits: %v, served from %s", err, stack)
	}
	leave := occupy(t, u, request())
	go leave()
	if stack, err := serve(); err != nil || strings.Contains(stack, here) {
		t.Errorf("after a wait: %v, served from %s", err, stack)
	}
}

// occupy takes the only place. leave gives it back once somebody waits for it.
func occupy(t *testing.T, u *units, by *reqState) (leave func()) {
	t.Helper()
	if _, err := u.db.Queue(by.ctx); err != nil {
		t.Fatal(err)
	}
	return func() {
		for u.db.Stats().Reads.Waiting == 0 && t.Context().Err() == nil {
			runtime.Gosched()
		}
		db.Unqueue(by.ctx)
	}
}

func TestAPanicAfterAWaitIsAnError(t *testing.T) {
	t.Parallel()
	u, request := reading(t)
	go occupy(t, u, request())()
	err := u.read(request(), func(*reqState) error { panic("broken") })
	if err == nil || !strings.Contains(err.Error(), "panic: broken") {
		t.Errorf("it ends with %v", err)
	}
	if err := u.read(request(), func(*reqState) error { return nil }); err != nil {
		t.Errorf("the place was not given back: %v", err)
	}
}

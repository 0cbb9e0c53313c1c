package failure_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/server/failure"
)

// Every kind of fault has a status, and so has every code about HTTP.
func TestEveryKindHasAStatus(t *testing.T) {
	t.Parallel()
	for kind, want := range map[fault.Kind]int{
		fault.Internal: 500, fault.Invalid: 400, fault.Unauthenticated: 401, fault.Forbidden: 403, fault.NotFound: 404, fault.Refused: 422,
		fault.Conflict: 409, fault.Limited: 429, fault.Upstream: 502, fault.Unavailable: 503,
	} {
		if got := failure.Status(fault.New(kind, "some_code", "Words.")); got != want {
			t.Errorf("kind %d is %d, want %d", kind, got, want)
		}
	}
	if got := failure.Status(fault.New(fault.Unavailable+1, "some_code", "Words.")); got != 0 {
		t.Errorf("a kind of failure is missing in this test, or has no status: %d", got)
	}
	for code, want := range map[string]int{
		failure.MethodNotAllowed: 405, failure.PayloadTooLarge: 413, failure.UnsupportedMediaType: 415,
	} {
		if got := failure.Status(fault.New(fault.Forbidden, code, "Words.")); got != want {
			t.Errorf("%s is %d, want %d", code, got, want)
		}
	}
}

// A fault is shown as it is. Any other error is replaced by the caller's words, and only the log
// gets its text.
func TestUnknownErrorsAreToldInWordsThatHideThem(t *testing.T) {
	t.Parallel()
	words := failure.Words{
		Unavailable: fault.New(fault.Unavailable, "service_unavailable", "Later."),
		Internal:    fault.New(fault.Internal, "internal_error", "Ours."),
	}
	known := fault.New(fault.Refused, "some_code", "Words.")
	secret := errors.New("password")
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"a fault":             {fmt.Errorf("wrapped: %w", known), "Words."},
		"a fault of ours":     {fault.New(fault.Internal, "x", "The password is x."), "Ours."},
		"too slow":            {fmt.Errorf("read: %w", context.DeadlineExceeded), "Later."},
		"the caller has gone": {fmt.Errorf("read: %w", context.Canceled), "Later."},
		"overtaken each time": {fmt.Errorf("write: %w", db.Again), "Later."},
		"anything else":       {secret, "Ours."},
	} {
		if got := words.Of(tt.err); got.Message != tt.want {
			t.Errorf("%s is told as %q, want %q", name, got.Message, tt.want)
		}
	}
	if got := words.Of(secret); !errors.Is(got, secret) {
		t.Error("the log does not learn the cause")
	}
	for d, want := range map[time.Duration]int{0: 1, time.Millisecond: 1, time.Second: 1, 1001 * time.Millisecond: 2} {
		if got := failure.Seconds(d); got != want {
			t.Errorf("%v is %d seconds, want %d", d, got, want)
		}
	}
}

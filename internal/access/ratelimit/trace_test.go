package ratelimit_test

import (
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"guildhall/internal/access/ratelimit"
)

// Each call of Redis has a span in the caller's trace, with the command and whether it failed, and
// without a key (which names a token or an address), a script or a password.
func TestCallsOfRedisAreTraced(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	redis.RequireAuth("secret")
	cfg := ratelimit.Config{RedisURL: "redis://:secret@" + redis.Addr(), Budget: longBudget, Traced: true}
	limits, quota := limiter(t, cfg), quota(t, "5/1m")
	windows, err := ratelimit.NewWindows(cfg, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer windows.Close()
	spans := tracetest.NewSpanRecorder()
	ctx, whole := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "whole")
	limits.Spend(ctx, "secret", quota)
	windows.Count(ctx, 1, "secret")
	windows.Count(ctx, 1, "secret")
	redis.SetError("LOADING the secret")
	limits.Spend(ctx, "secret", quota)
	redis.Close()
	limits.Spend(ctx, "secret", quota)

	var calls []string
	for _, s := range spans.Ended() {
		if s.SpanKind() != trace.SpanKindClient || s.Parent().SpanID() != whole.SpanContext().SpanID() {
			t.Errorf("%s is a %s of %s", s.Name(), s.SpanKind(), s.Parent().SpanID())
		}
		want := []attribute.KeyValue{attribute.String("db.system.name", "redis"), attribute.String("db.operation.name", s.Name())}
		call := s.Name()
		if failure := s.Status().Description; failure != "" {
			want = append(want, attribute.String("error.type", failure))
			call += " " + failure
		}
		if !slices.Equal(s.Attributes(), want) || len(s.Events()) != 0 {
			t.Errorf("%s has %v, want %v; events: %v", s.Name(), s.Attributes(), want, s.Events())
		}
		calls = append(calls, call)
	}
	want := []string{
		"HELLO", "EVALSHA NOSCRIPT", "EVAL", // the first call opens a connection, and the script is not loaded yet
		"HELLO", "EVALSHA NOSCRIPT", "EVAL", "EVALSHA",
		"EVALSHA LOADING", "EVALSHA connection",
	}
	if !slices.Equal(calls, want) {
		t.Errorf("called %q, want %q", calls, want)
	}
}

// Without tracing no hook is installed.
func TestWithoutTracesRedisIsCalledAsEver(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	ctx, _ := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "whole")
	limits := limiter(t, ratelimit.Config{RedisURL: "redis://" + miniredis.RunT(t).Addr(), Budget: longBudget})
	if !limits.Spend(ctx, "key", quota(t, "5/1m")).Allowed || len(spans.Ended()) != 0 {
		t.Errorf("%d spans", len(spans.Ended()))
	}
}

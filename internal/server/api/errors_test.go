package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/usage"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/tracing"
)

func TestSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "1", time.Nanosecond: "1", time.Second: "1", time.Second + 1: "2",
		59*time.Second + time.Millisecond: "60",
	} {
		if got := seconds(d); got != want {
			t.Errorf("%v is %s seconds, want %s", d, got, want)
		}
	}
}

func TestWhatEchoRefusesIsTheCallersFault(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]string{
		399: "internal_error", 400: "invalid_request", 404: "not_found", 405: "method_not_allowed", 413: "payload_too_large",
		499: "invalid_request", 500: "internal_error",
	} {
		if got := classify(echo.NewHTTPError(code, "secret"), "id"); got.Code != want || strings.Contains(got.Message, "secret") {
			t.Errorf("%d is %s: %s, want %s", code, got.Code, got.Message, want)
		}
	}
}

func TestOnlyOurOwnFailuresAreHidden(t *testing.T) {
	t.Parallel()
	if f := classify(fault.New(fault.Internal, "some_code", "secret"), "id"); f.Code != "internal_error" ||
		strings.Contains(f.Message, "secret") || !strings.Contains(f.Error(), "secret") {
		t.Errorf("a failure of ours is shown as %s: %s, and logged as %v", f.Code, f.Message, f)
	}
	if f := classify(fault.New(fault.Refused, "some_code", "a reason"), "id"); f.Code != "some_code" || f.Message != "a reason" {
		t.Errorf("a refusal is shown as %s: %s", f.Code, f.Message)
	}
}

func TestRetryAfterIsSaidWhereItIsKnown(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]string{-1: "", 0: "", 1: "1", 5 * time.Second: "5"} {
		w := httptest.NewRecorder()
		writeFault(w, fault.New(fault.Unavailable, "service_unavailable", "Later.").After(after))
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%v is said as %q, want %q", after, got, want)
		}
	}
}

// Compressing a very short document would make it longer.
func TestADocumentIsCompressedWhereThatMakesItShorter(t *testing.T) {
	t.Parallel()
	equal := false
	for n := range 64 {
		body := bytes.Repeat([]byte("a"), n)
		p := newPage("text/plain", body)
		var packed bytes.Buffer
		z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = z.Write(body)
		_ = z.Close()
		equal = equal || packed.Len() == n
		if got, want := p.small != nil, packed.Len() < n; got != want {
			t.Errorf("%d bytes that compress to %d: compressed %v, want %v", n, packed.Len(), got, want)
		}
	}
	if !equal {
		t.Error("no document was as long as its compressed form")
	}
}

// A 503 has a Retry-After header.
func TestWhatMayPassIsUnavailableForFiveSeconds(t *testing.T) {
	t.Parallel()
	for _, err := range []error{context.DeadlineExceeded, context.Canceled} {
		if f := classify(err, "id"); f.Code != "service_unavailable" || f.RetryAfter != 5*time.Second {
			t.Errorf("%v is %s, and may be tried again after %v", err, f.Code, f.RetryAfter)
		}
	}
}

// The log line and the metrics show how each request ended and how long it took. RELIABILITY.md,
// Overload.
func TestARequestIsLoggedAndCounted(t *testing.T) {
	t.Parallel()
	by := &auth.Principal{By: auth.By{GuildID: "guild", ID: "token"}}
	op := &operation{ID: "getWallet", ReadOnly: true}
	for name, c := range map[string]struct {
		is      reqState // what the middlewares have found out
		gone    bool     // the caller has hung up
		found   bool     // the read has a response
		fails   error
		logged  string
		silent  string // must not be in the log
		counted usage.Request
	}{
		"a success": {
			is:     reqState{op: op, by: by, trace: "abc"},
			logged: `"level":"INFO","msg":"request","took_ms":1500,"token_id":"token","guild_id":"guild","trace_id":"abc"`, silent: "code",
			counted: usage.Request{Guild: "guild", Token: "token", Operation: "getWallet", Status: 204},
		},
		"a refusal": {
			is: reqState{by: by}, fails: invalid("It is wrong.").Because(errors.New("why")),
			logged:  `"level":"INFO","msg":"request","took_ms":1500,"token_id":"token","guild_id":"guild","code":"invalid_request","cause":"why"`,
			silent:  "trace_id",
			counted: usage.Request{Guild: "guild", Token: "token", Status: 400, Code: "invalid_request", Message: "It is wrong."},
		},
		"a token that was refused": {
			is: reqState{refused: by}, fails: fault.New(fault.Forbidden, "ip_not_allowed", "Not from here."),
			logged: `"level":"INFO","msg":"request","took_ms":1500,"code":"ip_not_allowed"`, silent: "cause",
			counted: usage.Request{Guild: "guild", Token: "token", Status: 403, Code: "ip_not_allowed", Message: "Not from here."},
		},
		"a token that has ended": {
			is: reqState{refused: by, ended: true}, fails: fault.New(fault.Unauthenticated, "invalid_token", "Who is that?"),
			logged: `"level":"INFO","msg":"request","took_ms":1500,"code":"invalid_token"`, silent: "guild_id",
			counted: usage.Request{Guild: "guild", Token: "token", Ended: true, Status: 401, Code: "invalid_token", Message: "Who is that?"},
		},
		"a scope that is missing": {
			is:     reqState{op: op, by: by},
			fails:  &fault.Error{Kind: fault.Forbidden, Code: "insufficient_scope", Message: "No.", RequiredScope: "economy:read"},
			logged: `"level":"INFO","msg":"request","took_ms":1500,"token_id":"token","guild_id":"guild","code":"insufficient_scope"`,
			silent: "cause",
			counted: usage.Request{
				Guild: "guild", Token: "token", Operation: "getWallet", Status: 403, Code: "insufficient_scope", Message: "No.", Scope: "economy:read",
			},
		},
		"what the chat platform does not take": {
			is: reqState{op: op, by: by}, fails: fault.New(fault.Upstream, "discord_send_failed", "It was not taken."),
			logged: `"level":"WARN","msg":"request","took_ms":1500,"token_id":"token","guild_id":"guild","code":"discord_send_failed"`,
			silent: "ERROR",
			counted: usage.Request{
				Guild: "guild", Token: "token", Operation: "getWallet", Status: 502, Code: "discord_send_failed", Message: "It was not taken.",
			},
		},
		"a failure": {
			is: reqState{op: op, by: by}, fails: errors.New("broken"),
			logged:  `"level":"ERROR","msg":"request","took_ms":1500,"token_id":"token","guild_id":"guild","code":"internal_error","cause":"broken"`,
			counted: usage.Request{Guild: "guild", Token: "token", Operation: "getWallet", Status: 500, Code: "internal_error"},
			silent:  "trace_id",
		},
		"what a caller no longer waits for": {
			is: reqState{by: by}, gone: true, fails: db.ErrBusy,
			logged: `"level":"INFO","msg":"request","took_ms":1500,"token_id":"token","guild_id":"guild","code":"client_closed"`,
			silent: "cause",
			counted: usage.Request{
				Guild: "guild", Token: "token", Status: 503, Code: "service_unavailable",
				Message: "The service is busy; try the same request again.",
			},
		},
		"a refusal that its caller does not read": {
			is: reqState{by: by}, gone: true, fails: invalid("It is wrong."),
			logged:  `"level":"INFO","msg":"request","took_ms":1500,"token_id":"token","guild_id":"guild","code":"invalid_request"`,
			silent:  "client_closed",
			counted: usage.Request{Guild: "guild", Token: "token", Status: 400, Code: "invalid_request", Message: "It is wrong."},
		},
		"a read that fails when its caller has gone": {
			is: reqState{op: op, by: by}, gone: true, fails: fault.New(fault.NotFound, "not_found", "It is not there."),
			logged: `"level":"INFO","msg":"request","took_ms":1500,"token_id":"token","guild_id":"guild","code":"client_closed"`,
			silent: "not_found",
		},
		"our fault when the caller of a read has gone": {
			is: reqState{op: op, by: by}, gone: true, fails: errors.New("broken"),
			logged:  `"level":"ERROR","msg":"request","took_ms":1500,"token_id":"token","guild_id":"guild","code":"internal_error","cause":"broken"`,
			counted: usage.Request{Guild: "guild", Token: "token", Operation: "getWallet", Status: 500, Code: "internal_error"},
			silent:  "client_closed",
		},
		"a read that its caller does not wait for": {
			is: reqState{op: op, by: by}, gone: true, found: true,
			logged:  `"level":"INFO","msg":"request","took_ms":1500,"token_id":"token","guild_id":"guild","code":"client_closed"`,
			counted: usage.Request{Guild: "guild", Token: "token", Operation: "getWallet", Status: 200}, silent: "trace_id",
		},
		"a write that was committed for a caller that has gone": {
			is: reqState{op: &operation{ID: "createCase"}, by: by}, gone: true,
			logged: `"level":"INFO","msg":"request","took_ms":1500,"token_id":"token","guild_id":"guild"`, silent: "client_closed",
			counted: usage.Request{Guild: "guild", Token: "token", Operation: "createCase", Status: 204},
		},
		"nobody's": {
			fails:  fault.New(fault.Unauthenticated, "missing_token", "Who are you?"),
			logged: `"level":"INFO","msg":"request","took_ms":1500,"code":"missing_token"`, silent: "token_id",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				numbers, err := newMetrics(nil)
				if err != nil {
					t.Fatal(err)
				}
				var text bytes.Buffer
				log := slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if slices.Contains([]string{"time", "request_id", "method", "route", "status", "bytes", "from"}, a.Key) {
						return slog.Attr{}
					}
					return a
				}}))
				var counted usage.Request
				rs := c.is
				rs.Context = stated(t.Context()).Context
				caller, leave := context.WithCancel(t.Context())
				defer leave()
				if c.gone {
					leave()
				}
				rs.SetRequest(rs.Request().WithContext(caller))
				begun := time.Now()
				_ = accessLog(log, numbers, func(r usage.Request) { counted = r }, nil)(func(rs *reqState) error {
					time.Sleep(1500 * time.Millisecond) // on the test's own clock
					if c.found {
						rs.Response().Writer = &whole{ResponseWriter: rs.Response().Writer, of: rs}
						return rs.JSON(http.StatusOK, "found")
					}
					if c.fails == nil {
						return rs.NoContent(http.StatusNoContent)
					}
					return c.fails
				})(&rs)
				if got := text.String(); got != "{"+c.logged+"}\n" || strings.Contains(got, c.silent) {
					t.Errorf("logged is %s, want %s", got, c.logged)
				}
				if closed := strings.Contains(c.logged, "client_closed"); closed != (rs.status() == statusClosed) {
					t.Errorf("the status is %d", rs.status())
				}
				if c.counted.Status == http.StatusInternalServerError {
					c.counted.Message = "Something went wrong on our side. Quote request " + rs.id + "."
				}
				if c.counted.Guild != "" {
					c.counted.RequestID, c.counted.At = rs.id, begun
				}
				if counted != c.counted {
					t.Errorf("counted is %+v, want %+v", counted, c.counted)
				}
			})
		})
	}
}

// A span has the same properties as the log line, and is marked as failed only for our own errors.
func TestASpanTellsOfItsRequest(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	ctx, whole := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "whole")
	defer whole.End()
	for _, c := range []struct {
		is     reqState
		status int
		want   map[string]string
	}{
		{reqState{}, 401, map[string]string{"guildhall.code": "the_code"}},
		{
			reqState{op: &operation{ID: "getWallet"}, by: &auth.Principal{By: auth.By{GuildID: "guild", ID: "token"}}},
			499,
			map[string]string{
				"guildhall.code": "the_code", "guildhall.operation": "getWallet", "guildhall.guild_id": "guild", "guildhall.token_id": "token",
			},
		},
		{reqState{}, 500, map[string]string{"guildhall.code": "the_code", "error.type": "the_code"}},
	} {
		rs := c.is
		rs.Context, rs.id, rs.refusal = stated(ctx).Context, "id", fault.New(fault.Internal, "the_code", "It failed.")
		rs.Response().Status = c.status
		span := tracing.Child(ctx, "request")
		setAttributes(span, &rs)
		span.End()
		c.want["http.request.method"], c.want["guildhall.request_id"] = http.MethodGet, "id"
		c.want["http.response.status_code"] = strconv.Itoa(c.status)
		got := map[string]string{}
		for _, a := range spans.Ended()[len(spans.Ended())-1].Attributes() {
			got[string(a.Key)] = a.Value.String()
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%d is told as %v, want %v", c.status, got, c.want)
		}
	}
}

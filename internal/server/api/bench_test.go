package api

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/service/tickets"
	"guildhall/internal/service/webhooks"
)

type anyone struct{ by *auth.Principal }

func (a anyone) Authenticate(context.Context, string, netip.Addr) (*auth.Principal, error) {
	return a.by, nil
}

func (anyone) Guild(context.Context, string) (auth.Presence, error) { return auth.Present, nil }

// BenchmarkChain measures a read without its query. The target is 20 microseconds and 100
// allocations more than an empty Echo handler.
func BenchmarkChain(b *testing.B) {
	limits, err := ratelimit.New(ratelimit.Config{})
	if err != nil {
		b.Fatal(err)
	}
	box, err := seal.New(make([]byte, 32))
	if err != nil {
		b.Fatal(err)
	}
	quota := ratelimit.Quota{Limit: 1 << 30, Window: time.Minute}
	handler, err := New(Config{
		DB: &db.DB{}, Tokens: anyone{&auth.Principal{By: auth.By{GuildID: "42", ID: db.NewID()}, CreatedAt: time.Now(), LastUsedAt: time.Now()}},
		Limits: limits, Quotas: Quotas{Read: quota, Write: quota, Bot: quota, Login: quota}, Env: "test", Sealer: box,
		Log:      slog.New(slog.NewJSONHandler(io.Discard, nil)), //nolint:sloglint // the lines are made, as in production
		Services: Services{Tickets: &tickets.Service{}, Webhooks: &webhooks.Service{}},
		Proxies:  []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	if err != nil {
		b.Fatal(err)
	}
	empty := echo.New()
	empty.GET(Prefix+"/health", func(c echo.Context) error { return c.JSON(http.StatusOK, map[string]string{"status": "ok"}) })
	for name, h := range map[string]http.Handler{"chain": handler, "empty": empty} {
		b.Run(name, func(b *testing.B) {
			req := httptest.NewRequest(http.MethodGet, Prefix+"/health", nil)
			req.RemoteAddr = "127.0.0.1:1234"
			req.Header.Set("Authorization", "Bearer svc_test_0123456789012345678901234567890123456789012")
			req.Header.Set("X-Forwarded-Proto", "https")
			req.Header.Set("X-Forwarded-For", "203.0.113.9")
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, req)
				if w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body.String())
				}
			}
		})
	}
}

package api_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/tracing"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

// fill returns a valid value for each path parameter of an operation.
func fill(op apitest.Operation) []apitest.Arg {
	var args []apitest.Arg
	for part := range strings.SplitSeq(op.Path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			args = append(args, apitest.Path(strings.TrimSuffix(name, "}"), "42"))
		}
	}
	return args
}

// tokens is an authenticator that always returns the same result.
type tokens struct {
	by  *auth.Principal
	err error
}

func (s tokens) Authenticate(context.Context, string, netip.Addr) (*auth.Principal, error) {
	return s.by, s.err
}

func (tokens) Guild(context.Context, string) (auth.Presence, error) { return auth.Present, nil }

func with(err error) apitest.Option {
	return apitest.With(func(c *api.Config) { c.Tokens = tokens{err: err} })
}

// each runs a subtest for every operation of the contract.
func each(t *testing.T, what func(t *testing.T, op apitest.Operation)) {
	t.Helper()
	for _, op := range apitest.Operations() {
		t.Run(op.ID, func(t *testing.T) { what(t, op) })
	}
}

func TestEveryOperationNeedsAToken(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	nobody := *server
	nobody.Token = ""
	unknown := *server
	unknown.Token = "svc_test_" + strings.Repeat("A", 43)
	each(t, func(t *testing.T, op apitest.Operation) {
		a := nobody.Do(t, op.ID, "", fill(op)...).WantError(t, 401, "missing_token")
		if got := a.Header.Get("WWW-Authenticate"); got != "Bearer" {
			t.Errorf("WWW-Authenticate is %q", got)
		}
	})
	unknown.Do(t, "getMe", "").WantError(t, 401, "invalid_token")
}

// RELIABILITY.md, Tokens.
func TestGuessingIsSlow(t *testing.T) {
	t.Parallel()
	server := apitest.New(t, apitest.With(func(c *api.Config) {
		c.Quotas.Login = ratelimit.Quota{Limit: 3, Window: time.Hour}
	}))
	wrong := *server
	wrong.Token = "svc_test_" + strings.Repeat("B", 43)
	for range 3 {
		wrong.Do(t, "getMe", "").WantError(t, 401, "invalid_token")
	}
	a := wrong.Do(t, "getMe", "").WantError(t, 429, "rate_limited")
	if a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	// A neighbour behind the same address is not locked out.
	server.Do(t, "getMe", "").Want(t, 200, "")
}

// Refusals by the allowlist count against the address too, so a stolen token reveals little
// elsewhere. A token that cannot be looked up does not count.
func TestRefusalsSpendTheAddresssBucket(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fails      error
		status     int
		code, last string
	}{
		{fault.New(fault.Forbidden, "ip_not_allowed", "Not from here."), 403, "ip_not_allowed", "rate_limited"},
		{fault.New(fault.Unavailable, "service_unavailable", "Not now.").After(time.Second), 503, "service_unavailable", "service_unavailable"},
	} {
		server := apitest.New(t, with(c.fails), apitest.With(func(cfg *api.Config) {
			cfg.Quotas.Login = ratelimit.Quota{Limit: 3, Window: time.Hour}
		}))
		for range 3 {
			server.Do(t, "getMe", "").WantError(t, c.status, c.code)
		}
		if a := server.Do(t, "getMe", ""); a.Code() != c.last {
			t.Errorf("after three times %s: %d %s", c.code, a.Status, a.Body)
		}
	}
}

func TestEveryOperationIsHTTPSOnly(t *testing.T) {
	t.Parallel()
	server := apitest.New(t, apitest.With(func(c *api.Config) {
		// The test client uses TLS; a trusted proxy's header that says otherwise is believed.
		c.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})).Header("X-Forwarded-Proto", "http")
	each(t, func(t *testing.T, op apitest.Operation) {
		server.Do(t, op.ID, "", fill(op)...).WantError(t, 403, "https_required")
	})
}

// RELIABILITY.md, Tokens.
func TestEveryOperationKeepsToTheAllowlist(t *testing.T) {
	t.Parallel()
	server := apitest.New(t, apitest.AllowIP("203.0.113.0/24"))
	each(t, func(t *testing.T, op apitest.Operation) {
		server.Do(t, op.ID, "", fill(op)...).WantError(t, 403, "ip_not_allowed")
	})
}

// RELIABILITY.md, Neighbours.
func TestEveryOperationIsLimited(t *testing.T) {
	t.Parallel()
	one := ratelimit.Quota{Limit: 1, Window: time.Hour}
	server := apitest.New(t, apitest.With(func(c *api.Config) { c.Quotas.Read, c.Quotas.Write = one, one }))
	read := server.Do(t, "getMe", "").Want(t, 200, "")
	for name, want := range map[string]string{"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Bucket": "read"} {
		if got := read.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	server.Do(t, "adjustBalance", `{"user_id":"1","delta":1}`).Want(t, 200, "")
	for path, method := range map[string]string{"/api/v1/nothing": "GET", "/api/v1/me": "DELETE", "/api/v1/cases": "OPTIONS"} {
		a := server.Raw(t, method, path, "").WantError(t, 429, "rate_limited") // a request that matches no operation counts as a read
		if got := a.Header.Get("X-RateLimit-Bucket"); got != "read" {
			t.Errorf("%s %s spends the bucket %q", method, path, got)
		}
	}
	each(t, func(t *testing.T, op apitest.Operation) {
		a := server.Do(t, op.ID, "", fill(op)...).WantError(t, 429, "rate_limited")
		bucket := "write"
		if op.Method == http.MethodGet || op.LongPoll() {
			bucket = "read"
		}
		if a.Header.Get("Retry-After") == "" || a.Header.Get("X-RateLimit-Bucket") != bucket {
			t.Errorf("headers: %v", a.Header)
		}
	})
}

func TestEveryWriteChecksItsFrame(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	each(t, func(t *testing.T, op apitest.Operation) {
		if op.Method == http.MethodGet {
			return
		}
		server := server.May(t, op)
		most, own := op.Spec.Extensions["x-max-body"].(float64)
		if !own {
			most = 65536
		}
		server.Do(t, op.ID, strings.Repeat(" ", int(most)+1), fill(op)...).WantError(t, 413, "payload_too_large")
		for _, media := range []string{"text/plain", "application/json; charset=latin1", "application/jsonp", ""} {
			server.Header("Content-Type", media).Do(t, op.ID, "{}", fill(op)...).WantError(t, 415, "unsupported_media_type")
		}
		server.Header("Content-Encoding", "gzip").Do(t, op.ID, "{}", fill(op)...).WantError(t, 415, "unsupported_media_type")
		server.Header("Content-Encoding", "identity").Header("Content-Encoding", "gzip").Do(t, op.ID, "{}", fill(op)...).
			WantError(t, 415, "unsupported_media_type")
		server.Do(t, op.ID, "", append(fill(op), apitest.Query("x", "1"))...).WantError(t, 400, "invalid_request")
		if op.LongPoll() {
			return
		}
		for _, key := range []string{strings.Repeat("k", 129), "a b", "ä", "\t"} {
			server.Header("Idempotency-Key", key).Do(t, op.ID, "", fill(op)...).WantError(t, 400, "invalid_request")
		}
		server.Header("Idempotency-Key", "a").Header("Idempotency-Key", "b").Do(t, op.ID, "", fill(op)...).WantError(t, 400, "invalid_request")
	})
}

func TestEveryReadIgnoresTheKey(t *testing.T) {
	t.Parallel()
	server := apitest.New(t).Header("Idempotency-Key", strings.Repeat("k", 999))
	server.Do(t, "getMe", "").Want(t, 200, "")
	server.Do(t, "getGuild", "").Want(t, 200, "")
}

// RELIABILITY.md, Writes.
func TestEveryWriteTellsDuplicatesAndReuse(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	me := server.Do(t, "getMe", "").Str(t, "token.id")
	each(t, func(t *testing.T, op apitest.Operation) {
		if op.Method == http.MethodGet || op.LongPoll() {
			return
		}
		server := server.May(t, op)
		if op.Spec.Security == nil {
			server.Key("reused").Do(t, "adjustBalance", `{"user_id":"1","delta":1}`)
		} else { // operations of no guild: their keys have another scope
			server.Key("reused").Do(t, "deleteBotStream", "", apitest.Path("name", "none")).WantError(t, 404, "not_found")
		}
		server.Key("reused").Do(t, op.ID, `{"x":1}`, fill(op)...).WantError(t, 409, "idempotency_key_reused")
	})
	t.Run("a duplicate of a running request", func(t *testing.T) {
		inUse := holdKey(t, server, me, "busy")
		defer inUse.release()
		a := server.Key("busy").Do(t, "adjustBalance", `{"user_id":"1","delta":1}`).WantError(t, 409, "idempotency_key_in_use")
		if a.Header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After is %q", a.Header.Get("Retry-After"))
		}
	})
}

// RELIABILITY.md, Input.
func TestEveryOperationHidesOurFailures(t *testing.T) {
	t.Parallel()
	broken := apitest.New(t, with(errors.New("pq: password authentication failed for secret-user")))
	away := apitest.New(t, with(
		fault.New(fault.Unavailable, "service_unavailable", "The token store cannot be reached.").After(5*time.Second)))
	each(t, func(t *testing.T, op apitest.Operation) {
		a := broken.Do(t, op.ID, "", fill(op)...).WantError(t, 500, "internal_error")
		if strings.Contains(string(a.Body), "secret-user") || !strings.Contains(string(a.Body), a.Header.Get("X-Request-Id")) {
			t.Errorf("the body tells too much, or not the request id: %s", a.Body)
		}
		if got := away.Do(t, op.ID, "", fill(op)...).WantError(t, 503, "service_unavailable").Header.Get("Retry-After"); got != "5" {
			t.Errorf("Retry-After is %q", got)
		}
	})
	if !strings.Contains(broken.Server.Log.String(), "secret-user") {
		t.Error("the log does not tell the cause")
	}
}

// RELIABILITY.md, Input.
func TestPanicsBecomeInternalErrors(t *testing.T) {
	t.Parallel()
	// Calling auth.From without any principal panics.
	server := apitest.New(t, apitest.With(func(c *api.Config) { c.Tokens = tokens{} }))
	server.Do(t, "getMe", "").WantError(t, 500, "internal_error")
}

// RELIABILITY.md, Input.
func TestRoutes(t *testing.T) {
	t.Parallel()
	routes(t, apitest.New(t))
}

// RELIABILITY.md, Input.
func TestRoutesOverHTTP2(t *testing.T) {
	t.Parallel()
	plenty := ratelimit.Quota{Limit: 10_000, Window: time.Hour}
	server := apitest.New(t, apitest.HTTP2(), apitest.With(func(c *api.Config) { c.Quotas.Read, c.Quotas.Write = plenty, plenty }))
	res, err := server.Server.Client.Get(strings.TrimSuffix(server.URL, api.Prefix) + "/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.ProtoMajor != 2 {
		t.Fatalf("the harness speaks %s", res.Proto)
	}
	routes(t, server)
	a := server.Raw(t, "DELETE", "/api/v1/me", "").WantError(t, 405, "method_not_allowed")
	if got := a.Header.Get("X-RateLimit-Bucket"); got != "read" {
		t.Errorf("405 spends the bucket %q", got)
	}
	first := server.Key("k").Do(t, "adjustBalance", `{"user_id":"1","delta":1}`).Want(t, 200, "")
	server.Key("k").Do(t, "adjustBalance", `{"user_id":"1","delta":1}`).WantReplayOf(t, first)
}

func routes(t *testing.T, server *apitest.API) {
	t.Helper()
	nobody := *server
	nobody.Token = ""
	t.Run("nothing is shown without a token", func(t *testing.T) {
		for _, path := range []string{"/api/v1/me", "/api/v1/nothing", "/", "/api/v1/cases/", "/api/v1"} {
			for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS", "TRACE"} {
				if path == "/" && method == "GET" {
					continue // paths of documents need no token
				}
				nobody.Raw(t, method, path, "").WantError(t, 401, "missing_token")
			}
		}
	})
	t.Run("an unknown route is not found, and never a redirect", func(t *testing.T) {
		for _, path := range []string{
			"/api/v1/nothing", "/", "/api/v1/cases/", "/api/v1/Cases", "/api/v1//cases", "/api/v2/me", "/api/v1/me/",
			"/api/v1/economy/wallet/", "/metrics", "/livez", "/debug/pprof/",
		} {
			server.Raw(t, "GET", path, "").WantError(t, 404, "not_found")
		}
	})
	t.Run("the root leads browsers to the reference", func(t *testing.T) {
		nobody.Raw(t, "GET", "/", "").WantError(t, 404, "not_found")
		browser := nobody.Header("Accept", "text/html,application/xhtml+xml;q=0.9")
		if a := browser.Raw(t, "GET", "/", ""); a.Header.Get("Location") != "/docs" {
			t.Errorf("it answers %d, %s", a.Status, a.Header.Get("Location"))
		}
	})
	t.Run("another method is refused with Allow", func(t *testing.T) {
		for path, allow := range map[string][]string{
			"/api/v1/me":             {"GET", "HEAD", "OPTIONS"},
			"/api/v1/cases":          {"GET", "HEAD", "POST", "OPTIONS"},
			"/api/v1/economy/adjust": {"POST", "OPTIONS"},
		} {
			for _, method := range []string{"PUT", "TRACE", "PROPFIND", "DELETE"} {
				a := server.Raw(t, method, path, "").WantError(t, 405, "method_not_allowed")
				wantAllow(t, a, allow)
				if a.Header.Get("X-RateLimit-Bucket") != "read" && server.Token != "" && a.Header.Get("X-RateLimit-Limit") != "" {
					t.Error("405 does not spend the read bucket")
				}
			}
			a := server.Raw(t, "OPTIONS", path, "")
			if a.Status != http.StatusNoContent {
				t.Errorf("OPTIONS %s answered %d", path, a.Status)
			}
			wantAllow(t, a, allow)
		}
	})
	t.Run("HEAD answers like GET without a body", func(t *testing.T) {
		a := server.Raw(t, "HEAD", "/api/v1/me", "")
		if a.Status != 200 || len(a.Body) != 0 || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("HEAD answered %d, %d bytes, %v", a.Status, len(a.Body), a.Header)
		}
		if a := server.Raw(t, "HEAD", "/api/v1/nothing", ""); a.Status != 404 || len(a.Body) != 0 {
			t.Errorf("HEAD of nothing answered %d, %d bytes", a.Status, len(a.Body))
		}
	})
	t.Run("the fixed headers stand on every answer", func(t *testing.T) {
		for _, a := range []*apitest.Response{
			server.Raw(t, "GET", "/api/v1/me", ""), server.Raw(t, "GET", "/nothing", ""), nobody.Raw(t, "GET", "/api/v1/me", ""),
			server.Raw(t, "GET", "/openapi.yaml", ""),
		} {
			cache := "no-store"
			if a.Header.Get("ETag") != "" { // a document is the same for everybody
				cache = "public, max-age=300"
			}
			for name, want := range map[string]string{"Cache-Control": cache, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"} {
				if got := a.Header.Get(name); got != want {
					t.Errorf("%s is %q", name, got)
				}
			}
			if a.Header.Get("X-Request-Id") == "" || a.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("headers: %v", a.Header)
			}
		}
	})
	t.Run("the contract is public", func(t *testing.T) {
		for path, want := range map[string]string{
			"/openapi.yaml": "openapi: 3.0.3", "/openapi.json": `"openapi":"3.0.3"`, "/openapi-3.1.yaml": "openapi: 3.1",
			"/openapi-3.1.json": `"openapi":"3.1`,
		} {
			if a := nobody.Raw(t, "GET", path, ""); a.Status != 200 || !strings.Contains(string(a.Body), want) {
				t.Errorf("%s answered %d without %q", path, a.Status, want)
			}
		}
	})
}

func wantAllow(t *testing.T, a *apitest.Response, want []string) {
	t.Helper()
	var got []string
	for part := range strings.SplitSeq(a.Header.Get("Allow"), ",") {
		got = append(got, strings.TrimSpace(part))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("Allow is %v, want %v", got, want)
	}
}

// Credentials anywhere else than in the Authorization header are not read, and never logged.
// RELIABILITY.md, Tokens.
func TestCredentialsElsewhere(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	nobody := *server
	nobody.Token = ""
	secret := server.Token
	for name, a := range map[string]*apitest.Response{
		"in the query":     nobody.Raw(t, "GET", "/api/v1/me?access_token="+secret, ""),
		"in the body":      nobody.Raw(t, "POST", "/api/v1/economy/adjust", `{"token":"`+secret+`"}`),
		"in a cookie":      nobody.Header("Cookie", "token="+secret).Raw(t, "GET", "/api/v1/me", ""),
		"as Basic":         nobody.Header("Authorization", "Basic "+secret).Raw(t, "GET", "/api/v1/me", ""),
		"without a scheme": nobody.Header("Authorization", secret).Raw(t, "GET", "/api/v1/me", ""),
		"twice": server.Header("Authorization", "Bearer "+secret).Header("Authorization", "Bearer "+secret).
			Raw(t, "GET", "/api/v1/me", ""),
		"in the path":        nobody.Raw(t, "GET", "/api/v1/cases/"+secret, ""),
		"in another header":  nobody.Header("X-Api-Key", secret).Raw(t, "GET", "/api/v1/me", ""),
		"as an empty bearer": nobody.Header("Authorization", "Bearer ").Raw(t, "GET", "/api/v1/me", ""),
	} {
		t.Run(name, func(t *testing.T) { a.WantError(t, 401, "missing_token") })
	}
	server.Header("Authorization", "bEaReR "+secret).Raw(t, "GET", "/api/v1/me", "").Want(t, 200, "")
	server.Raw(t, "GET", "/api/v1/cases/"+secret, "").WantError(t, 404, "not_found")
	if strings.Contains(server.Server.Log.String(), secret[len("svc_test_"):]) {
		t.Error("the secret is in the log")
	}
}

// The audit log of a webhook change names the token and its address.
func TestAChangeOfAWebhookNamesItsToken(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	me := server.Do(t, "getMe", "").Str(t, "token.id")
	made := server.Do(t, "createWebhookEndpoint", `{"url":"https://127.0.0.1:9/hook","events":["case.created"]}`).Want(t, 201, "")
	got := dbtest.Value[string](t, server.DB(), `
		SELECT concat_ws(' ', actor_type, actor_id, actor_name, address, request_id) FROM audit_log WHERE action = 'webhook.created'`)
	if want := "token " + me + " test 127.0.0.1 " + made.Header.Get("X-Request-Id"); got != want {
		t.Errorf("the change was made by %q, want %q", got, want)
	}
	gone := server.Do(t, "deleteWebhookEndpoint", "", apitest.Path("id", made.Str(t, "data.id"))).Want(t, 204, "")
	if media, said := gone.Header["Content-Type"]; said {
		t.Errorf("an answer without a body is said to be %q", media)
	}
}

// With a tracer, a request belongs to the trace that its caller names.
func TestARequestIsTraced(t *testing.T) {
	collector := httptest.NewServer(http.NotFoundHandler())
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	tracer, err := tracing.New(t.Context(), "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close(t.Context())
	const trace = "0af7651916cd43dd8448eb211c80319c"
	server := apitest.New(t, apitest.With(func(c *api.Config) { c.Tracer = tracer }))
	server.Header("Traceparent", "00-"+trace+"-b7ad6b7169203331-01").Do(t, "getMe", "").Want(t, 200, "")
	if log := server.Server.Log.String(); !strings.Contains(log, `"trace_id":"`+trace+`"`) {
		t.Errorf("the log does not name the trace:\n%s", log)
	}
}

func TestAServerNeedsItsParts(t *testing.T) {
	t.Parallel()
	var whole api.Config
	apitest.New(t, apitest.With(func(c *api.Config) { whole = *c }))
	for name, c := range map[string]struct {
		change func(*api.Config)
		fine   bool
	}{
		"whole":               {func(*api.Config) {}, true},
		"live":                {func(c *api.Config) { c.Env = "live" }, true},
		"another environment": {func(c *api.Config) { c.Env = "prod" }, false},
		"no database":         {func(c *api.Config) { c.DB = nil }, false},
		"no tokens":           {func(c *api.Config) { c.Tokens = nil }, false},
		"no limits":           {func(c *api.Config) { c.Limits = nil }, false},
		"no sealer":           {func(c *api.Config) { c.Sealer = nil }, false},
		"no log":              {func(c *api.Config) { c.Log = nil }, false},
	} {
		cfg := whole
		c.change(&cfg)
		if _, err := api.New(cfg); (err == nil) != c.fine {
			t.Errorf("%s: %v", name, err)
		}
	}
}

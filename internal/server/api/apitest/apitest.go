package apitest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/access/seal"
	"guildhall/internal/access/seal/sealtest"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/egress/egresstest"
	"guildhall/internal/outbound/event"
	"guildhall/internal/server/api"
)

// API is a client of a running server, with one token and its guild.
type API struct {
	URL    string // base URL, with the version prefix
	Guild  string // the token's guild
	Token  string // the whole token
	Server *Server

	key    string
	header http.Header
}

// Server is a running server with a database of its own. Several APIs may share it.
type Server struct {
	DB     *db.DB
	DBURL  string
	Tokens *auth.Tokens
	Client *http.Client
	Sealer *seal.Box
	Log    *testutil.Log // everything the server logged

	Waiters     *delivery.Waiters
	StopWaiting func() // ends all long polls, as a node that stops does

	url     string
	mu      sync.Mutex // guards the fields below
	seen    map[string]bool
	secrets []string
}

// SecretKey is the byte of which the test server's secret key consists.
const SecretKey = 7

// Guild is the guild of a test's first token; Neighbour is another guild.
const (
	Guild     = "197038439483310086"
	Neighbour = "302094807046684672"
)

type options struct {
	scopes []string
	allow  []string
	config []func(*api.Config)
	reach  func(url string) string
	base   string
	http2  bool
	chat   chat.Platform
	byBot  bool
	names  func(name string, v6 bool) egresstest.Answer
}

// Option configures New.
type Option func(*options)

// Scopes grants the token these scopes instead of all.
func Scopes(list ...string) Option { return func(o *options) { o.scopes = list } }

// AllowIP limits the token to these addresses.
func AllowIP(list ...string) Option { return func(o *options) { o.allow = list } }

// With changes the server's configuration before it starts.
func With(change func(*api.Config)) Option {
	return func(o *options) { o.config = append(o.config, change) }
}

// Reach changes the URL by which the server reaches its database, for instance to that of a proxy.
func Reach(by func(url string) string) Option { return func(o *options) { o.reach = by } }

// HTTP2 makes the server and its client use HTTP/2 instead of HTTP/1.1.
func HTTP2() Option { return func(o *options) { o.http2 = true } }

// On makes the server use an existing database, by its URL.
func On(database string) Option { return func(o *options) { o.base = database } }

// New starts a server for the test. When the test ends, the server stops and CheckBooks checks that
// ledger, keys and events agree with the state.
//
// Each guild has an endpoint that listens to all events, so that events are recorded, until the
// test calls its first webhook operation: it then finds the guild without endpoints.
func New(t testing.TB, opts ...Option) *API {
	t.Helper()
	o := options{scopes: auth.Scopes}
	for _, opt := range opts {
		opt(&o)
	}
	if o.base == "" {
		o.base = dbtest.Empty(t, "")
	}
	base := dbtest.Open(t, o.base)
	box := sealtest.Box(t, SecretKey)
	tokens, err := auth.NewTokens(auth.Config{DB: base.DB, URL: base.URL, Env: "test", Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	limits, err := ratelimit.New(ratelimit.Config{})
	must(t, err)
	log := &testutil.Log{}
	cfg := api.Config{
		DB: base.DB, Tokens: tokens, Limits: limits, Env: "test", Sealer: box, OneGuild: dbtest.Coordinator(t),
		Log: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if o.reach != nil {
		far, err := db.Open(db.Config{URL: o.reach(base.URL), Distributed: dbtest.Coordinator(t)})
		must(t, err)
		t.Cleanup(func() { far.Close() })
		cfg.DB = far
	}
	waiters, stopWaiting := runWaiters(t, cfg.DB)
	services(t, &cfg, o, box, waiters)
	for _, change := range o.config {
		change(&cfg)
	}
	handler, err := api.New(cfg)
	must(t, err)
	srv := httptest.NewUnstartedServer(handler)
	srv.EnableHTTP2 = o.http2
	srv.TLS = testutil.LocalTLS()
	srv.StartTLS()
	client := srv.Client()
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = 64
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s := &Server{
		DB: base.DB, DBURL: base.URL, Tokens: tokens, Client: client, Sealer: box, Log: log,
		url: srv.URL, seen: map[string]bool{}, Waiters: waiters, StopWaiting: stopWaiting,
	}
	t.Cleanup(func() {
		srv.Close()
		if !t.Failed() {
			CheckBooks(t, base.DB)
			s.checkLog(t)
		}
	})
	addGuild(t, base.DB, Guild)
	dbtest.Listen(t, base.DB, Guild, event.Types)
	return (&API{Server: s, URL: srv.URL + api.Prefix}).token(t, Guild, o.scopes, o.allow)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func addGuild(t testing.TB, d *db.DB, id string) {
	t.Helper()
	must(t, d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := db.Exec(ctx, tx, `
			INSERT INTO guilds (id, name, owner_id, member_count)
			VALUES ($1, 'The Test Guild', $1, 3) ON CONFLICT DO NOTHING`, id); err != nil {
			return err
		}
		_, err := db.Exec(ctx, tx, `INSERT INTO guild_settings (guild_id) VALUES ($1) ON CONFLICT DO NOTHING`, id)
		return err
	}))
}

func (a *API) token(t testing.TB, guild string, scopes, allow []string) *API {
	t.Helper()
	tok, err := auth.Create(context.Background(), a.Server.DB, auth.New{
		GuildID: guild, Env: "test", Name: "test", Scopes: scopes, AllowIP: allow,
	})
	must(t, err)
	a.Server.mu.Lock()
	a.Server.secrets = append(a.Server.secrets, tok.Secret)
	a.Server.mu.Unlock()
	view := *a
	view.Guild, view.Token = guild, tok.Secret
	return &view
}

// checkLog fails the test if the log contains a secret.
func (s *Server) checkLog(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.Log.String()
	for _, secret := range s.secrets {
		if strings.Contains(log, secret[len(secret)-40:]) {
			t.Error("a token is in the log")
		}
	}
	if strings.Contains(log, "whsec_") {
		t.Error("a signing secret is in the log")
	}
}

// DB returns the server's database.
func (a *API) DB() *db.DB { return a.Server.DB }

// As returns a client of the same server and guild with a new token.
func (a *API) As(t testing.TB, scopes ...string) *API {
	t.Helper()
	return a.token(t, a.Guild, scopes, nil)
}

// Next returns a client of the same server with a new token, with all scopes, of another guild.
func (a *API) Next(t testing.TB) *API {
	t.Helper()
	addGuild(t, a.Server.DB, Neighbour)
	dbtest.Listen(t, a.Server.DB, Neighbour, event.Types)
	return a.token(t, Neighbour, auth.Scopes, nil)
}

// Bot returns a client of the same server with a new bot key for the named guilds, or for every
// guild. Its requests name no guild until In is called.
func (a *API) Bot(t testing.TB, guilds ...string) *API {
	t.Helper()
	key, err := auth.CreateKey(context.Background(), a.Server.DB, auth.NewKey{Env: "test", Name: "bot", Guilds: guilds})
	must(t, err)
	a.Server.mu.Lock()
	a.Server.secrets = append(a.Server.secrets, key.Secret)
	a.Server.mu.Unlock()
	view := *a
	view.Guild, view.Token = "", key.Secret
	return &view
}

// In returns a copy of the client that names a guild in each request, as bot keys have to.
func (a *API) In(guild string) *API {
	view := a.Header("Guild-Id", guild)
	view.Guild = guild
	return view
}

// May returns a client of the same guild that may call the operation: one with a bot key, if only
// bot keys may.
func (a *API) May(t testing.TB, op Operation) *API {
	t.Helper()
	if op.Scope != auth.ScopeBot {
		return a
	}
	return a.Bot(t).In(a.Guild) // a bot key for all guilds: streams accept no other key
}

// Key returns a copy of the client that sends an Idempotency-Key.
func (a *API) Key(key string) *API {
	view := *a
	view.key = key
	return &view
}

// Header returns a copy of the client that sends one more header.
func (a *API) Header(name, value string) *API {
	view := *a
	view.header = a.header.Clone()
	if view.header == nil {
		view.header = http.Header{}
	}
	view.header.Add(name, value)
	return &view
}

type call struct {
	path  map[string]string
	query url.Values
}

// Arg is a parameter of a request.
type Arg func(*call)

// Path sets a path parameter.
func Path(name, value string) Arg { return func(c *call) { c.path[name] = value } }

// Query adds a query parameter.
func Query(name, value string) Arg { return func(c *call) { c.query.Add(name, value) } }

// Do calls the operation with this id. The body is sent as it is; an empty body means none. The
// response is checked against the contract.
func (a *API) Do(t testing.TB, id, body string, args ...Arg) *Response {
	t.Helper()
	op := Find(t, id)
	if strings.HasPrefix(op.Path, "/webhooks") {
		dbtest.Unlisten(t, a.Server.DB, a.Guild)
	}
	ans, err := a.Try(op, body, args...)
	if err != nil {
		t.Fatal(err)
	}
	return ans
}

// Try is Do for goroutines: it returns an error instead of failing the test. On a busy machine the
// lookup of a token may exceed its timeout; nothing has been done then, and Try sends the request
// again. (An unreachable database fails sooner and is not retried.)
func (a *API) Try(op Operation, body string, args ...Arg) (ans *Response, err error) {
	for range 5 {
		begun := time.Now()
		ans, err = a.once(op, body, args...)
		if err != nil || time.Since(begun) < time.Second || !bytes.Contains(ans.Body, []byte("The token cannot be checked right now.")) {
			break
		}
	}
	return ans, err
}

func (a *API) once(op Operation, body string, args ...Arg) (*Response, error) {
	c := call{path: map[string]string{}, query: url.Values{}}
	for _, arg := range args {
		arg(&c)
	}
	path := op.Path
	for name, value := range c.path {
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(value))
	}
	if len(c.query) > 0 {
		path += "?" + c.query.Encode()
	}
	req, err := a.request(op.Method, a.URL+path, body)
	if err != nil {
		return nil, err
	}
	ans, err := a.send(req)
	if err != nil {
		return nil, err
	}
	if err := op.check(req, ans); err != nil {
		return ans, err
	}
	noteResponse(op, ans)
	return ans, nil
}

// Retry is Try with retries for a busy machine: as a client would, it waits and retries after a
// 503 or 429 with Retry-After. After 30 seconds it returns the last response.
func (a *API) Retry(op Operation, body string, args ...Arg) (*Response, error) {
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		ans, err := a.Try(op, body, args...)
		busy := err == nil && (ans.Status == http.StatusServiceUnavailable || ans.Status == http.StatusTooManyRequests)
		if !busy || ans.Header.Get("Retry-After") == "" || time.Since(begun) > 30*time.Second {
			return ans, err
		}
	}
}

// Raw sends any request to the server, also one that matches no operation; path is relative to the
// server's root. Only the form of an error is checked.
func (a *API) Raw(t testing.TB, method, path, body string) *Response {
	t.Helper()
	req, err := a.request(method, a.Server.url+path, body)
	must(t, err)
	ans, err := a.send(req)
	must(t, err)
	if ans.Status >= 400 && method != http.MethodHead && ans.Code() == "" {
		t.Fatalf("%s %s answered %d without the error envelope: %s", method, path, ans.Status, ans.Body)
	}
	return ans
}

func (a *API) request(method, target, body string) (*http.Request, error) {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, target, r)
	if err != nil {
		return nil, err
	}
	if a.Token != "" {
		req.Header.Set("Authorization", "Bearer "+a.Token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.key != "" {
		req.Header.Set("Idempotency-Key", a.key)
	}
	for name, values := range a.header {
		req.Header[name] = values
	}
	return req, nil
}

func (a *API) send(req *http.Request) (*Response, error) {
	res, err := a.Server.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	ans := &Response{Status: res.StatusCode, Header: res.Header, Body: body}
	if ans.Status == http.StatusInternalServerError {
		ans.Cause = a.Server.cause(res.Header)
	}
	return ans, nil
}

package dashboard_test

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/api"
	"guildhall/internal/api/apitest"
	"guildhall/internal/auth"
	"guildhall/internal/dashboard"
	"guildhall/internal/db/dbtest"
	"guildhall/internal/delivery"
	"guildhall/internal/usage"
)

// live is a dashboard beside the real API, with a second node and the workers,
// as an installation has them.
type live struct {
	*scene
	Other   string // the base URL of the second node
	Counter *usage.Counter
}

func newLive(t testing.TB) *live {
	t.Helper()
	var cfg api.Config
	a := apitest.New(t, apitest.With(func(c *api.Config) { cfg = *c }))
	dbtest.Unlisten(t, a.DB(), guildID)
	l := &live{Counter: usage.NewCounter()}
	workers := startWorkers(t, delivery.Config{DB: a.DB(), Box: a.Server.Sealer})
	cfg.Wake, cfg.Count = workers.Wake, l.Counter.Count
	node := func() http.Handler {
		tokens, err := auth.NewTokens(auth.Config{DB: a.DB(), URL: a.Server.DBURL, Env: "test"})
		must(t, err)
		background(t, tokens.Run)
		c := cfg
		c.Tokens = tokens
		h, err := api.New(c)
		must(t, err)
		return h
	}
	l.scene = sceneOn(t, &dbtest.Database{DB: a.DB(), URL: a.Server.DBURL}, node(), func(c *dashboard.Config) { c.Wake = workers.Wake })
	dbtest.Exec(t, l.DB, `DELETE FROM api_tokens`) // the harness's own
	other := httptest.NewTLSServer(node())
	t.Cleanup(other.Close)
	l.Other = other.URL
	return l
}

// call calls the API of a node with a token.
func (l *live) call(t testing.TB, node, token, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, node+api.Prefix+path, strings.NewReader(body))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", rand.Text())
	} else {
		req.Body, req.ContentLength = nil, 0
	}
	res, err := l.Server.Client().Do(req)
	must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(t, err)
	return res.StatusCode, string(text)
}

// received is one request that a receiver got.
type received struct {
	header http.Header
	body   string
}

// receiver is somebody's server that takes events.
type receiver struct {
	*httptest.Server
	status atomic.Int64
	mu     sync.Mutex
	all    []received
}

func newReceiver(t testing.TB) *receiver {
	t.Helper()
	r := &receiver{}
	r.status.Store(http.StatusOK)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.all = append(r.all, received{req.Header.Clone(), string(body)})
		r.mu.Unlock()
		w.WriteHeader(int(r.status.Load()))
		_, _ = io.WriteString(w, `<script>alert("receiver")</script>`)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) got() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// last waits until the receiver has got n requests and returns the newest.
func (r *receiver) last(t testing.TB, n int) received {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if all := r.got(); len(all) >= n {
			return all[len(all)-1]
		} else if time.Now().After(deadline) {
			t.Fatalf("the receiver has got %d requests, want %d", len(all), n)
		}
	}
}

// signedBy reports whether a request verifies with a secret, by both schemes.
func (g received) signedBy(t testing.TB, secret string) bool {
	t.Helper()
	sum := func(key []byte, text string) []byte {
		m := hmac.New(sha256.New, key)
		_, _ = io.WriteString(m, text)
		return m.Sum(nil)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	must(t, err)
	at := g.header.Get("Webhook-Timestamp")
	own := "v1=" + hex.EncodeToString(sum([]byte(secret), at+"."+g.body))
	standard := "v1," + base64.StdEncoding.EncodeToString(sum(key, g.header.Get("Webhook-Id")+"."+at+"."+g.body))
	return slices.Contains(strings.Split(g.header.Get("Service-Signature"), ","), own) &&
		slices.Contains(strings.Fields(g.header.Get("Webhook-Signature")), standard)
}

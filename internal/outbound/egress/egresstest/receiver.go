package egresstest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"guildhall/internal/base/testutil"
)

// Receiver is an HTTP server that receives webhooks and records the requests.
type Receiver struct {
	*httptest.Server

	mu      sync.Mutex // guards the fields below
	calls   []Call
	respond http.HandlerFunc
}

// Call is one request that a receiver got.
type Call struct {
	Header http.Header
	Body   []byte
	At     time.Time
}

// NewReceiver starts a receiver over plain HTTP that responds by the given handler. It is closed,
// with all connections, when the test ends.
func NewReceiver(t testing.TB, respond http.HandlerFunc) *Receiver {
	t.Helper()
	r := newReceiver(t, respond)
	r.Start()
	return r
}

// NewTLSReceiver is NewReceiver over HTTPS.
func NewTLSReceiver(t testing.TB, respond http.HandlerFunc) *Receiver {
	t.Helper()
	r := newReceiver(t, respond)
	r.TLS = testutil.LocalTLS()
	r.StartTLS()
	return r
}

func newReceiver(t testing.TB, respond http.HandlerFunc) *Receiver {
	t.Helper()
	r := &Receiver{respond: respond}
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(func() { r.CloseClientConnections(); r.Close() })
	return r
}

// ServeHTTP records the request and responds.
func (r *Receiver) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	r.mu.Lock()
	r.calls = append(r.calls, Call{Header: req.Header.Clone(), Body: body, At: time.Now()})
	respond := r.respond
	r.mu.Unlock()
	req.Body = io.NopCloser(bytes.NewReader(body))
	respond(rw, req)
}

// Respond returns a handler that responds with a status and a text.
func Respond(status int, text string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(status)
		_, _ = io.WriteString(rw, text)
	}
}

// RespondWith replaces the handler.
func (r *Receiver) RespondWith(respond http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.respond = respond
}

// Calls returns the requests so far.
func (r *Receiver) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Await waits until the receiver has got n requests and returns the newest.
func (r *Receiver) Await(t testing.TB, n int) (newest Call) {
	t.Helper()
	testutil.Eventually(t, "requests have come", func() bool {
		calls := r.Calls()
		if len(calls) < n {
			return false
		}
		newest = calls[len(calls)-1]
		return true
	})
	return newest
}

// SignedBy reports whether a request's signatures, in both schemes, verify with a secret.
func (c Call) SignedBy(secret string) bool {
	sum := func(key []byte, text string) []byte {
		m := hmac.New(sha256.New, key)
		_, _ = io.WriteString(m, text)
		return m.Sum(nil)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	at := c.Header.Get("Webhook-Timestamp")
	own := "v1=" + hex.EncodeToString(sum([]byte(secret), at+"."+string(c.Body)))
	standard := "v1," + base64.StdEncoding.EncodeToString(sum(key, c.Header.Get("Webhook-Id")+"."+at+"."+string(c.Body)))
	return slices.Contains(strings.Split(c.Header.Get("Service-Signature"), ","), own) &&
		slices.Contains(strings.Fields(c.Header.Get("Webhook-Signature")), standard)
}

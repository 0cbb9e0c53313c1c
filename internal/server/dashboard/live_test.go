package dashboard_test

import (
	"crypto/rand"
	"io"
	"net/http"
	"strings"
	"testing"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/usage"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/server/dashboard"
)

// live is a dashboard and the real API, with a second node and the workers, like an installation.
type live struct {
	*site
	Other   string // base URL of the second node
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
	l.site = siteOn(t, &dbtest.Database{DB: a.DB(), URL: a.Server.DBURL}, node(), func(c *dashboard.Config) { c.Wake = workers.Wake })
	dbtest.Exec(t, l.DB, `DELETE FROM api_tokens`) // the token of the test harness
	other := testutil.NewTLSServer(node())
	t.Cleanup(other.Close)
	l.Other = other.URL
	return l
}

// call calls the API of a node with a token and returns the status and the body.
func (l *live) call(t testing.TB, node, token, method, path, body string) (int, string) {
	t.Helper()
	res, text := l.send(t, node, token, method, path, body)
	return res.StatusCode, text
}

// send calls the API of a node with a token and returns the response with its body read.
func (l *live) send(t testing.TB, node, token, method, path, body string) (*http.Response, string) {
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
	return res, string(text)
}

// hostile is a response of receivers that must not run as a script when a page shows it.
const hostile = `<script>alert("receiver")</script>`

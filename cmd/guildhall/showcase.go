package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/usage"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/event"
	"guildhall/internal/server/api"
	"guildhall/internal/service/guildfile"
	"guildhall/internal/service/webhooks"
)

// The token and the endpoints of the demo guild, by which the dashboard's pages show on a first
// visit what they are for. The receivers of both endpoints are part of guildhall dev.
const (
	shopToken  = "Shop"
	mirrorPath = "/demo/mirror"    // takes every event
	panelPath  = "/demo/old-panel" // refuses every event
)

// showcase is what guildhall dev adds to the demo guild before the start, and once it is served.
type showcase struct {
	receivers net.Listener // nil: there are no receivers
	shop      string       // the secret of a new token of the shop; empty: the shop has called already
}

// addShowcase creates the endpoints and the token of the showcase in a guild that has never had
// them, and opens the listener of the receivers.
func addShowcase(ctx context.Context, d *db.DB, env string, hooks delivery.Config) (s showcase, err error) {
	tokens, err := auth.List(ctx, d, guildfile.DemoGuild)
	if err != nil {
		return s, err
	}
	if slices.ContainsFunc(tokens, func(t auth.Token) bool { return t.Name == shopToken }) {
		s.receivers, err = listenAgain(ctx, d)
		return s, err
	}
	if s.receivers, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return s, err
	}
	cfg, base := webhooks.Config{DB: d, Box: hooks.Box, Guard: hooks.Guard}, "http://"+s.receivers.Addr().String()
	for _, w := range []webhooks.Settings{
		{URL: base + mirrorPath, Description: "Mirror", Events: event.Types, Enabled: true},
		{URL: base + panelPath, Description: "Old panel", Events: []string{event.BalanceChanged}, Enabled: true},
	} {
		if _, err := webhooks.Create(ctx, cfg, d, guildfile.DemoGuild, w); err != nil && !fault.Is(err, "invalid_request") {
			return s, errors.Join(err, s.receivers.Close())
		} // addresses of this machine may not be called, as the settings say: there are no endpoints then
	}
	t, err := auth.Create(ctx, d, auth.New{
		GuildID: guildfile.DemoGuild, Env: env, Name: shopToken, Scopes: []string{"economy:read", "economy:write"}, ExpiresIn: devTokenTime,
	})
	if err != nil {
		return s, err
	}
	s.shop = t.Secret
	return s, refuseShop(ctx, d, t)
}

// refuseShop counts a refused call of the shop's token, as if the shop had called an operation whose
// scope the token lacks. A call over HTTP would also leave a refusal in the log, where a developer
// reads it as a fault.
func refuseShop(ctx context.Context, d *db.DB, t auth.Token) error {
	refused := api.LacksScope("cases:read")
	counter := usage.NewCounter()
	counter.Count(usage.Request{
		Guild: t.GuildID, Token: t.ID, Operation: "listCases", RequestID: db.NewID(), Status: http.StatusForbidden,
		Code: refused.Code, Message: refused.Message, Scope: refused.RequiredScope, From: netip.IPv6Loopback(), At: time.Now(),
	})
	return counter.Flush(ctx, d)
}

// listenAgain opens the listener of the receivers at the address that the endpoints have. It
// returns nil where the endpoints were removed, and where another program uses the address.
func listenAgain(ctx context.Context, d *db.DB) (net.Listener, error) {
	endpoints, err := webhooks.Standings(ctx, d.Reader(), guildfile.DemoGuild)
	if err != nil {
		return nil, err
	}
	for _, e := range endpoints {
		if u, err := url.Parse(e.URL); err == nil && (u.Path == mirrorPath || u.Path == panelPath) && u.Hostname() == "127.0.0.1" {
			if l, err := new(net.ListenConfig).Listen(ctx, "tcp", u.Host); err == nil {
				return l, nil
			}
		}
	}
	return nil, nil //nolint:nilnil // there are no receivers
}

// receive answers the deliveries of the showcase's endpoints until ctx ends.
func (s showcase) receive(ctx context.Context) {
	if s.receivers == nil {
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+mirrorPath, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST "+panelPath, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "The old panel does not know this signature.", http.StatusUnauthorized)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(s.receivers) }() // ends with the server
	context.AfterFunc(ctx, func() { _ = server.Close() })
}

// call makes the call of the showcase's token: a purchase that pays the member 500.
func (s showcase) call(ctx context.Context, base, ca string) error {
	if s.shop == "" {
		return nil
	}
	var trusted *x509.CertPool // nil: the system's
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return err
		}
		if trusted, err = egress.Authorities(pem); err != nil {
			return err
		}
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	const path, body = "/economy/adjust", `{"user_id":"` + guildfile.DemoMember + `","delta":500,"reason":"Order 812","reference":"order-812"}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.shop)
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10)) // for the message alone
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("POST %s answers %d: %s", path, res.StatusCode, text)
	}
	return nil
}

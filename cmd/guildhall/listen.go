package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"guildhall/gen"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/output"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/webhooks"
)

// Events are fetched a few at a time, with a lease that is longer than forwarding all of them
// takes. Events that were not forwarded are fetched again soon.
const (
	listenLimit = 10
	listenWait  = 20
	listenLease = 300
	listenPause = 2 * time.Second
)

type listenCommand struct {
	ForwardTo string   `name:"forward-to" help:"Post each event here, signed; it is acknowledged when the answer is 2xx." placeholder:"URL"`
	Events    []string `sep:"none" help:"Event types; repeat it, or list several with commas. Default: all that the token may read." placeholder:"EVENT"`
	Token     string   `env:"GUILDHALL_TOKEN" required:"" help:"A token with webhooks:manage and the read scopes of the events." placeholder:"TOKEN"`
	API       string   `name:"api" env:"GUILDHALL_URL" required:"" help:"The API's address, as in https://localhost:8443/api/v1." placeholder:"URL"`
	CA        string   `name:"ca" env:"GUILDHALL_CA" help:"File of the CA that the server's certificate is from." placeholder:"FILE"`
}

// Run prints and forwards events until ctx ends. Then it deletes the endpoint that it has created.
func (c *listenCommand) Run(ctx context.Context, io streams) error {
	l, err := c.listener(io)
	if err != nil {
		return usageError{err}
	}
	defer l.end(context.WithoutCancel(ctx))
	if err := l.retry(ctx, l.begin); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := l.retry(ctx, l.step); err != nil {
			return err
		}
	}
	return nil
}

func (c *listenCommand) listener(io streams) (*listener, error) {
	if err := callable("--api", c.API); err != nil {
		return nil, err
	}
	if err := sealed("--api", c.API); err != nil {
		return nil, err
	}
	if c.ForwardTo != "" {
		if err := callable("--forward-to", c.ForwardTo); err != nil {
			return nil, err
		}
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fault.Wrap(err, "--ca")
		}
		trusted := x509.NewCertPool()
		if !trusted.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca: %s holds no certificate", c.CA)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	}
	base := strings.TrimRight(c.API, "/")
	if !strings.HasSuffix(base, "/api/v1") {
		base += "/api/v1"
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	return &listener{
		io: io, base: base, token: c.Token, events: wire.Items(c.Events...), forwardTo: c.ForwardTo,
		api:      &http.Client{Transport: transport, Timeout: (listenWait + 20) * time.Second, CheckRedirect: stay},
		receiver: &http.Client{Timeout: egress.AttemptTimeout, CheckRedirect: stay},
		label:    output.Visible("guildhall listen on " + host),
	}, nil
}

// callable returns an error for a URL that cannot be called. A receiver for testing may use http.
func callable(flag, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return fmt.Errorf("%s: %q is not a URL that can be called: it must look like http://localhost:9000/hook", flag, address)
	}
	return nil
}

// stay refuses redirects, which could send a token to another host.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// sealed refuses a URL that would send a token unencrypted: http is allowed only to this machine.
func sealed(flag, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "https" || u.Hostname() == "localhost" {
		return err
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%s: %q would carry the token in clear: it must begin with https:// unless it is on this machine", flag, address)
}

// listener fetches from a pull endpoint of its own, which it recognises by the description.
type listener struct {
	io                           streams
	base, token, label           string
	events                       []string
	forwardTo                    string
	api, receiver                *http.Client
	endpoint, secret, complained string
}

// unprinted is an error of writing the output, after which continuing is pointless.
type unprinted struct{ error }

func (e unprinted) Unwrap() error { return e.error }

// say prints a line.
func (l *listener) say(format string, args ...any) error {
	if err := output.Say(l.io.out, format, args...); err != nil {
		return unprinted{err}
	}
	return nil
}

// retry retries an action until it succeeds, ctx ends, or it fails for a lasting reason: the
// API refuses it, or the output cannot be written.
func (l *listener) retry(ctx context.Context, do func(context.Context) error) error {
	for {
		err := do(ctx)
		var refused *apiError
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the context has ended
		case err == nil:
			l.complained = ""
			return nil
		case errors.As(err, &refused) && refused.Status < 500 && refused.Status != http.StatusTooManyRequests, errors.As(err, new(unprinted)):
			return err
		}
		if text := err.Error(); text != l.complained {
			l.complained = text
			fmt.Fprintln(l.io.err, "guildhall:", output.Visible(text)+"; trying again")
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenPause):
		}
	}
}

// begin creates the endpoint, or reuses one that an earlier listener has left behind.
func (l *listener) begin(ctx context.Context) error {
	if err := l.choose(ctx); err != nil {
		return err
	}
	var there gen.WebhookEndpointList
	if err := l.call(ctx, http.MethodGet, "/webhooks?per_page=100", nil, &there); err != nil {
		return err
	}
	var made gen.WebhookEndpointWithSecretEnvelope
	mine := slices.IndexFunc(there.Data, func(e gen.WebhookEndpoint) bool {
		return e.Delivery == delivery.Pull && e.Description != nil && *e.Description == l.label
	})
	if mine < 0 {
		wanted := map[string]any{"delivery": delivery.Pull, "events": l.events, "description": l.label}
		if err := l.call(ctx, http.MethodPost, "/webhooks", wanted, &made); err != nil {
			return err
		}
	} else {
		path := "/webhooks/" + there.Data[mine].ID
		if err := l.call(ctx, http.MethodPatch, path, map[string]any{"events": l.events, "enabled": true}, nil); err != nil {
			return err
		}
		if err := l.call(ctx, http.MethodPost, path+"/rotate-secret", map[string]any{"old_secret_expires_in": 0}, &made); err != nil {
			return err
		}
	}
	l.endpoint, l.secret = made.Data.ID, made.Data.Secret
	return l.say("listening to %s\nsecret %s", strings.Join(l.events, " "), l.secret)
}

// choose selects all event types that the token may read, unless the command names some.
func (l *listener) choose(ctx context.Context) error {
	if len(l.events) > 0 {
		return nil
	}
	var me gen.Me
	if err := l.call(ctx, http.MethodGet, "/me", nil, &me); err != nil {
		return err
	}
	l.events = slices.DeleteFunc(slices.Clone(event.Types), func(t string) bool {
		scope := webhooks.ReadScope(t)
		return scope != "" && !slices.Contains(me.Token.Scopes, scope)
	})
	if len(l.events) == 0 {
		return &apiError{http.StatusForbidden, "insufficient_scope", "the token may read no events: it needs a read scope, as cases:read"}
	}
	return nil
}

// fetched is the response of a fetch, with the raw events.
type fetched struct {
	Data []json.RawMessage `json:"data"`
}

// step fetches events, handles each, and acknowledges or returns them.
func (l *listener) step(ctx context.Context) error {
	var got fetched
	err := l.call(ctx, http.MethodPost, "/webhooks/"+l.endpoint+"/events/pull",
		map[string]any{"limit": listenLimit, "wait": listenWait, "lease": listenLease}, &got)
	if isOver(err) {
		return l.begin(ctx)
	}
	if err != nil || len(got.Data) == 0 {
		return err
	}
	answer := map[string][]string{}
	for _, payload := range got.Data {
		var e gen.WebhookEvent
		if err := json.Unmarshal(payload, &e); err != nil {
			return fault.Wrap(err, "read an event")
		}
		done, err := l.handle(ctx, e, payload)
		if err != nil {
			return err
		}
		what := "event_ids"
		if !done {
			what = "return_ids"
		}
		answer[what] = append(answer[what], e.ID)
	}
	if len(answer["return_ids"]) > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(listenPause):
		}
	}
	err = l.call(context.WithoutCancel(ctx), http.MethodPost, "/webhooks/"+l.endpoint+"/events/ack", answer, nil)
	if isOver(err) {
		return nil // the next fetch starts again
	}
	return err
}

// isOver reports whether the endpoint was deleted or disabled.
func isOver(err error) bool {
	var refused *apiError
	return errors.As(err, &refused) && (refused.Status == http.StatusNotFound || refused.Code == "webhook_disabled")
}

// handle prints an event and forwards it if the command says so. It reports whether the event is to
// be acknowledged.
func (l *listener) handle(ctx context.Context, e gen.WebhookEvent, payload []byte) (bool, error) {
	line, done := fmt.Sprintf("%s  %s  %s", e.Timestamp.Time.UTC().Format("2006-01-02T15:04:05.000Z"), e.Type, e.ID), true
	if l.forwardTo != "" {
		status, err := l.forward(ctx, e, payload)
		done = err == nil && status/100 == 2
		if err != nil {
			line += "  " + err.Error()
		} else {
			line += fmt.Sprintf("  %d", status)
		}
	}
	return done, l.say("%s", line)
}

// forward posts an event as a delivery worker would.
func (l *listener) forward(ctx context.Context, e gen.WebhookEvent, payload []byte) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.forwardTo, bytes.NewReader(payload))
	if err != nil {
		return 0, err
	}
	at := time.Now()
	req.Header = delivery.Headers(e.Type, e.ID, 1, e.Timestamp.Time)
	if err := delivery.Sign(req.Header, l.secret, e.ID, at, payload); err != nil {
		return 0, err
	}
	res, err := l.receiver.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<16))
	return res.StatusCode, err
}

// end deletes the endpoint, if there is one.
func (l *listener) end(ctx context.Context) {
	if l.endpoint == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := l.call(ctx, http.MethodDelete, "/webhooks/"+l.endpoint, nil, nil); err != nil {
		fmt.Fprintln(l.io.err, "guildhall:", output.Visible(err.Error())+"; the endpoint stays, and is taken over by the next listen on this machine")
	}
}

// apiError is an error response of the API.
type apiError struct {
	Status        int
	Code, Message string
}

func (e *apiError) Error() string { return e.Code + ": " + e.Message }

// call calls the API.
func (l *listener) call(ctx context.Context, method, path string, body, into any) error {
	var sent io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, l.base+path, sent)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+l.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := l.api.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err != nil {
		return err
	}
	if to := res.Header.Get("Location"); res.StatusCode >= 300 && res.StatusCode < 400 {
		return &apiError{res.StatusCode, res.Status, fmt.Sprintf("the API's address leads on to %q; no token is sent there: name the address itself with --api", to)}
	}
	if res.StatusCode >= 300 {
		var refused gen.Failure
		_ = json.Unmarshal(text, &refused) // a proxy's response is no JSON: the error code stays empty
		return &apiError{res.StatusCode, cmp.Or(refused.Error.Code, res.Status), refused.Error.Message}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

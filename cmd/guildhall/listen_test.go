package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
)

// away is a proxy to the API that can be interrupted, as by a restart of the server.
type away struct {
	*httptest.Server
	down atomic.Bool
}

func newAway(t *testing.T, to *apitest.API, before ...func(*http.Request)) *away {
	t.Helper()
	target, err := url.Parse(strings.TrimSuffix(to.URL, "/api/v1"))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = to.Server.Client.Transport
	a := &away{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.down.Load() {
			panic(http.ErrAbortHandler)
		}
		for _, f := range before {
			f(r)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

// interrupt breaks all connections, new ones too, until restore is called.
func (a *away) interrupt() (restore func()) {
	a.down.Store(true)
	a.CloseClientConnections()
	return func() { a.down.Store(false) }
}

// inbox is a local receiver that refuses the first attempt of each event.
type inbox struct {
	*httptest.Server
	mu      sync.Mutex // guards the fields below
	secrets []string
	seen    map[string]int
	sent    []sent
}

// sent is a request that the inbox got.
type sent struct {
	body   []byte
	header http.Header
}

// unverified returns the number of requests whose signature no secret verifies.
func (in *inbox) unverified() (n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, s := range in.sent {
		if !slices.ContainsFunc(in.secrets, func(secret string) bool {
			verifier, err := standard.NewWebhook(secret)
			return err == nil && verifier.Verify(s.body, s.header) == nil
		}) {
			n++
		}
	}
	return n
}

func newInbox(t *testing.T) *inbox {
	t.Helper()
	in := &inbox{seen: make(map[string]int)}
	in.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		in.mu.Lock()
		defer in.mu.Unlock()
		if err != nil {
			t.Error(err)
		}
		in.sent = append(in.sent, sent{body, r.Header})
		id := r.Header.Get("Webhook-Id")
		if in.seen[id]++; in.seen[id] == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(in.Close)
	return in
}

// taken returns the number of events that were accepted.
func (in *inbox) taken() (n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, times := range in.seen {
		if times == 2 {
			n++
		}
	}
	return n
}

var printedSecret = regexp.MustCompile(`secret (whsec_\S+)`)

// listen runs the command until stop is called.
func listen(t *testing.T, from *away, as *apitest.API, in *inbox) (log *testutil.Log, stop func()) {
	t.Helper()
	log = &testutil.Log{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	c := &listenCommand{ForwardTo: in.URL, Token: as.Token, API: from.URL}
	go func() { done <- c.Run(ctx, streams{nil, log, log}) }()
	testutil.Eventually(t, "it listens", func() bool { return printedSecret.MatchString(log.String()) })
	in.mu.Lock()
	in.secrets = append(in.secrets, printedSecret.FindStringSubmatch(log.String())[1])
	in.mu.Unlock()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return log, stop
}

// listen prints and forwards each event, signed, until the receiver accepts it. It survives
// restarts of the server and of itself, and leaves nothing behind.
func TestListenBringsEventsToALocalReceiver(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	api.Do(t, "listWebhookEndpoints", "").Want(t, 200, `{"data":[]}`)
	from, in := newAway(t, api), newInbox(t)
	change := func() { api.Do(t, "adjustBalance", `{"user_id":"42","delta":1}`).Want(t, 200, "") }
	log, stop := listen(t, from, api, in)
	change()
	testutil.Eventually(t, "the event was taken", func() bool { return in.taken() == 1 })
	testutil.Eventually(t, "it was printed with what became of it", func() bool {
		return strings.Contains(log.String(), "  economy.balance_changed  ") && strings.Contains(log.String(), "  200\n")
	})
	restore := from.interrupt()
	change()
	testutil.Eventually(t, "it says that the server is away", func() bool { return strings.Contains(log.String(), "trying again") })
	restore()
	testutil.Eventually(t, "the event of that time was taken", func() bool { return in.taken() == 2 })

	restore = from.interrupt()
	stop() // as if it had been killed, so that it cannot clean up
	restore()
	left := api.Do(t, "listWebhookEndpoints", "").Want(t, 200, `{"data":[{"delivery":"pull"}]}`).All(t, "id")
	change()
	_, stop = listen(t, from, api, in)
	testutil.Eventually(t, "the event between two listeners was taken", func() bool { return in.taken() == 3 })
	if now := api.Do(t, "listWebhookEndpoints", "").All(t, "id"); len(now) != 1 || now[0] != left[0] {
		t.Errorf("the endpoint left behind is %v, there are %v", left, now)
	}
	stop()
	api.Do(t, "listWebhookEndpoints", "").Want(t, 200, `{"data":[]}`)
	if n := in.unverified(); n > 0 || len(in.secrets) != 2 {
		t.Errorf("%d requests could not be verified", n)
	}
}

// If the endpoint is deleted while the receiver handles an event, listen creates a new one.
func TestListenBeginsAnewWhenItsEndpointIsRemoved(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	in := newInbox(t)
	removed := false
	receiver := in.Config.Handler
	in.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := api.Do(t, "listWebhookEndpoints", "").All(t, "id")[0]; !removed {
			api.Do(t, "deleteWebhookEndpoint", "", apitest.Path("id", id)).Want(t, 204, "")
			removed = true
		}
		receiver.ServeHTTP(w, r)
	})
	log, _ := listen(t, newAway(t, api), api, in)
	api.Do(t, "adjustBalance", `{"user_id":"42","delta":1}`).Want(t, 200, "")
	testutil.Eventually(t, "it listens again", func() bool { return len(printedSecret.FindAllString(log.String(), -1)) == 2 })
	api.Do(t, "adjustBalance", `{"user_id":"42","delta":1}`).Want(t, 200, "")
	testutil.Eventually(t, "the next event was taken", func() bool { return in.taken() == 1 })
}

// A URL that cannot be called is wrong usage.
func TestListenWantsAddressesThatCanBeCalled(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	from := newAway(t, api)
	for _, c := range []listenCommand{
		{Token: api.Token, API: from.URL, ForwardTo: "localhost:9000/hook"},
		{Token: api.Token, API: from.URL, ForwardTo: "/hook"},
		{Token: api.Token, API: from.URL, ForwardTo: "ftp://localhost/hook"},
		{Token: api.Token, API: from.URL, ForwardTo: "http://"},
		{Token: api.Token, API: from.URL, ForwardTo: "http://local host/"},
		{Token: api.Token, API: "localhost:8443/api/v1"},
		{Token: api.Token, API: "http://guildhall.example"}, // the token would be sent unencrypted
		{Token: api.Token, API: "http://192.0.2.1:8080/api/v1"},
	} {
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		err := c.Run(ctx, streams{nil, io.Discard, io.Discard})
		stop()
		if _, wrong := errors.AsType[usageError](err); !wrong {
			t.Errorf("--forward-to %q --api %q: %v", c.ForwardTo, c.API, err)
		}
	}
	api.Do(t, "listWebhookEndpoints", "").Want(t, 200, `{"data":[]}`)
}

// Event types can be given as lists with commas or spaces, as scopes and addresses can.
func TestListenReadsListsOfEvents(t *testing.T) {
	t.Parallel()
	c := listenCommand{API: "http://localhost", Events: []string{"case.created, ticket.closed", "xp.level_up giveaway.ended"}}
	l, err := c.listener(streams{})
	if err != nil || strings.Join(l.events, "|") != "case.created|ticket.closed|xp.level_up|giveaway.ended" {
		t.Errorf("it listens to %q, %v", l.events, err)
	}
}

// A lasting refusal ends listen; it does not retry for ever.
func TestListenEndsWhenItIsRefused(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	from := newAway(t, api)
	for _, c := range []listenCommand{
		{Token: "svc_test_nobodys", API: from.URL},
		{Token: api.As(t, "network:read").Token, API: from.URL}, // a token that may read no events
		{Token: api.As(t, "cases:read").Token, API: from.URL, Events: []string{"case.created"}},
		{Token: api.Token, API: from.URL, Events: []string{"no.event"}},
		{Token: api.Token, API: from.URL, CA: "no such file"},
	} {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		if err := c.Run(ctx, streams{nil, io.Discard, io.Discard}); err == nil {
			t.Errorf("%+v was not refused", c)
		}
		stop()
	}
}

// Redirects are not followed, since they could send the token to any host.
func TestListenSendsItsTokenToNobodyElse(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s is called with %q", r.URL, r.Header.Get("Authorization"))
	}))
	t.Cleanup(elsewhere.Close)
	api := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(api.Close)
	c := listenCommand{Token: "svc_test_some", API: api.URL}
	if err := c.Run(t.Context(), streams{nil, io.Discard, io.Discard}); err == nil || !strings.Contains(err.Error(), elsewhere.URL) {
		t.Errorf("it ends with %v", err)
	}
}

// full is a writer that fails after a number of lines.
type full struct{ left atomic.Int32 }

func (f *full) Write(b []byte) (int, error) {
	if f.left.Add(-1) < 0 {
		return 0, errors.New("no space left")
	}
	return len(b), nil
}

// listen ends with an error when its output cannot be written, and does not acknowledge events that
// were not printed.
func TestListenEndsWhenItCannotPrint(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	from := newAway(t, api)
	for lines := range int32(2) {
		out := &full{}
		out.left.Store(lines)
		ended := make(chan error, 1)
		go func() {
			c := listenCommand{Token: api.Token, API: from.URL}
			ended <- c.Run(t.Context(), streams{nil, out, io.Discard})
		}()
		if lines > 0 {
			testutil.Eventually(t, "it listens", func() bool { return out.left.Load() == 0 })
			api.Do(t, "adjustBalance", `{"user_id":"42","delta":1}`).Want(t, 200, "")
		}
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "no space left") {
				t.Errorf("after %d lines it says %v", lines, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("after %d lines it goes on", lines)
		}
		api.Do(t, "listWebhookEndpoints", "").Want(t, 200, `{"data":[]}`)
	}
}

package delivery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/egress/egresstest"
)

// attempt is one row of the attempt log.
type attempt struct {
	Number     int       `db:"number"`
	StartedAt  time.Time `db:"started_at"`
	DurationMs int       `db:"duration_ms"`
	Outcome    string    `db:"outcome"`
	Status     *int      `db:"status"`
	Excerpt    *string   `db:"excerpt"`
	Error      *string   `db:"error"`
}

// lastAttempt returns the newest attempt of an endpoint's only delivery.
func (w *deliveryDB) lastAttempt(e endpoint) attempt {
	w.t.Helper()
	var a attempt
	w.until("an attempt in the log", func() bool {
		return w.DB.Reader().GetContext(w.t.Context(), &a, `
			SELECT a.number, a.started_at, a.duration_ms, a.outcome, a.status, a.excerpt, a.error
			FROM webhook_attempts a
			JOIN webhook_deliveries d ON d.guild_id = a.guild_id AND d.id = a.delivery_id
			WHERE d.endpoint_id = $1
			ORDER BY a.number DESC
			LIMIT 1`, e.ID) == nil
	})
	return a
}

// No redirect is followed, whatever its target. RELIABILITY.md, Outgoing calls.
func TestRedirectsAreFailuresAndNeverFollowed(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	w.cfg.Schedule = Schedule{time.Hour}
	inside := w.receive(nil)
	plain := httptest.NewServer(inside)
	t.Cleanup(plain.Close)
	d, _ := w.start(w.cfg)

	var endpoints []endpoint
	guild := 0
	for _, code := range []int{301, 302, 303, 307, 308} {
		for _, where := range []string{inside.URL, plain.URL, "/loop", "//169.254.169.254/"} {
			r := w.receive(func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Location", where)
				rw.WriteHeader(code)
			})
			id := "10" + string(rune('0'+guild/10)) + string(rune('0'+guild%10))
			guild++
			dbtest.AddGuilds(w.t, w.DB, id)
			e, _ := w.add(id, r.URL)
			endpoints = append(endpoints, e)
			w.record(id, 1)
			t.Cleanup(func() {
				if n := len(r.got()); n != 1 {
					t.Errorf("a receiver that redirects with %d to %s got %d requests, want 1", code, where, n)
				}
			})
		}
	}
	d.wakeAll()
	for _, e := range endpoints {
		a := w.lastAttempt(e)
		if a.Outcome != string(redirected) || *a.Status/100 != 3 || a.Error == nil {
			t.Errorf("the log says %+v", a)
		}
	}
	if n := len(inside.got()); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
	if n := w.inState(StatePending); n != len(endpoints) {
		t.Errorf("%d deliveries wait for their next attempt, want %d", n, len(endpoints))
	}
}

// The longest attempt is shorter than a lease. RELIABILITY.md, Outgoing calls.
func TestAnAttemptEndsBeforeItsLease(t *testing.T) {
	t.Parallel()
	if lease < egress.AttemptTimeout+recordInterval+time.Second || lease+pollInterval > 30*time.Second {
		t.Errorf("an attempt may take %s, a lease lasts %s", egress.AttemptTimeout, lease)
	}
}

// If a receiver asks for a pause while the URL of its endpoint changes, the pause does not apply to
// the new URL, even if the result is recorded after the change.
func TestAPauseEndsWithTheAddressThatAskedForIt(t *testing.T) {
	t.Parallel()
	const move = `
		WITH moved AS (UPDATE webhook_endpoints SET url = 'https://new.example/')
		UPDATE webhook_schedule SET quiet_until = NULL, next_due = now()`
	for name, meanwhile := range map[string]func(w *deliveryDB, settle func(context.Context) error){
		"it has moved": func(w *deliveryDB, settle func(context.Context) error) {
			w.exec(move)
			if err := settle(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"it moves": func(w *deliveryDB, settle func(context.Context) error) { w.waitsFor(settle, move) },
	} {
		w := newDeliveryDB(t)
		e, _ := w.add(w.guild, "https://old.example/")
		d := w.deliverer()
		w.record(w.guild, 1)
		rows := w.takes(d, e, 1)
		r := newResult(rows[0], d.schedule.judge(0, throttled, 24*time.Hour, 0), egress.Response{Status: 429}, time.Now(), time.Second)
		meanwhile(w, func(ctx context.Context) error { return d.record(ctx, []result{r}) })
		if n := w.count(`SELECT count(*) FROM webhook_schedule s JOIN webhook_deliveries d USING (guild_id, endpoint_id)
			WHERE s.quiet_until IS NULL AND d.attempts = 1 AND d.due_at < now() + interval '1 minute'`); n != 1 {
			t.Errorf("%s: the new address is kept quiet: %s", name, w.states())
		}
	}
}

// Retry-After pauses the whole endpoint, and no other endpoint. RELIABILITY.md, Events.
func TestRetryAfterKeepsTheEndpointQuiet(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	w.cfg.Schedule = Schedule{10 * time.Millisecond}
	const pause = 2 * time.Second
	var first atomic.Int64
	busy := w.receive(func(rw http.ResponseWriter, _ *http.Request) {
		if first.CompareAndSwap(0, time.Now().UnixNano()) {
			rw.Header().Set("Retry-After", "2")
			rw.WriteHeader(http.StatusTooManyRequests)
		}
	})
	other := w.receive(nil)
	w.add(w.guild, busy.URL)
	dbtest.AddGuilds(w.t, w.DB, "42")
	w.add("42", other.URL)
	d, _ := w.start(w.cfg)

	w.record(w.guild, 1)
	d.wakeAll()
	w.until("the 429", func() bool { return w.count(`SELECT count(*) FROM webhook_attempts WHERE outcome = 'throttled'`) == 1 })
	w.record(w.guild, 10)
	w.record("42", 10)
	d.wakeAll()
	w.until("the other endpoint's events", func() bool { return other.distinct() == 10 })
	w.drain()

	if n := busy.distinct(); n != 11 {
		t.Errorf("the quiet endpoint got %d events, want 11", n)
	}
	for _, c := range busy.got()[1:] {
		if since := c.At.Sub(time.Unix(0, first.Load())); since < pause-50*time.Millisecond {
			t.Errorf("called %s after it asked for %s", since, pause)
		}
	}
	if n := w.count(`SELECT count(*) FROM webhook_attempts WHERE outcome = 'throttled'`); n != 1 {
		t.Errorf("the 429 counts as %d attempts", n)
	}
}

// The log distinguishes each kind of failure, and none is final. RELIABILITY.md, Events.
func TestEveryFailureIsNamedAndRetried(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	w.cfg.Schedule = Schedule{time.Hour}
	allow := append([]netip.Prefix{}, egresstest.Loopback...)
	w.cfg.Guard = egress.NewGuard(allow, egresstest.NameServer(t, func(name string, _ bool) egresstest.Answer {
		if name == "gone.test" {
			return egresstest.NoSuchName
		}
		return egresstest.Addresses("127.0.0.1")
	}))

	withCertificate := func(edit func(*x509.Certificate)) string {
		s := httptest.NewUnstartedServer(status(200))
		s.TLS = testutil.SelfSigned(edit)
		s.Config.ErrorLog = quietLog()
		s.StartTLS()
		t.Cleanup(s.Close)
		w.cfg.Authorities.AddCert(s.Certificate())
		return s.URL
	}
	oldTLS := httptest.NewUnstartedServer(status(200))
	oldTLS.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	oldTLS.Config.ErrorLog = quietLog()
	oldTLS.StartTLS()
	t.Cleanup(oldTLS.Close)
	w.cfg.Authorities.AddCert(oldTLS.Certificate())
	stranger := httptest.NewUnstartedServer(status(200))
	stranger.Config.ErrorLog = quietLog()
	stranger.TLS = testutil.SelfSigned(func(c *x509.Certificate) { c.IsCA = false })
	stranger.StartTLS()
	t.Cleanup(stranger.Close)
	plain := httptest.NewServer(status(200))
	t.Cleanup(plain.Close)
	slam := w.receive(func(rw http.ResponseWriter, _ *http.Request) {
		c, _, err := rw.(http.Hijacker).Hijack()
		if err == nil {
			_ = c.Close()
		}
	})
	junk := w.receive(func(rw http.ResponseWriter, _ *http.Request) {
		c, _, err := rw.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = c.Write([]byte("no HTTP at all\r\n\r\n"))
			_ = c.Close()
		}
	})

	verbose := w.receive(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Set-Cookie", strings.Repeat("x", 40<<10))
	})

	cases := []struct {
		url  string
		want outcome
	}{
		{w.receive(status(200)).URL, delivered},
		{verbose.URL, longHeaders},
		{w.receive(status(202)).URL, delivered},
		{w.receive(status(400)).URL, clientError},
		{w.receive(status(401)).URL, clientError},
		{w.receive(status(403)).URL, clientError},
		{w.receive(status(404)).URL, clientError},
		{w.receive(status(405)).URL, clientError},
		{w.receive(status(422)).URL, clientError},
		{w.receive(status(410)).URL, gone},
		{w.receive(status(429)).URL, throttled},
		{w.receive(status(503)).URL, throttled},
		{w.receive(status(500)).URL, serverError},
		{w.receive(status(504)).URL, serverError},
		{w.receive(status(304)).URL, redirected},
		{withCertificate(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), badTLS},
		{withCertificate(func(c *x509.Certificate) { c.IPAddresses = nil; c.DNSNames = []string{"other.test"} }), badTLS},
		{stranger.URL, badTLS},
		{oldTLS.URL, badTLS},
		{strings.Replace(plain.URL, "http:", "https:", 1), badTLS},
		{"https://" + testutil.Refusing(t), refused},
		{slam.URL, reset},
		{junk.URL, badResponse},
		{"https://gone.test", noName},
	}
	endpoints := make([]endpoint, len(cases))
	for i, c := range cases {
		guild := "9" + string(rune('0'+i/10)) + string(rune('0'+i%10))
		dbtest.AddGuilds(w.t, w.DB, guild)
		url := c.url
		if c.want == noName {
			url = "https://here.test" // gone.test cannot be registered
		}
		endpoints[i], _ = w.add(guild, url)
		w.exec(`UPDATE webhook_endpoints SET url = $2 WHERE id = $1`, endpoints[i].ID, c.url)
		w.record(guild, 1)
	}
	w.start(w.cfg)
	for i, c := range cases {
		a := w.lastAttempt(endpoints[i])
		if a.Outcome != string(c.want) {
			reason := "no error"
			if a.Error != nil {
				reason = *a.Error
			}
			t.Errorf("%s: the log says %s (%s), want %s", c.url, a.Outcome, reason, c.want)
		}
		want := map[outcome]string{delivered: StateDelivered, gone: StateHeld}[c.want]
		if want == "" {
			want = StatePending
		}
		if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state = $2`, endpoints[i].ID, want); n != 1 {
			t.Errorf("%s: %d deliveries are %s, want 1: %s", c.url, n, want, w.states())
		}
	}
}

// An address that is refused when the socket connects shows one text and never gets a connection;
// three attempts in a row disable the endpoint. RELIABILITY.md, Outgoing calls.
func TestARefusedAddressPausesTheEndpoint(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	w.cfg.Schedule = Schedule{time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond}
	r := w.receive(nil)
	e, _ := w.add(w.guild, r.URL)
	w.record(w.guild, 3)
	closed, c := w.cfg, &clock{t: time.Now().Add(time.Minute)}
	closed.Clock = c.now
	closed.Guard = egress.NewGuard(nil, nil)
	_, stop := w.start(closed)
	w.until("the endpoint is paused", func() bool {
		w.advanceIdle(c, refusalsApart/2)
		return w.count(`SELECT count(*) FROM webhook_endpoints WHERE NOT enabled AND disabled_reason = $1`, reasonAddress) == 1
	})
	w.until("everything is held", func() bool { return w.inState(StateHeld) == 3 })
	stop()
	if n := w.count(`SELECT count(DISTINCT error) FROM webhook_attempts`); n != 1 {
		t.Errorf("%d different texts", n)
	}
	if a := w.lastAttempt(e); a.Outcome != string(badAddress) || a.Status != nil {
		t.Errorf("the log says %+v", a)
	}
	if n := len(r.got()); n != 0 {
		t.Errorf("%d requests arrived", n)
	}

	w.start(w.cfg) // the operator has allowed the address meanwhile
	w.enable(e, true)
	w.until("what was held arrives", func() bool { return r.distinct() == 3 })
}

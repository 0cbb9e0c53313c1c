//go:build browser

package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/base/testutil/browsertest"
	"guildhall/internal/outbound/egress/egresstest"
)

// screens is the folder for screenshots, taken if GUILDHALL_TEST_SCREENS is set.
const screens = "../../../build/screens"

// tab is a tab of a real browser with its own profile.
type tab struct {
	t          *testing.T
	s          *site
	ctx        context.Context
	font       testutil.Font
	others     []*tab // tabs of browsers with other fonts, opened after the first check of a page
	mu         sync.Mutex
	complaints []string // errors in the console
}

// newTab opens a tab in a browser that uses the first of the installed fonts.
func newTab(t *testing.T, s *site, scripts bool) *tab {
	t.Helper()
	return newTabIn(t, s, scripts, testutil.Fonts(t)[0])
}

func newTabIn(t *testing.T, s *site, scripts bool, font testutil.Font) *tab {
	t.Helper()
	var options []chromedp.ExecAllocatorOption
	if font.Config != "" {
		options = append(options, chromedp.Env("FONTCONFIG_FILE="+font.Config))
	}
	ctx, stop, err := browsertest.Open(context.Background(), options...)
	must(t, err)
	t.Cleanup(stop)
	b := &tab{t: t, s: s, font: font, ctx: ctx}
	must(t, chromedp.Listen(ctx, b.listen))
	b.run(browsertest.Command(log.Enable, cdp.Empty{}))
	b.scripts(scripts)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.complaints {
			t.Errorf("the browser complains: %s", text)
		}
	})
	return b
}

// listen collects the errors in the browser's console.
func (b *tab) listen(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *log.EventEntryAdded:
		if ev.Entry.Level == log.EntryLevelError && !strings.Contains(ev.Entry.Text, "Failed to load resource") {
			b.complaints = append(b.complaints, ev.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, ev.ExceptionDetails.Text)
	}
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if _, err := ask(b, chromedp.Steps(actions...)); err != nil {
		where, _ := ask(b, chromedp.Location())
		b.t.Fatalf("at %s: %v", where, err)
	}
}

// ask runs an action, with a timeout of a minute.
func ask[T any](b *tab, a chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	return chromedp.Run(ctx, a)
}

// get returns the result of an action.
func get[T any](b *tab, a chromedp.Action[T]) T {
	b.t.Helper()
	v, err := ask(b, a)
	if err != nil {
		where, _ := ask(b, chromedp.Location())
		b.t.Fatalf("at %s: %v", where, err)
	}
	return v
}

func (b *tab) open(path string) { b.t.Helper(); b.run(chromedp.Navigate(b.s.URL + path)) }

// has waits until the page contains the text. While one page replaces another, the browser cannot
// report what a page contains, so has tries again.
func (b *tab) has(text string) {
	b.t.Helper()
	testutil.Eventually(b.t, fmt.Sprintf("the page holds %q", text), func() bool {
		body, err := ask(b, chromedp.Text(chromedp.CSS("body")))
		return err == nil && strings.Contains(body, text)
	})
}

func (b *tab) signIn(person string) {
	b.t.Helper()
	b.open("/dashboard/")
	b.run(chromedp.Click(chromedp.CSS(`a[href="/dashboard/login"]`)), chromedp.Click(chromedp.CSS("#"+person)),
		chromedp.WaitVisible(chromedp.CSS(".me")))
}

// look checks the page with axe in light and dark colours, on a desktop and on a phone, and takes
// screenshots if they are wanted.
func (b *tab) look(name string) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 360} {
			b.run(browsertest.Scheme(scheme), browsertest.Size(width, 800))
			b.measure(name, width)
			if os.Getenv("GUILDHALL_TEST_SCREENS") != "" {
				must(b.t, os.MkdirAll(screens, 0o755))
				png := get(b, chromedp.FullScreenshot(100))
				must(b.t, os.WriteFile(filepath.Join(screens, fmt.Sprintf("%s-%s-%d.png", name, scheme, width)), png, 0o644))
			}
			b.axe(fmt.Sprintf("%s, %s, %d pixels", name, scheme, width), browsertest.AllRules)
		}
	}
	b.lookInOtherFonts(name)
}

// measure fails the test if the page is wider than the screen, or if the preview of a secret is
// broken into lines.
func (b *tab) measure(name string, width int64) {
	b.t.Helper()
	wide := get(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`))
	if wide > width {
		b.t.Errorf("%s in %s is %d pixels wide on a screen of %d", name, b.font.Name, wide, width)
	}
	if broken := get(b, chromedp.Evaluate[int](`
		[...document.querySelectorAll(".preview")]
			.filter(e => [...e.getClientRects()].some((r, i) => i > 0 || r.height > 30)).length`)); broken > 0 {
		b.t.Errorf("%s in %s breaks %d previews of secrets on a screen of %d", name, b.font.Name, broken, width)
	}
}

// axe checks the page with rules of axe, and reports each problem as an error of the test.
func (b *tab) axe(what string, rules browsertest.Rules) {
	b.t.Helper()
	problems, err := browsertest.Problems(b.ctx, rules)
	must(b.t, err)
	for _, problem := range problems {
		b.t.Errorf("%s in %s: %s", what, b.font.Name, problem)
	}
}

// filled adds old data to the guild: requests, refusals and hostile names.
func filled(t *testing.T, s *site) auth.Token {
	t.Helper()
	made := s.makeToken(t, guildID, func(n *auth.New) {
		n.Name, n.Scopes = "payday bot", []string{"economy:read", "economy:write", "cases:read"}
	})
	s.makeToken(t, guildID, func(n *auth.New) {
		n.Name, n.ExpiresIn, n.AllowIP = "nightly export", 72*time.Hour, []string{"198.51.100.0/24"}
	})
	gone := s.makeToken(t, guildID, func(n *auth.New) { n.Name = "<script>alert(1)</script>" })
	must(t, auth.Revoke(t.Context(), s.DB, guildID, gone.ID))
	dbtest.Exec(t, s.DB, `
		INSERT INTO usage_hours (guild_id, token_id, hour, operation, class, requests)
		SELECT $1, t, date_trunc('hour', now()) - h * interval '1 hour', o, c, 20 + (h * 7 + length(o)) % 40
		FROM unnest(ARRAY['', $2]) t, generate_series(0, 719) h, unnest(ARRAY['getWallet', 'adjustBalance', 'listCases']) o,
			unnest(ARRAY[2, 4]::smallint[]) c
		WHERE c = 2 OR h % 5 = 0`, guildID, made.ID)
	dbtest.Exec(t, s.DB, `
		INSERT INTO usage_totals (guild_id, token_id, hour, class, requests)
		SELECT guild_id, token_id, hour, class, sum(requests) FROM usage_hours GROUP BY guild_id, token_id, hour, class`)
	dbtest.Exec(t, s.DB, `
		INSERT INTO usage_days (guild_id, token_id, day, operation, class, requests)
		SELECT guild_id, token_id, (hour AT TIME ZONE 'UTC')::date, operation, class, sum(requests) FROM usage_hours
		GROUP BY guild_id, token_id, 3, operation, class`)
	dbtest.Exec(t, s.DB, `
		INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address)
		SELECT $1, '01900000-0000-7000-8000-' || lpad(n::text, 12, '0'), now() - (40 - n) * interval '3 minutes', $2,
		       CASE n % 2 WHEN 0 THEN 'adjustBalance' ELSE 'listTickets' END, CASE n % 2 WHEN 0 THEN 422 ELSE 403 END,
		       CASE n % 2 WHEN 0 THEN 'balance_would_be_negative' ELSE 'insufficient_scope' END, '203.0.113.9'
		FROM generate_series(1, 30) n`, guildID, made.ID)
	return made
}

func TestPagesInABrowser(t *testing.T) {
	s := newSite(t)
	b := newTab(t, s, true)
	b.open("/dashboard/")
	b.look("welcome")
	b.run(chromedp.Click(chromedp.CSS(`a[href="/dashboard/login"]`)), chromedp.WaitVisible(chromedp.CSS("#manager")))
	b.look("stand-in")
	b.signIn("manager")
	b.look("guilds")
	pages := func(kind string, paths map[string]string) {
		for name, path := range paths {
			b.open(path)
			b.look(name + "-" + kind)
		}
	}
	g := func(parts ...string) string { return page(guildID, parts...) }
	b.open(g()) // two clicks from a new guild to a token
	b.run(chromedp.Click(chromedp.CSS(".steps a")), chromedp.Click(chromedp.CSS("form.form button.primary")),
		chromedp.WaitVisible(chromedp.CSS("#secret")))
	dbtest.Exec(t, s.DB, `DELETE FROM api_tokens`)
	dbtest.Exec(t, s.DB, `DELETE FROM audit_log`)
	pages("empty", map[string]string{
		"overview": g(), "tokens": g("tokens"), "requests": g("requests"), "audit": g("audit"),
		"sessions": "/dashboard/sessions", "missing": g("nothing"),
	})
	made := filled(t, s)
	pages("filled", map[string]string{
		"overview":    g(),
		"tokens":      g("tokens"),
		"token":       g("tokens", made.ID),
		"token-month": g("tokens", made.ID) + "?window=30d",
		"token-new":   g("tokens", "new") + "?name=x&scopes=cases:read",
		"requests":    g("requests") + "?window=7d",
		"audit":       g("audit"),
	})
	b.open(g("tokens", "new"))
	b.run(chromedp.Submit(chromedp.CSS("form.form")), chromedp.WaitVisible(chromedp.CSS("#problems")))
	b.look("token-wrong")
	if focus := get(b, chromedp.Evaluate[string](`document.activeElement.id`)); focus != "problems" {
		t.Errorf("the focus is on %q, not on the summary of what is wrong", focus)
	}
}

// The first scenario: a token is created, copied, used, shown as used, and revoked, at the end with
// the keyboard alone; on a phone, and without scripts.
func TestTokenInABrowser(t *testing.T) {
	for name, way := range map[string]struct {
		scripts bool
		width   int64
	}{"on a desk": {true, 1280}, "on a phone": {true, 360}, "without scripts": {false, 1280}} {
		t.Run(name, func(t *testing.T) {
			l := newLive(t)
			b := newTab(t, l.site, way.scripts)
			b.run(browsertest.Size(way.width, 800))
			b.signIn("manager")
			b.open(page(guildID, "tokens", "new"))
			b.run(chromedp.SendKeys(chromedp.CSS("#name"), "payday"), chromedp.Click(chromedp.CSS(`input[value="economy:read"]`)),
				chromedp.Click(chromedp.CSS(`input[value="cases:read"]`)), chromedp.SendKeys(chromedp.CSS("#ip_allowlist"), "127.0.0.0/8"),
				chromedp.Click(chromedp.CSS(`input[name="expires_in_days"][value="other"]`)),
				chromedp.SendKeys(chromedp.CSS(`input[name="days"]`), "1"),
				chromedp.Click(chromedp.CSS("form.form button.primary")), chromedp.WaitVisible(chromedp.CSS("#secret")))
			secret := strings.TrimSpace(get(b, chromedp.Text(chromedp.CSS("#secret"))))
			if way.scripts {
				if copied := b.copied("#secret"); copied != secret {
					t.Errorf("copying gives %q", copied)
				}
				b.look("token-made")
			} else if shown := b.plain(`getComputedStyle(document.querySelector("button[data-copy]")).display`); shown != "none" {
				t.Errorf("the button for copying, which needs scripts, is shown: %s", shown)
			}
			b.has(" '" + l.URL + "/api/v1/cases'") // the example call
			for _, call := range []struct {
				path string
				want int
			}{{"/cases", 200}, {"/economy/leaderboard", 200}, {"/tickets", 403}} {
				for _, node := range []string{l.URL, l.Other} {
					if status, body := l.call(t, node, secret, http.MethodGet, call.path, ""); status != call.want {
						t.Errorf("%s%s answers %d, want %d: %s", node, call.path, status, call.want, body)
					}
				}
			}
			must(t, l.Counter.Flush(t.Context(), l.DB))
			tokens, err := auth.List(t.Context(), l.DB, guildID)
			must(t, err)
			b.open(page(guildID, "tokens", tokens[0].ID))
			b.has("listCases")
			b.has("insufficient_scope")
			// With the keyboard alone: go to the field, type the name, press Enter.
			b.tabTo("confirm")
			b.run(chromedp.KeyEvent("payday"), chromedp.KeyEvent("\r"), chromedp.WaitVisible(chromedp.CSS(".notice p")))
			b.has("is revoked")
			for _, node := range []string{l.URL, l.Other} {
				if status, body := l.call(t, node, secret, http.MethodGet, "/cases", ""); status != http.StatusUnauthorized {
					t.Errorf("%s answers %d to a revoked token: %s", node, status, body)
				}
			}
			b.open(page(guildID, "audit"))
			b.has("token.revoked")
			b.has("token.created")
		})
	}
}

// scripts lets the scripts of pages run, or not.
func (b *tab) scripts(run bool) {
	b.t.Helper()
	b.run(browsertest.Command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !run}))
}

// plain evaluates a script on a page whose own scripts are disabled.
func (b *tab) plain(script string) string {
	b.t.Helper()
	b.scripts(true)
	defer b.scripts(false)
	return get(b, chromedp.Evaluate[string](script))
}

// tabTo presses the Tab key until the element has the focus.
func (b *tab) tabTo(id string) {
	b.t.Helper()
	for range 200 {
		b.run(chromedp.KeyEvent("\t"))
		if get(b, chromedp.Evaluate[string](`document.activeElement.id`)) == id {
			return
		}
	}
	b.t.Fatalf("the keyboard does not lead to %s", id)
}

// copied presses the copy button of an element and returns the copied text.
func (b *tab) copied(element string) string {
	b.t.Helper()
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		b.run(browsertest.Command(cdpbrowser.SetPermission, cdpbrowser.SetPermissionParams{
			Permission: &cdpbrowser.PermissionDescriptor{Name: name}, Setting: cdpbrowser.PermissionSettingGranted, Origin: b.s.URL,
		}))
	}
	b.run(chromedp.Click(chromedp.CSS(`.copyable:has(` + element + `) button`)))
	b.has("Copied.")
	return get(b, chromedp.Evaluate[string](`navigator.clipboard.readText()`, chromedp.EvalAwaitPromise))
}

// register creates an endpoint in the browser, with a hostile description, and returns its id and
// secret.
func (b *tab) register(url string, events ...string) (id, secret string) {
	b.t.Helper()
	b.open(page(guildID, "webhooks", "new"))
	b.run(chromedp.SendKeys(chromedp.CSS("#url"), url),
		chromedp.SendKeys(chromedp.CSS("#description"), `the store’s receiver <img src=x onerror=alert(1)>`))
	for _, e := range events {
		b.run(chromedp.Click(chromedp.CSS(`input[value="` + e + `"]`)))
	}
	b.run(chromedp.Click(chromedp.CSS("form.form button.primary")), chromedp.WaitVisible(chromedp.CSS("#secret")))
	secret = strings.TrimSpace(get(b, chromedp.Text(chromedp.CSS("#secret"))))
	must(b.t, b.s.DB.Reader().GetContext(b.t.Context(), &id, `
		SELECT id
		FROM webhook_endpoints
		WHERE guild_id = $1 ORDER BY created_at DESC LIMIT 1`, guildID))
	return id, secret
}

// makeCase creates a case through the API.
func (l *live) makeCase(t *testing.T, token string) {
	t.Helper()
	if status, body := l.call(t, l.URL, token, http.MethodPost, "/cases",
		`{"user_id":"42","moderator_id":"7","type":"warn","reason":"Spam in #general"}`); status != http.StatusCreated {
		t.Fatalf("making a case answers %d: %s", status, body)
	}
}

// The second scenario: an endpoint is registered, a case is created, and its delivery appears
// without a reload; the receiver fails and recovers; the secret is rotated.
func TestWebhookInABrowser(t *testing.T) {
	l, r := newLive(t), egresstest.NewReceiver(t, egresstest.Respond(http.StatusOK, hostile))
	b := newTab(t, l.site, true)
	token := l.makeToken(t, guildID, func(n *auth.New) { n.Scopes = []string{"cases:read", "cases:write"} }).Secret
	b.signIn("manager")
	b.open(page(guildID, "webhooks"))
	b.look("webhooks-empty")
	b.open(page(guildID, "webhooks", "new"))
	b.look("webhook-new")
	b.run(chromedp.Click(chromedp.CSS("form.form button.primary")), chromedp.WaitVisible(chromedp.CSS("#problems")))
	b.look("webhook-wrong")
	id, secret := b.register(r.URL+"/guildhall", "case.created", "case.updated")
	b.look("webhook-secret")
	one := page(guildID, "webhooks", id)
	b.open(one)
	b.look("webhook-empty")

	b.open(one)
	b.run(chromedp.Evaluate[chromedp.Void](`window.stayed = true`))
	l.makeCase(t, token)
	sent := r.Await(t, 1)
	b.has("case.created")
	b.has("delivered")
	if !get(b, chromedp.Evaluate[bool](`window.stayed === true`)) {
		t.Error("the page was loaded anew")
	}
	b.run(chromedp.Click(chromedp.CSS("#live-deliveries th a")), chromedp.WaitVisible(chromedp.CSS("#body")))
	if body := get(b, chromedp.Evaluate[string](`document.getElementById("exact").textContent`)); body != string(sent.Body) {
		t.Errorf("the page shows %s, sent was %s", body, sent.Body)
	}
	b.look("delivery")

	r.RespondWith(egresstest.Respond(http.StatusInternalServerError, hostile))
	b.open(one)
	b.run(chromedp.Click(chromedp.CSS(".row-actions .primary")), chromedp.WaitVisible(chromedp.CSS("#problem")))
	b.has("The receiver answered 500, so something went wrong in the receiver")
	b.look("delivery-failed")
	b.open(one)
	b.look("webhook-failing")
	r.RespondWith(egresstest.Respond(http.StatusOK, hostile))
	b.run(chromedp.Click(chromedp.CSS("#live-deliveries .act button")), chromedp.WaitVisible(chromedp.CSS("#body")))
	b.has("delivered")
	if all := r.Calls(); len(all) != 3 || all[1].Header.Get("Webhook-Id") != all[2].Header.Get("Webhook-Id") {
		t.Errorf("the receiver has got %+v", all)
	}

	b.open(one)
	b.run(chromedp.Click(chromedp.CSS(`a[href$="/rotate"]`)), chromedp.WaitVisible(chromedp.CSS("form.form")))
	b.look("webhook-rotate")
	b.run(chromedp.Click(chromedp.CSS(`form[action$="/rotate"] button`)), chromedp.WaitVisible(chromedp.CSS("#secret")))
	newer := strings.TrimSpace(get(b, chromedp.Text(chromedp.CSS("#secret"))))
	b.look("webhook-rotated")
	l.makeCase(t, token)
	if sent = r.Await(t, 4); !sent.SignedBy(secret) || !sent.SignedBy(newer) || secret == newer {
		t.Errorf("not signed by both secrets: %v", sent.Header)
	}
	b.open(one)
	b.has("signs along until")
	b.look("webhook-old-secret")
	b.run(chromedp.Click(chromedp.CSS(`a[href$="/disable"]`)), chromedp.WaitVisible(chromedp.CSS("main button.bad")))
	b.look("webhook-disable")
	b.open(page(guildID, "webhooks"))
	b.look("webhooks")
	b.open(page(guildID))
	b.look("overview-webhook")
}

// The third scenario: an endpoint answers 410 and its deliveries are held; enabling the endpoint
// sends them; events that failed a day ago are recovered.
func TestRecoveryInABrowser(t *testing.T) {
	l, r := newLive(t), egresstest.NewReceiver(t, egresstest.Respond(http.StatusOK, hostile))
	b := newTab(t, l.site, true)
	token := l.makeToken(t, guildID, func(n *auth.New) { n.Scopes = []string{"cases:read", "cases:write"} }).Secret
	b.signIn("manager")
	id, _ := b.register(r.URL, "case.created")
	one := page(guildID, "webhooks", id)
	r.RespondWith(egresstest.Respond(http.StatusInternalServerError, hostile))
	b.open(one)
	b.run(chromedp.Click(chromedp.CSS(".row-actions .primary")), chromedp.WaitVisible(chromedp.CSS("#problem")))
	for range 20 {
		l.makeCase(t, token)
	}
	r.RespondWith(egresstest.Respond(http.StatusGone, hostile))
	b.open(one)
	b.run(chromedp.Click(chromedp.CSS("#live-deliveries .act button")), chromedp.WaitVisible(chromedp.CSS("#body")))
	b.open(one)
	b.has("The receiver answered 410, so the endpoint was disabled")
	held := func() int {
		return dbtest.Value[int](t, l.DB, `
			SELECT count(DISTINCT event_id)
			FROM webhook_deliveries
			WHERE endpoint_id = $1 AND event_type = 'case.created' AND state = 'held'`, id)
	}
	testutil.Eventually(t, "20 deliveries are held", func() bool { return held() == 20 })
	b.open(one)
	b.look("webhook-disabled")
	b.open(page(guildID))
	b.look("overview-disabled")
	r.RespondWith(egresstest.Respond(http.StatusOK, hostile))
	b.open(one)
	b.run(chromedp.Click(chromedp.CSS(`form[action$="/enable"] button`)), chromedp.WaitVisible(chromedp.CSS(".notice p")))
	arrived := func() map[string]bool {
		ids := map[string]bool{}
		for _, g := range r.Calls() {
			if g.Header.Get("Service-Event") == "case.created" {
				ids[g.Header.Get("Webhook-Id")] = true
			}
		}
		return ids
	}
	testutil.Eventually(t, "all that was held is delivered", func() bool {
		return dbtest.Value[int](t, l.DB, `
			SELECT count(DISTINCT event_id)
			FROM webhook_deliveries
			WHERE endpoint_id = $1 AND event_type = 'case.created' AND state = 'delivered'`, id) == 20
	})
	if n := len(arrived()); n != 20 {
		t.Errorf("%d events have arrived", n)
	}
	b.open(one)
	b.has("healthy")

	// Every delivery of that day has failed.
	before := len(r.Calls())
	dbtest.Exec(t, l.DB, `
		UPDATE webhook_deliveries SET state = 'failed', response_class = '5xx', `+dbtest.Earlier(`interval '20 hours'`, "created_at")+`
		WHERE endpoint_id = $1 AND event_type = 'case.created'`, id)
	b.open(one)
	b.look("webhook-failed-day")
	b.run(chromedp.Click(chromedp.CSS(`form[action$="/recover"] button`)), chromedp.WaitVisible(chromedp.CSS("main .primary")))
	b.has("20 deliveries have failed")
	b.look("recover")
	b.run(chromedp.Click(chromedp.CSS("main .primary")), chromedp.WaitVisible(chromedp.CSS(".notice p")))
	b.has("20 failed deliveries are queued again")
	r.Await(t, before+20)
	if n := len(arrived()); n != 20 {
		t.Errorf("recovering has made other events: %d", n)
	}
}

// The fourth scenario: the plots show the same numbers as the tables, and a person who may manage
// no guild sees none.
func TestPlotsAndOutsidersInABrowser(t *testing.T) {
	s := newSite(t)
	b := newTab(t, s, true)
	made := filled(t, s)
	b.signIn("manager")
	paths := []string{page(guildID)}
	for _, window := range []string{"24h", "7d", "30d"} {
		paths = append(paths, page(guildID, "requests")+"?window="+window, page(guildID, "tokens", made.ID)+"?window="+window)
	}
	for _, path := range paths {
		b.open(path)
		sums := get(b, chromedp.Evaluate[[]int](`(() => {
			const n = (e) => Number(e.textContent.replaceAll(",", ""));
			const sum = (list) => [...list].map(n).reduce((a, b) => a + b, 0);
			const plot = document.querySelector("figure.plot");
			return [
				Number(plot.querySelector("svg").getAttribute("aria-label").match(/: ([0-9,]+) in all/)[1].replaceAll(",", "")),
				sum(plot.querySelectorAll(".legend b")), sum(plot.querySelectorAll("tbody td")), sum(plot.querySelectorAll("tfoot td")),
				...(document.querySelector("table.operations") ? [sum(document.querySelectorAll("table.operations td[data-label=Requests]")),
				sum(document.querySelectorAll("table.operations td:not([data-label=Requests])"))] : []),
			];
		})()`))
		if over := get(b, chromedp.Evaluate[string](`getComputedStyle(document.querySelector("rect.mark")).fill`)); over != "rgba(0, 0, 0, 0)" {
			t.Errorf("%s: what shows a bar's numbers hides the bar: its fill is %s", path, over)
		}
		for _, sum := range sums {
			if sum == 0 || sum != sums[0] {
				t.Errorf("%s: the sums differ: %v", path, sums)
			}
		}
	}
	b.run(chromedp.Click(chromedp.CSS(".me button")), chromedp.WaitVisible(chromedp.CSS(".notice-box")))
	b.signIn("outsider")
	b.look("outsider")
	for _, path := range append(paths, page(guildID, "webhooks"), page(guildID, "audit"), page(neighbourID)) {
		b.open(path)
		if title := get(b, chromedp.Evaluate[string](`document.querySelector("h1").textContent`)); title != "Not found" {
			t.Errorf("an outsider sees %q at %s", title, path)
		}
	}
}

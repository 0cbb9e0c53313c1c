//go:build browser

package dashboard_test

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"guildhall/internal/auth"
	"guildhall/internal/usage"
)

// screens is the folder of the pictures.
const screens = "../../build/screens"

// axe judges whether people with other eyes and hands can use a page. It is part
// of this repository: a page that nobody has judged is no page that has passed.
//
//go:embed testdata/axe/axe.min.js
var axe string

// tab is a tab of a real browser, in a profile of its own.
type tab struct {
	t     *testing.T
	s     *scene
	ctx   context.Context
	begun bool
	mu    sync.Mutex
	said  []string // complaints in the console
}

func newTab(t *testing.T, s *scene, scripts bool) *tab {
	t.Helper()
	program := os.Getenv("GUILDHALL_TEST_CHROMIUM")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); program == "" && err == nil {
			program = path
		}
	}
	if program == "" {
		t.Fatal("needs Chromium: make browser installs it where it may, or says how")
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.Flag("ignore-certificate-errors", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(2*time.Minute))...)
	t.Cleanup(stop)
	b := &tab{t: t, s: s}
	ctx, cancel := chromedp.NewContext(alloc, chromedp.WithListener(b.listen))
	t.Cleanup(cancel)
	b.ctx = ctx
	b.run(command(log.Enable, cdp.Empty{}), command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !scripts}))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.said {
			t.Errorf("the browser complains: %s", text)
		}
	})
	return b
}

// listen notes what the console complains of.
func (b *tab) listen(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *log.EventEntryAdded:
		if ev.Entry.Level == log.EntryLevelError && !strings.Contains(ev.Entry.Text, "Failed to load resource") {
			b.said = append(b.said, ev.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		b.said = append(b.said, ev.ExceptionDetails.Text)
	}
}

// command is an action that sends one command of the protocol.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if _, err := ask(b, chromedp.Steps(actions...)); err != nil {
		where, _ := ask(b, chromedp.Location())
		b.t.Fatalf("at %s: %v", where, err)
	}
}

// ask runs an action within a minute, once the browser runs.
func ask[T any](b *tab, a chromedp.Action[T]) (T, error) {
	ctx := b.ctx
	if b.begun {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Minute)
		defer cancel()
	}
	b.begun = true
	return chromedp.Run(ctx, a)
}

// get is what an action finds.
func get[T any](b *tab, a chromedp.Action[T]) T {
	b.t.Helper()
	v, err := ask(b, a)
	if err != nil {
		where, _ := ask(b, chromedp.Location())
		b.t.Fatalf("at %s: %v", where, err)
	}
	return v
}

func size(width int64) chromedp.Action[chromedp.Void] {
	return command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 800, DeviceScaleFactor: 1, Mobile: width < 640})
}

func (b *tab) open(path string) { b.t.Helper(); b.run(chromedp.Navigate(b.s.URL + path)) }

// has waits until the page holds the text.
func (b *tab) has(text string) {
	b.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		body := get(b, chromedp.Text(chromedp.CSS("body")))
		if strings.Contains(body, text) {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the page lacks %q: %s", text, body)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (b *tab) signIn(person string) {
	b.t.Helper()
	b.open("/dashboard/")
	b.run(chromedp.Click(chromedp.CSS(`a[href="/dashboard/login"]`)), chromedp.Click(chromedp.CSS("#"+person)), chromedp.WaitVisible(chromedp.CSS(".me")))
}

// look takes the page's picture in light and dark, on a desk and on a phone, and
// lets axe judge it.
func (b *tab) look(name string) {
	b.t.Helper()
	must(b.t, os.MkdirAll(screens, 0o755))
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 360} {
			b.run(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}), size(width))
			wide := get(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`))
			png := get(b, chromedp.FullScreenshot(100))
			if wide > width {
				b.t.Errorf("%s is %d pixels wide on a screen of %d", name, wide, width)
			}
			must(b.t, os.WriteFile(filepath.Join(screens, fmt.Sprintf("%s-%s-%d.png", name, scheme, width)), png, 0o644))
			b.judge(fmt.Sprintf("%s, %s, %d pixels", name, scheme, width))
		}
	}
}

// judgement is what axe says of a page.
type judgement struct {
	Passes     int
	Violations []string
}

func (b *tab) judge(what string) {
	b.t.Helper()
	b.run(chromedp.Evaluate[chromedp.Void](axe + ";undefined"))
	said := get(b, chromedp.Evaluate[judgement](`axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(
		r => ({Passes: r.passes.length, Violations: r.violations.map(v => v.id + ": " + v.nodes.slice(0, 3).map(n => n.html + " " + n.failureSummary).join(" | "))}))`, chromedp.EvalAwaitPromise))
	if said.Passes < 10 {
		b.t.Errorf("%s: axe has looked at next to nothing: only %d of its rules have passed", what, said.Passes)
	}
	for _, v := range said.Violations {
		b.t.Errorf("%s: %s", what, v)
	}
}

// filled gives the guild a past: requests, refusals and hostile names.
func filled(t *testing.T, s *scene) auth.Token {
	t.Helper()
	made := s.makeToken(t, guildID, func(n *auth.New) {
		n.Name, n.Scopes = "payday bot", []string{"economy:read", "economy:write", "cases:read"}
	})
	s.makeToken(t, guildID, func(n *auth.New) {
		n.Name, n.ExpiresIn, n.AllowIP = "nightly export", 72*time.Hour, []string{"198.51.100.0/24"}
	})
	gone := s.makeToken(t, guildID, func(n *auth.New) { n.Name = "<script>alert(1)</script>" })
	must(t, auth.Revoke(t.Context(), s.DB, guildID, gone.ID))
	s.exec(t, `
		INSERT INTO usage_hours (guild_id, token_id, hour, operation, class, requests)
		SELECT $1, t, date_trunc('hour', now()) - h * interval '1 hour', o, c, 20 + (h * 7 + length(o)) % 40
		FROM unnest(ARRAY['', $2]) t, generate_series(0, 719) h, unnest(ARRAY['getWallet', 'adjustBalance', 'listCases']) o, unnest(ARRAY[2, 4]::smallint[]) c
		WHERE c = 2 OR h % 5 = 0`, guildID, made.ID)
	s.exec(t, `
		INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address)
		SELECT $1, '01900000-0000-7000-8000-' || lpad(n::text, 12, '0'), now() - (40 - n) * interval '3 minutes', $2,
		       CASE n % 2 WHEN 0 THEN 'adjustBalance' ELSE 'listTickets' END, CASE n % 2 WHEN 0 THEN 422 ELSE 403 END,
		       CASE n % 2 WHEN 0 THEN 'balance_would_be_negative' ELSE 'insufficient_scope' END, '203.0.113.9'
		FROM generate_series(1, 30) n`, guildID, made.ID)
	return made
}

func TestPagesInABrowser(t *testing.T) {
	s := newScene(t)
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
	pages("empty", map[string]string{"overview": g(), "tokens": g("tokens"), "requests": g("requests"), "audit": g("audit"), "sessions": "/dashboard/sessions", "missing": g("nothing")})
	made := filled(t, s)
	pages("filled", map[string]string{
		"overview": g(), "tokens": g("tokens"), "token": g("tokens", made.ID), "token-month": g("tokens", made.ID) + "?window=30d", "requests": g("requests") + "?window=7d",
		"audit": g("audit"), "token-new": g("tokens", "new") + "?name=x&scopes=cases:read",
	})
	b.open(g("tokens", "new"))
	b.run(chromedp.Submit(chromedp.CSS("form.form")), chromedp.WaitVisible(chromedp.CSS("#problems")))
	b.look("token-wrong")
	if focus := get(b, chromedp.Evaluate[string](`document.activeElement.id`)); focus != "problems" {
		t.Errorf("the focus is on %q, not on the summary of what is wrong", focus)
	}
}

// The first story: a token is made, copied, used, seen to be used and revoked,
// with the keyboard alone at the end; on a phone, and without scripts.
func TestTokenInABrowser(t *testing.T) {
	for name, way := range map[string]struct {
		scripts bool
		width   int64
	}{"on a desk": {true, 1280}, "on a phone": {true, 360}, "without scripts": {false, 1280}} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			b := newTab(t, s, way.scripts)
			b.run(size(way.width))
			b.signIn("manager")
			b.open(page(guildID, "tokens", "new"))
			b.run(chromedp.SendKeys(chromedp.CSS("#name"), "payday"), chromedp.Click(chromedp.CSS(`input[value="economy:read"]`)),
				chromedp.Click(chromedp.CSS(`input[value="economy:write"]`)), chromedp.SendKeys(chromedp.CSS("#ip_allowlist"), "203.0.113.0/24"),
				chromedp.Click(chromedp.CSS(`input[name="expires_in_days"][value="7"]`)), chromedp.Click(chromedp.CSS("form.form button.primary")),
				chromedp.WaitVisible(chromedp.CSS("#secret")))
			secret := get(b, chromedp.Text(chromedp.CSS("#secret")))
			if way.scripts && way.width > 640 {
				b.look("token-made")
			}
			accepts(t, s, strings.TrimSpace(secret), true)
			tokens, err := auth.List(t.Context(), s.DB, guildID)
			must(t, err)
			counter := usage.NewCounter()
			counter.Count(usage.Request{Guild: guildID, Token: tokens[0].ID, Operation: "getWallet", RequestID: tokens[0].ID, Status: http.StatusOK, At: time.Now()})
			must(t, counter.Flush(t.Context(), s.DB))
			b.open(page(guildID, "tokens", tokens[0].ID))
			b.has("getWallet")
			// The name typed into the field that has the focus, and Enter.
			b.run(chromedp.Focus(chromedp.CSS("#confirm")), chromedp.KeyEvent("payday"), chromedp.KeyEvent("\r"), chromedp.WaitVisible(chromedp.CSS(".notice p")))
			b.has("is revoked")
			accepts(t, s, strings.TrimSpace(secret), false)
			b.open(page(guildID, "audit"))
			b.has("token.revoked")
			b.has("token.created")
		})
	}
}

package dashboard_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/dashboard"
)

// When twenty requests use a link at the same moment, only one is signed in.
func TestALinkIsSpentOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	link, err := dashboard.NewLink(t.Context(), s.DB, guildID, time.Minute)
	must(t, err)
	var all sync.WaitGroup
	var in, out atomic.Int32
	for range 20 {
		b := s.browser(t)
		all.Go(func() {
			switch b.post(link.Path, nil).status {
			case http.StatusSeeOther:
				in.Add(1)
			case http.StatusNotFound:
				out.Add(1)
			}
		})
	}
	all.Wait()
	sessions := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM dashboard_sessions`)
	used := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM audit_log WHERE action = $1`, audit.LinkUsed)
	if in.Load() != 1 || out.Load() != 19 || sessions != 1 || used != 1 {
		t.Errorf("%d were let in and %d refused; %d sessions, %d lines", in.Load(), out.Load(), sessions, used)
	}
}

// A session that sends forms as fast as it can makes only as many changes as its bucket allows.
// Other sessions are not affected, and no more tokens are created than were shown.
func TestManyFormsOfOneSessionHurtNobodyElse(t *testing.T) {
	t.Parallel()
	const bucket, forms = 60, 400
	s := newSite(t, func(c *dashboard.Config) { c.Session = ratelimit.Quota{Limit: bucket, Window: time.Hour} })
	b, other := s.as(t, "owner"), s.as(t, "manager")
	spent := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_tokens`)
	var all sync.WaitGroup
	var made, refused, others atomic.Int32
	begin := make(chan struct{})
	for range 20 {
		all.Go(func() {
			<-begin
			for range forms / 20 {
				switch b.post(page(guildID, "tokens"), url.Values{"name": {"flood"}, "scopes": {"cases:read"}, "expires_in_days": {"7"}}).status {
				case http.StatusCreated:
					made.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				default:
					others.Add(1)
				}
			}
		})
	}
	close(begin)
	other.get(page(guildID)).wants(200)
	all.Wait()
	tokens := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM api_tokens`) - spent
	if made.Load() > bucket || refused.Load() < forms-bucket-20 || int(made.Load()) != tokens {
		t.Errorf("%d tokens were made, %d answered so; %d forms were refused, %d otherwise", tokens, made.Load(), refused.Load(), others.Load())
	}
}

// A form of a megabyte is refused after its first 64 KB.
func TestAFormOfAMegabyteIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	for path, form := range map[string]url.Values{
		page(guildID, "tokens"):   {"name": {strings.Repeat("a", 1<<20)}, "scopes": {"cases:read"}},
		page(guildID, "webhooks"): {"url": {"https://example.net/"}, "events": {strings.Repeat("case.created ", 90_000)}},
		"/dashboard/sessions":     {"id": {strings.Repeat("%00", 350_000)}},
	} {
		b.post(path, form).wants(http.StatusBadRequest, "too large").lacks("aaaaaaaaaa")
	}
	read := &counting{Reader: strings.NewReader("name=" + strings.Repeat("a", 64<<20))}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+page(guildID, "tokens"), read)
	must(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	if res, err := b.client.Do(req); err == nil { // or the server has closed the connection before everything was sent
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("the answer is %d", res.StatusCode)
		}
	}
	if n := read.n.Load(); n > 8<<20 {
		t.Errorf("%d bytes of the form were read", n)
	}
	if n := dbtest.Value[int](t, s.DB, `SELECT (SELECT count(*) FROM api_tokens) + (SELECT count(*) FROM webhook_endpoints)`); n != 0 {
		t.Errorf("%d things were made", n)
	}
}

// counting counts the bytes that are read from it.
type counting struct {
	io.Reader
	n atomic.Int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// A cookie that an attacker has set beside the session's cookie, or before it, neither opens nor
// ends a session.
func TestACookieInFrontOfTheSessionsOpensNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, thief := s.as(t, "owner"), s.browser(t)
	session, planted := "__Host-guildhall="+b.session(), "__Host-guildhall="+strings.Repeat("A", 43)
	for header, want := range map[string]int{
		session: 200, planted: 401, "guildhall=" + b.session(): 401, "__Secure-guildhall=" + b.session(): 401,
		"__host-guildhall=" + b.session(): 401, "__Host-guildhall=" + strings.Repeat("A", 4000): 401, "__Host-guildhall=": 401,
		"guildhall=x; __Secure-guildhall=y; " + session: 200,
	} {
		thief.get(page(guildID), "Cookie", header).wants(want)
	}
	// A browser refuses a second cookie with this prefix, but a program may send two: then the
	// caller is not signed in, whatever the second cookie is, and in either order.
	own, other := "__Host-guildhall="+b.session(), "__Host-guildhall="+s.as(t, "manager").session()
	for _, header := range []string{
		planted + "; " + own, own + "; " + planted, own + "; " + other, other + "; " + own, own + "; " + own, own + "; __Host-guildhall=",
		own + "; a=b; " + planted,
	} {
		got := thief.get(page(guildID), "Cookie", header).wants(401, "Sign in first.")
		if told := strings.Join(got.header.Values("Set-Cookie"), "\n"); !strings.HasPrefix(told, "__Host-guildhall=;") ||
			!strings.Contains(told, "Max-Age=0") || !strings.Contains(told, "Path=/;") {
			t.Errorf("after %q the browser is told %q", header, told)
		}
		thief.post(page(guildID, "tokens"), nil, "Cookie", header).wants(401)
	}
	// A browser sends the cookie with the longer path first.
	at, err := url.Parse(s.URL + "/dashboard/guilds/")
	must(t, err)
	victim := s.as(t, "owner")
	victim.client.Jar.SetCookies(at, []*http.Cookie{
		{Name: "__Host-guildhall", Value: s.as(t, "manager").session(), Path: "/dashboard/guilds/", Secure: true},
	})
	victim.get(page(guildID)).wants(401)
	victim.signIn("owner", "")
	victim.get("/dashboard/sessions").wants(200)
	b.get(page(guildID)).wants(200)
}

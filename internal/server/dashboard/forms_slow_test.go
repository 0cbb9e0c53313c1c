//go:build slow

package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/dashboard"
)

// The database takes seconds for each response. The response to a form comes within twelve seconds,
// and the change was made once or not at all; when the form is sent again, the change was made
// once. RELIABILITY.md, Writes.
func TestNoFormLastsLongerThanTwelveSeconds(t *testing.T) {
	t.Parallel()
	database := dbtest.New(t)
	var all sync.WaitGroup
	// Twelve seconds are the limit; twelve more allow for a slow machine. Without a limit, the form
	// would exceed this, because each response takes thirty seconds.
	const bound = 24 * time.Second
	for _, milliseconds := range []time.Duration{30_000, 4500, 2600, 1900, 900} {
		delay := milliseconds * time.Millisecond
		name := "slow " + delay.String()
		for path, f := range map[string]struct {
			form url.Values
			rows string
		}{
			"tokens": {url.Values{"name": {name}, "scopes": {"cases:read"}}, `SELECT count(*) FROM api_tokens WHERE name = $1`},
			"webhooks": {
				url.Values{"url": {"http://127.0.0.1:9/x"}, "description": {name}, "events": {"case.created"}, "enabled": {"true"}},
				`SELECT count(*) FROM webhook_endpoints WHERE description = $1`,
			},
		} {
			f.form.Set("once", path+name)
			link := dbtest.NewLink(t, database.URL)
			b := siteOn(t, database, http.NotFoundHandler(), func(c *dashboard.Config) {
				far, err := db.Open(db.Config{URL: link.URL, Writers: 4, Readers: 4, Name: "guildhall-test-far"})
				must(t, err)
				t.Cleanup(func() { far.Close() })
				c.DB = far
			}).as(t, "owner")
			b.get(page(guildID, path)).wants(200) // from now on there is an open connection
			all.Go(func() {
				what := fmt.Sprintf("%s, responses after %v", path, delay)
				link.Slow(delay)
				began := time.Now()
				answer, err := b.send(page(guildID, path), f.form)
				took := time.Since(began)
				link.Slow(0)
				if err != nil {
					t.Errorf("%s: %v", what, err)
					return
				}
				t.Logf("%s: %d after %v", what, answer.StatusCode, took)
				made := answer.StatusCode == http.StatusCreated
				if took > bound || !made && (answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "") {
					t.Errorf("%s: %d after %v, %v", what, answer.StatusCode, took, answer.Header)
				}
				// If a unit of work is cut off before its COMMIT, its transaction ends with the
				// connection.
				again, err := b.send(page(guildID, path), f.form)
				for err == nil && again.StatusCode == http.StatusServiceUnavailable { // as the error page says
					again, err = b.send(page(guildID, path), f.form)
				}
				if err != nil || again.StatusCode >= 400 {
					t.Errorf("%s: the repeat gets %v, %v", what, again, err)
				}
				if rows := dbtest.Value[int](t, database.DB, f.rows, name); rows != 1 {
					t.Errorf("%s: %d are there", what, rows)
				}
			})
		}
	}
	all.Wait()
}

// send is post for a goroutine that must not end the test.
func (b *browser) send(path string, form url.Values) (*http.Response, error) {
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.s.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	res, err := b.client.Do(req)
	if err != nil {
		return nil, err
	}
	return res, res.Body.Close()
}

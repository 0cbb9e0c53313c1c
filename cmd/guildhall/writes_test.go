package main

import (
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/service/guildfile"
)

// A node whose writes Postgres refuses one after the other reports that it is not ready, although
// its test write succeeds, and reports that it is ready after the next successful write.
// RELIABILITY.md, Operation.
func TestANodeWhoseWritesAreRefusedIsNotReady(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if _, err := guildfile.Import(t.Context(), d.DB, strings.NewReader(`{"record":"guild","id":"`+guild+`"}`), nil); err != nil {
		t.Fatal(err)
	}
	role := "serve_" + strings.ToLower(rand.Text())
	dbtest.Fill(t, d.DB, `CREATE ROLE `+role+` LOGIN PASSWORD 'p'`,
		`GRANT ALL ON ALL TABLES IN SCHEMA public TO `+role, `GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO `+role)
	t.Cleanup(func() { dbtest.Fill(t, d.DB, `DROP OWNED BY `+role, `DROP ROLE `+role) })
	u, err := url.Parse(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "p")
	s := serve(t, u.String())
	client := s.client(t)
	pay := func() int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.https+"/api/v1/economy/adjust",
			strings.NewReader(`{"user_id":"7","delta":1}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+s.token)
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode
	}
	if status := pay(); status != 200 {
		t.Fatalf("a payment got %d", status)
	}
	dbtest.Fill(t, d.DB, `REVOKE INSERT, UPDATE ON wallets FROM `+role)
	s.answers(t, s.ops+"/readyz", "", 200)
	for range failingRun {
		if status := pay(); status < 500 {
			t.Fatalf("a payment that cannot be written got %d", status)
		}
	}
	if body := s.answers(t, s.ops+"/readyz", "", 503); !strings.Contains(body, "writes fail one after the other") {
		t.Errorf("it is not ready because %s", body)
	}
	dbtest.Fill(t, d.DB, `GRANT INSERT, UPDATE ON wallets TO `+role)
	if status := pay(); status != 200 {
		t.Errorf("then a payment got %d", status)
	}
	s.answers(t, s.ops+"/readyz", "", 200)
}

// A few refusals do not make a node unready. The node becomes ready again after a while without
// writes: since an unready node gets none, it would otherwise never find out.
func TestARunOfRefusalsEnds(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		ends []error
		ago  time.Duration
		want bool
	}{
		"nothing":               {nil, 0, false},
		"some":                  {repeated(refused, failingRun-1), 0, false},
		"a run":                 {repeated(refused, failingRun), 0, true},
		"a run, then a success": {append(repeated(refused, failingRun), nil), 0, false},
		"a run a while ago":     {repeated(refused, failingRun), failingFor + time.Second, false},
	} {
		var w writes
		for _, err := range c.ends {
			w.note(err)
		}
		w.last = w.last.Add(-c.ago)
		if err := w.failing(); (err != nil) != c.want {
			t.Errorf("after %s: %v", name, err)
		}
	}
}

func repeated(err error, n int) (all []error) {
	for range n {
		all = append(all, err)
	}
	return all
}

// A command that gets no connection says so in its own words, and what to do.
func TestACommandWithoutAConnectionSaysSo(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	role := "few_" + strings.ToLower(rand.Text())
	dbtest.Fill(t, d.DB, `CREATE ROLE `+role+` LOGIN PASSWORD 'p' CONNECTION LIMIT 0`)
	t.Cleanup(func() { dbtest.Fill(t, d.DB, `DROP ROLE `+role) })
	u, err := url.Parse(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "p")
	for _, command := range []string{"token list --guild 1", "guild list", "migrate"} {
		r := call(t, "", append(strings.Fields(command), "--database-url", u.String())...)
		if r.refused(t, 1, "the database admits no more connections now"); strings.Contains(r.err, "pq:") {
			t.Errorf("%s says %s", command, r.err)
		}
	}
}

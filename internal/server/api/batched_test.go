package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

// wealthy gives the members 1 to n wallets with a million coins each, and the ledger entries for
// them.
func wealthy(t *testing.T, server *apitest.API, n int) {
	t.Helper()
	dbtest.Exec(t, server.DB(), `
		INSERT INTO wallets (guild_id, user_id, balance) SELECT $1, n::text, 1000000 FROM generate_series(1, $2::int) n`, server.Guild, n)
	dbtest.Exec(t, server.DB(), `
		INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note, created_at)
		SELECT $1, 'first-' || n, n::text, 1000000, 1000000, 'test', now() - interval '1 day'
		FROM generate_series(1, $2::int) n`, server.Guild, n)
}

// A row that another transaction has locked, be it a wallet, a key or a reference, delays only the
// requests that need it. RELIABILITY.md, Neighbours.
func TestWhatIsHeldDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ lock, key, body string }{
		"a wallet": {`SELECT balance FROM wallets WHERE guild_id = $1 AND user_id = '1' FOR UPDATE`, "", `{"user_id":"1","delta":1}`},
		"a reference": {
			`INSERT INTO ledger_references (guild_id, reference, entry_id) VALUES ($1, 'r', 'x')`, "",
			`{"user_id":"1","delta":1,"reference":"r"}`,
		},
		"a key": {
			`
				INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, state, status, body)
				SELECT $1, id, 'k', 'f', 'done', 200, ''
				FROM api_tokens
				WHERE guild_id = $1`, "k",
			`{"user_id":"1","delta":1}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := apitest.New(t)
			wealthy(t, server, 40)
			op := apitest.Find(t, "adjustBalance")
			release := lock(t, server, c.lock, server.Guild)
			waits := make(chan *apitest.Response, 1)
			begun := time.Now()
			go func() {
				view := server
				if c.key != "" {
					view = server.Key(c.key)
				}
				a, err := view.Try(op, c.body)
				if err != nil {
					t.Error(err)
				}
				waits <- a
			}()
			var others sync.WaitGroup
			for round := range 3 {
				for n := range 13 {
					others.Go(func() {
						a, err := server.Retry(op, fmt.Sprintf(`{"user_id":"%d","delta":%d}`, 2+13*round+n, 1+round))
						if err != nil {
							t.Error(err)
						} else if a.Status != http.StatusOK {
							t.Errorf("another is answered %d %s", a.Status, a.Body)
						}
					})
				}
				others.Wait()
			}
			if len(waits) > 0 && time.Since(begun) < 2*time.Second {
				a := <-waits
				t.Errorf("who wants it did not wait: %d %s", a.Status, a.Body)
				waits <- a
			}
			release()
			a := <-waits
			// After the wait the wallet exists and the reference is in use; a request that waited
			// for more than two seconds is refused.
			if took := time.Since(begun); a.Status != 200 && a.Status != 422 && a.Status != 409 && took < 2*time.Second {
				t.Errorf("after %s: %d %s", took, a.Status, a.Body)
			}
		})
	}
}

// A popular wallet that another transaction has locked fails one batch and no other: one change of
// it waits for the lock, the changes behind that one wait in the process, and changes of other
// wallets go on in batches. RELIABILITY.md, Neighbours.
func TestAHotWalletFailsOneBatch(t *testing.T) {
	t.Parallel()
	if dbtest.Coordinator(t) {
		t.Skip("batches are units there")
	}
	var units atomic.Int64
	server := behind(t, func(sent []byte) dbtest.Fate {
		units.Add(int64(bytes.Count(sent, []byte("BEGIN"))))
		return dbtest.Pass
	})
	wealthy(t, server, 40)
	server.Do(t, "adjustBalance", `{"user_id":"99","delta":1}`).Want(t, 200, "") // an endpoint listens, so events are recorded
	op := apitest.Find(t, "adjustBalance")
	release := lock(t, server, `SELECT balance FROM wallets WHERE guild_id = $1 AND user_id = '1' FOR UPDATE`, server.Guild)
	var hot, others sync.WaitGroup
	adjust := func(user int) {
		a, err := server.Retry(op, fmt.Sprintf(`{"user_id":"%d","delta":1}`, user))
		if err != nil || a.Status != http.StatusOK {
			t.Error(a, err)
		}
	}
	for range 8 {
		hot.Go(func() { adjust(1) })
	}
	testutil.Eventually(t, "one change waits for the wallet by itself", func() bool {
		return dbtest.Value[int](t, server.DB(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND xact_start < clock_timestamp() - interval '50 milliseconds'`) == 1
	})
	units.Store(0)
	for round := range 3 {
		for n := range 13 {
			others.Go(func() { adjust(2 + 13*round + n) })
		}
		others.Wait()
	}
	if n := units.Load(); n > 0 && dbtest.Waiting(t, server.DB()) == 1 {
		t.Errorf("%d of 39 changes took a unit beside a wallet that is held", n)
	}
	release()
	hot.Wait()
	server.Do(t, "getWallet", "", apitest.Path("userId", "1")).Want(t, 200, `{"data":{"balance":1000008}}`)
}

// history is what the clients know of the writes that they have sent.
type history struct {
	mu    sync.Mutex
	known map[string]int64 // the balance in the response, by the reason of the change
	sent  map[string]bool
}

// node starts another API handler on the same database.
func node(t *testing.T, cfg api.Config, url string, oneGuild bool) string {
	t.Helper()
	d, err := db.Open(db.Config{URL: url, Name: "guildhall-node", Distributed: dbtest.Coordinator(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	cfg.DB, cfg.OneGuild, cfg.Metrics = d, oneGuild, prometheus.NewRegistry()
	handler, err := api.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := testutil.NewTLSServer(handler)
	t.Cleanup(s.Close)
	return s.URL + api.Prefix
}

// write sends a change once. With keyed, it sends the change with an Idempotency-Key and repeats the
// request until it knows the result.
func (h *history) write(t *testing.T, client *http.Client, urls []string, token, reason string, keyed bool) {
	body := fmt.Sprintf(`{"user_id":"%d","delta":%d,"reason":"%s"}`, 1+rand.IntN(12), rand.IntN(41)-20, reason)
	h.mu.Lock()
	h.sent[reason] = true
	h.mu.Unlock()
	for deadline := time.Now().Add(30 * time.Second); ; {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, urls[rand.IntN(len(urls))]+"/economy/adjust",
			bytes.NewReader([]byte(body)))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		if keyed {
			req.Header.Set("Idempotency-Key", reason)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		var response struct{ Data struct{ Balance int64 } }
		if err == nil && res.StatusCode == http.StatusOK {
			err = json.Unmarshal(text, &response)
			h.mu.Lock()
			h.known[reason] = response.Data.Balance
			h.mu.Unlock()
		}
		switch {
		case err != nil || res.StatusCode == http.StatusOK:
			if err != nil {
				t.Error(err)
			}
			return
		case !slices.Contains([]int{http.StatusServiceUnavailable, http.StatusConflict, http.StatusTooManyRequests}, res.StatusCode):
			t.Errorf("%d: %s", res.StatusCode, text)
			return
		case !keyed:
			return // the outcome is unknown
		case time.Now().After(deadline):
			t.Errorf("%s never comes to an end: %d %s", reason, res.StatusCode, text)
			return
		}
	}
}

// Two nodes batch changes of the same few wallets, with and without keys, while connections break
// during commits and Postgres terminates sessions. A change that was answered was made once, also
// if it was repeated with its key; a change of unknown outcome was made at most once; and each
// wallet's ledger is an unbroken chain. RELIABILITY.md, Writes.
func TestHistoriesOfTwoNodes(t *testing.T) {
	t.Parallel()
	for _, oneGuild := range []bool{false, true} {
		if !oneGuild && dbtest.Coordinator(t) {
			continue // on Citus no statement changes rows of several guilds
		}
		t.Run(fmt.Sprintf("one guild %v", oneGuild), func(t *testing.T) {
			t.Parallel()
			var cfg api.Config
			server := apitest.New(t, apitest.With(func(c *api.Config) { cfg = *c }))
			wealthy(t, server, 12)
			var commits, statements atomic.Int64
			fates := func(n, lose, breaks int64) dbtest.Fate {
				switch n {
				case lose:
					return dbtest.Lose
				case breaks:
					return dbtest.Break
				}
				return dbtest.Pass
			}
			judge := func(sent []byte) dbtest.Fate {
				switch {
				case bytes.Contains(sent, []byte("COMMIT")):
					return fates(commits.Add(1)%40, 13, 29)
				case sent[0] == 'B':
					return fates(statements.Add(1)%200, 71, 143)
				}
				return dbtest.Pass
			}
			urls := []string{
				node(t, cfg, dbtest.NewJudgedLink(t, server.Server.DBURL, judge).URL, oneGuild),
				node(t, cfg, dbtest.NewJudgedLink(t, server.Server.DBURL, judge).URL, oneGuild),
			}
			h := &history{known: map[string]int64{}, sent: map[string]bool{}}
			var writers sync.WaitGroup
			for w := range 16 {
				writers.Go(func() {
					for i := range 40 {
						h.write(t, server.Server.Client, urls, server.Token, fmt.Sprintf("%d-%d-%v", w, i, w%2 == 0), w%2 == 0)
					}
				})
			}
			done := make(chan struct{})
			go func() { writers.Wait(); close(done) }()
			killed := 0
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true
				case <-time.After(30 * time.Millisecond):
					if killed >= 40 { // bounds the test on slow machines
						continue
					}
					killed += dbtest.Value[int](t, server.DB(), `
						SELECT count(pg_terminate_backend(pid)) FROM (
							SELECT pid FROM pg_stat_activity
							WHERE application_name LIKE 'guildhall-node %' AND datname = current_database() AND state <> 'idle' LIMIT 1) a`)
				}
			}
			h.check(t, server)
			if killed == 0 {
				t.Error("no backend was ended")
			}
			t.Logf("%d writes, %d answered, %d backends ended, %d commits", len(h.sent), len(h.known), killed, commits.Load())
		})
	}
}

func (h *history) check(t *testing.T, server *apitest.API) {
	t.Helper()
	var rows []struct {
		Reason  string `db:"reason"`
		Times   int    `db:"times"`
		Balance int64  `db:"balance"`
	}
	if err := server.DB().Reader().SelectContext(context.Background(), &rows, `
		SELECT reason, count(*) AS times, min(balance_after) AS balance FROM ledger_entries WHERE reason IS NOT NULL
		GROUP BY reason`); err != nil {
		t.Fatal(err)
	}
	there := map[string]int64{}
	for _, r := range rows {
		there[r.Reason] = r.Balance
		if r.Times != 1 || !h.sent[r.Reason] {
			t.Errorf("%s was done %d times", r.Reason, r.Times)
		}
	}
	for reason, balance := range h.known {
		if got, ok := there[reason]; !ok || got != balance {
			t.Errorf("%s was answered with %d; in the ledger stands %d (%v)", reason, balance, got, ok)
		}
	}
	if n := dbtest.Value[int](t, server.DB(), `
		SELECT count(*) FROM (
			SELECT delta, balance_after, date_trunc('milliseconds', created_at) AS at,
			       lag(balance_after, 1, 0::bigint) OVER w AS before, lag(date_trunc('milliseconds', created_at)) OVER w AS earlier
			FROM ledger_entries
			WINDOW w AS (PARTITION BY guild_id, user_id ORDER BY created_at, id)
		) e
		WHERE before + delta <> balance_after OR at <= earlier`); n != 0 {
		t.Errorf("%d rows of the ledger do not build on the one before", n)
	}
}

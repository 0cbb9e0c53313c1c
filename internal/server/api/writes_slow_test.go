//go:build slow

package api_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

// The database takes seconds for each response. A write ends within twelve seconds: no statement is
// started that could end later, and the write leaves nothing behind. If a COMMIT, or a statement
// that is the whole change, was running, a repeat with the key finds out its outcome.
// RELIABILITY.md, Writes.
func TestNoWriteLastsLongerThanTwelveSeconds(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for _, delay := range []time.Duration{slowest, 4500 * time.Millisecond, 2600 * time.Millisecond, 1900 * time.Millisecond} {
		for _, w := range []slowWrite{
			{
				operation: "createCase", body: `{"user_id":"9","moderator_id":"8","type":"note","reason":"x"}`,
				rows: `SELECT count(*) FROM cases WHERE user_id = '9'`,
			},
			{operation: "adjustBalance", body: `{"user_id":"9","delta":1}`, rows: `SELECT count(*) FROM ledger_entries WHERE user_id = '9'`},
			{operation: "adjustXp", body: `{"user_id":"9","delta":1}`, rows: `SELECT coalesce(sum(total_xp), 0) FROM levels WHERE user_id = '9'`},
		} {
			for _, key := range []string{"", "slow"} {
				server := apitest.New(t, apitest.Reach(func(raw string) string {
					w.link = dbtest.NewLink(t, raw)
					return w.link.URL
				}))
				// From here on a connection is open.
				server.Do(t, w.operation, strings.ReplaceAll(w.body, `"9"`, `"10"`))
				w.delay, w.keyed, w.view = delay, key != "", server.Key(key)
				if key == "" {
					w.view = server
				}
				all.Go(func() { w.endsInTime(t) })
			}
		}
	}
	all.Wait()
}

const (
	// bound is twelve seconds, doubled for a busy machine.
	bound = 24 * time.Second
	// slowest is longer than bound if a write waits for one response without a deadline.
	slowest = 30 * time.Second
)

type slowWrite struct {
	operation, body, rows string
	keyed                 bool
	delay                 time.Duration
	link                  *dbtest.Link
	view                  *apitest.API
}

func (w slowWrite) endsInTime(t *testing.T) {
	name := fmt.Sprintf("%s, keyed %v, responses after %v", w.operation, w.keyed, w.delay)
	op := apitest.Find(t, w.operation)
	w.link.Slow(w.delay)
	start := time.Now()
	a, err := w.view.Try(op, w.body)
	took := time.Since(start)
	w.link.Slow(0)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	t.Logf("%s: %d after %v", name, a.Status, took)
	if took > bound {
		t.Errorf("%s: answered after %v", name, took)
	}
	made := a.Status < 300
	if !made && (a.Status != 503 || a.Header.Get("Retry-After") == "") {
		t.Errorf("%s: %d, %v", name, a.Status, a.Header)
	}
	if w.keyed {
		if a, err = w.view.Retry(op, w.body); err != nil || a.Status >= 300 {
			t.Errorf("%s: the repeat gets %v, %v", name, a, err)
		}
		made = true
	}
	// A transaction that was cut off before its COMMIT is rolled back with its connection.
	if rows := dbtest.Value[int](t, w.view.DB(), w.rows); made && rows != 1 || rows > 1 {
		t.Errorf("%s: %d there, and the caller knows of %v", name, rows, made)
	}
}

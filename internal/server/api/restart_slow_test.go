//go:build slow

package api_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/db/embedded"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
)

// Postgres is stopped or killed under load and restarted. No acknowledged write is lost, none is
// applied twice, and the program recovers without help. RELIABILITY.md, Writes.
func TestPostgresRestarts(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "gh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx := context.Background()
	start := func() *embedded.Server {
		s, err := embedded.Start(ctx, embedded.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	postgres := start()
	t.Cleanup(func() { _ = postgres.Stop() })
	server := apitest.New(t, apitest.Reach(func(string) string {
		if err := db.Migrate(ctx, postgres.URL); err != nil {
			t.Fatal(err)
		}
		d, err := db.Open(db.Config{URL: postgres.URL})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		dbtest.AddGuilds(t, d, apitest.Guild)
		return postgres.URL
	}))
	op := apitest.Find(t, "adjustBalance")

	var stop atomic.Bool
	var acknowledged, refused atomic.Int64
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				view := server.Key(fmt.Sprintf("worker-%d-%d", worker, i))
				// Each write is sent with the same key until it is answered; if it were applied
				// twice, the test would see it.
				for {
					a, err := view.Try(op, `{"user_id":"9","delta":1}`)
					if err != nil {
						t.Error(err)
						return
					}
					if a.Status == 200 {
						acknowledged.Add(1)
						break
					}
					if a.Code() != "service_unavailable" && a.Code() != "idempotency_key_in_use" {
						t.Errorf("got %d: %s", a.Status, a.Body)
						return
					}
					refused.Add(1)
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	for round := range 3 {
		before := acknowledged.Load()
		testutil.Eventually(t, "writes", func() bool { return acknowledged.Load() > before+5 })
		if round == 1 {
			// The server process is killed, without a shutdown.
			if out, err := exec.Command("pkill", "-9", "-f", "postgres -D "+postgres.Folder).CombinedOutput(); err != nil {
				t.Errorf("kill Postgres: %v %s", err, out)
			}
			<-postgres.Ended()
		}
		if err := postgres.Stop(); err != nil {
			t.Error(err)
		}
		before = refused.Load()
		testutil.Eventually(t, "refusals while Postgres is away", func() bool { return refused.Load() > before })
		postgres = start()
		before = acknowledged.Load()
		back := time.Now()
		testutil.Eventually(t, "the first success after the restart", func() bool { return acknowledged.Load() > before })
		t.Logf("round %d: first success %s after Postgres was back", round, time.Since(back).Round(time.Millisecond))
	}
	stop.Store(true)
	wg.Wait()
	far, err := db.Open(db.Config{URL: postgres.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	var rows int64
	if err := far.Reader().GetContext(ctx, &rows, `SELECT count(*) FROM ledger_entries`); err != nil || rows != acknowledged.Load() {
		t.Errorf("%d ledger rows for %d acknowledged writes (%v)", rows, acknowledged.Load(), err)
	}
	apitest.CheckBooks(t, far)
}

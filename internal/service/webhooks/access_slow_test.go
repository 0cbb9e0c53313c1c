//go:build slow

package webhooks_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/egress/egresstest"
	"guildhall/internal/server/api/apitest"
)

// A hundred registrations whose host names no DNS server answers for do not slow down another
// guild: neither its writes nor its own registrations wait. RELIABILITY.md, Neighbours.
func TestSilentNamesHurtNobodyElse(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var silent []time.Time // when each of these names was first looked up
	seen := map[string]bool{}
	api := apitest.New(t, apitest.Names(func(name string, _ bool) egresstest.Answer {
		if name == "good.test" {
			return egresstest.Addresses("127.0.0.1")
		}
		if strings.HasPrefix(name, "silent-") && strings.HasSuffix(name, ".test") {
			mu.Lock()
			defer mu.Unlock()
			if !seen[name] {
				seen[name], silent = true, append(silent, time.Now())
			}
			return egresstest.Silent
		}
		return egresstest.NoSuchName
	}))
	dbtest.Unlisten(t, api.DB(), api.Guild)
	other := api.Next(t)
	write := func() time.Duration {
		began := time.Now()
		other.Do(t, "adjustBalance", `{"user_id":"42","delta":1}`).Want(t, 200, "")
		return time.Since(began)
	}
	median := func(n int) time.Duration {
		took := make([]time.Duration, n)
		for i := range took {
			took[i] = write()
		}
		slices.Sort(took)
		return took[n/2]
	}
	before := median(21)

	op := apitest.Find(t, "createWebhookEndpoint")
	registering := time.Now()
	var wg sync.WaitGroup
	statuses := map[int]int{}
	for i := range 100 {
		wg.Go(func() {
			a, err := api.Try(op, fmt.Sprintf(`{"url":"https://silent-%d.test/","events":["case.created"]}`, i))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			statuses[a.Status]++
		})
	}
	testutil.Eventually(t, "the first silent lookup", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(silent) > 0
	})
	during := median(21)
	other.Do(t, "createWebhookEndpoint", `{"url":"https://good.test/","events":["case.created"]}`).Want(t, 201, "")
	wg.Wait()

	t.Logf("a write took %s before and %s during; the registrations got %v", before, during, statuses)
	// Without the limit this took seconds, because every connection waited for a lookup.
	if during > 10*before+time.Second {
		t.Errorf("a write of another guild took %s, %s before", during, before)
	}
	if statuses[http.StatusServiceUnavailable] == 0 || statuses[http.StatusTooManyRequests] == 0 || statuses[429]+statuses[503] != 100 {
		t.Errorf("the registrations got %v", statuses)
	}
	// Two lookups at a time, each with a timeout of two seconds.
	if most := 2 * (int(time.Since(registering)/(2*time.Second)) + 1); len(silent) > most {
		t.Errorf("%d names of one guild were looked up, want at most %d", len(silent), most)
	}
}

package delivery

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// Hundreds of endpoints never answer, and their deliveries are queued. An endpoint that answers,
// fails once and answers again still gets all of its events. RELIABILITY.md, Neighbours.
func TestOneFailureDoesNotPutAnEndpointBehindTheDead(t *testing.T) {
	t.Parallel()
	const dead, slots = 200, 8
	for _, c := range []struct {
		about    string
		failures int   // of the dead endpoints
		hang     int   // duration of their sends, at most
		errs     int64 // number of failures of the answering endpoint
	}{
		{"that have not been tried yet", 0, (maxStuck - 1) * slots, 1},
		{"that have failed once as well", 1, slots / 4, 4},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			w := newDeliveryDB(t)
			w.cfg.Slots, w.cfg.Schedule = slots, slices.Repeat(Schedule{200 * time.Millisecond}, 20)
			hole := blackHole(t)
			var asked atomic.Int64
			r := w.receive(func(rw http.ResponseWriter, _ *http.Request) {
				if n := asked.Add(1); n > 1 && n <= 1+c.errs {
					rw.WriteHeader(http.StatusInternalServerError)
				}
			})
			w.add(w.guild, r.URL)
			w.record(w.guild, 1)
			d, _ := w.start(w.cfg)
			w.until("the endpoint has answered", func() bool { return w.inState(StateDelivered) == 1 })
			w.crowd(1000, dead, func(int) string { return "https://" + hole.Addr().String() })
			w.exec(`INSERT INTO webhook_events (guild_id, id, type, payload) SELECT guild_id, 'lost', 'x', '\x7b7d' FROM webhook_endpoints
				WHERE guild_id <> $1`, w.guild)
			w.exec(`
				INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, fresh, step)
				SELECT guild_id, id, 'lost', false, $2 FROM webhook_endpoints WHERE guild_id <> $1`, w.guild, c.failures)
			w.exec(`UPDATE webhook_schedule SET next_due = now(), failures = $2, failing_since = CASE WHEN $2 > 0 THEN $3::timestamptz END
				WHERE guild_id <> $1`, w.guild, c.failures, time.Now())
			d.wakeAll()
			w.until("the dead have all that they may", func() bool { return d.limiter.inUse() == c.hang })

			w.record(w.guild, 4)
			d.Wake(w.guild)
			w.until("the endpoint gets its four events", func() bool { return w.inState(StateDelivered) == 5 })
			if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE state = 'pending' AND lease_gen = 0`); n == 0 {
				t.Error("it had to wait for all of the dead")
			}
			if n := d.limiter.inUse(); n > c.hang {
				t.Errorf("the dead have %d sends, want at most %d", n, c.hang)
			}
			if n := asked.Load(); n != 5+c.errs {
				t.Errorf("it was asked %d times, want %d", n, 5+c.errs)
			}
		})
	}
}

package delivery

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// While the database refuses claims, a node retries about every pollInterval, however many guilds
// are woken; and so do the sends of claims whose commit is refused. The event arrives once the
// database accepts claims again.
func TestClaimsThatAreRefusedWait(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(w *deliveryDB) (mend string){
		"by a statement": (*deliveryDB).failing,
		"by the commit": func(w *deliveryDB) string {
			w.exec(w.failing())
			w.exec(`CREATE CONSTRAINT TRIGGER full_disk AFTER UPDATE ON webhook_deliveries
				DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION full_disk()`)
			return `DROP TRIGGER full_disk ON webhook_deliveries`
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newDeliveryDB(t)
			receiver := w.receive(nil)
			w.add(w.guild, receiver.URL)
			mend := refuse(w)
			w.record(w.guild, 1)
			d, _ := w.start(w.cfg)
			began := time.Now()
			d.Wake(w.guild)
			w.until("it is tried nine times", func() bool { return w.tries() >= 9 })
			if took := time.Since(began); took < 4*pollInterval { // a slow machine takes longer
				t.Errorf("it is tried nine times within %v", took)
			}
			if sent := len(receiver.Calls()); sent > w.tries()+1 { // one send may start before its claim commits
				t.Errorf("in %d tries the receiver is sent the same %d times", w.tries(), sent)
			}
			w.exec(mend)
			w.drain()
		})
	}
}

// If a new delivery is recorded for an endpoint that is full, or while no slot is free, the next
// claim polls the endpoint again, whatever else is waiting; and the end of a send starts that
// claim.
func TestWhatAClaimLeavesOutIsPolledNext(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(func(http.ResponseWriter, *http.Request) {}).URL)
	w.cfg.Slots = 8
	start := func(claimed, func(), <-chan struct{}) { t.Error("something was sent") }
	for name, busy := range map[string]struct {
		endpoint string
		sends    int
	}{"the endpoint is full": {e.ID, 1}, "no slot is free": {"another", 8}} {
		d := w.deliverer()
		var under []claimed
		for i := range busy.sends {
			c := claimed{GuildID: w.guild, EndpointID: busy.endpoint, ID: fmt.Sprint(i), Lane: laneWell}
			d.limiter.begin(c, time.Now())
			under = append(under, c)
		}
		w.record(w.guild, 1)
		d.wakeups.add(w.guild)
		if _, err := d.claim(t.Context(), start); err != nil {
			t.Fatal(err)
		}
		if guilds, _ := d.wakeups.take(); len(guilds) != 1 {
			t.Errorf("%s: the next claim polls %v", name, guilds)
		}
		if !d.limiter.end(under[0], decision{Healthy: true}, time.Now()) {
			t.Errorf("%s: the end of a send brings about no claim", name)
		}
	}
}

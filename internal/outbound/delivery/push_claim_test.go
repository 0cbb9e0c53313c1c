package delivery

import (
	"testing"
	"time"
)

// Claims that a database refuses are tried about as often as a node looks for work, however
// many guilds have rung, and so are the sends of claims whose commit it refuses. The event
// arrives when the database takes claims again.
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
			if sent := len(receiver.Calls()); sent > w.tries()+1 { // one is on its way to its commit
				t.Errorf("in %d tries the receiver is sent the same %d times", w.tries(), sent)
			}
			w.exec(mend)
			w.settled()
		})
	}
}

package delivery

import (
	"context"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/event"
)

// If the secret cannot be decrypted, urgent deliveries wait like all others, and are not tried
// again and again.
func TestNothingGoesPastASecretThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(w *deliveryDB, e endpoint){
		"tests": func(w *deliveryDB, e endpoint) {
			for range 5 {
				w.unit(func(ctx context.Context, tx *db.Tx) error {
					_, err := Ping(ctx, tx, event.System(w.guild), e.ID)
					return err
				})
			}
		},
		"what is recovered": func(w *deliveryDB, e endpoint) { w.recovers(e, 5) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newDeliveryDB(t)
			e, _ := w.add(w.guild, w.receive(nil).URL)
			w.exec(`UPDATE webhook_endpoints SET secret = '\x00' WHERE id = $1`, e.ID)
			ask(w, e)
			d, _ := w.start(w.cfg)
			w.until("the endpoint is left alone for a minute", func() bool {
				return w.count(`SELECT count(*) FROM webhook_schedule s WHERE next_due > now() + interval '30 s'
					AND NOT EXISTS (SELECT FROM webhook_deliveries d WHERE d.guild_id = s.guild_id AND lease_until IS NOT NULL)`) == 1
			})
			if n := testutil.Sample(t, d.metrics.unreadable); n > 5 {
				t.Errorf("five that wait were tried %v times", n)
			}
			if n := w.inState(StatePending); n != 5 {
				t.Errorf("%d of five wait", n)
			}
		})
	}
}

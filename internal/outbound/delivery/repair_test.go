package delivery

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"guildhall/internal/base/db"
)

// An endpoint that has more waiting than it is given is nothing to repair.
func TestRepairLeavesABacklogAlone(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(func(http.ResponseWriter, *http.Request) {}).URL)
	w.record(w.guild, 50)
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		if n := len(w.claim(ctx, tx, e, 1)); n != 1 {
			t.Errorf("claimed %d", n)
		}
		return nil
	})
	d, err := New(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	before := w.count(`SELECT xmin::text::bigint FROM webhook_schedule`)
	if err := d.repair(t.Context(), &repairWalk{}); err != nil {
		t.Fatal(err)
	}
	if w.count(`SELECT xmin::text::bigint FROM webhook_schedule`) != before {
		t.Error("the schedule was written")
	}
}

// A delivery that was just recorded for an endpoint that is full, or while no slot is
// free, is looked at again with the next claim, whatever else waits, and the end of a
// send brings that claim about.
func TestWhatAClaimLeavesOutIsLookedAtNext(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(func(http.ResponseWriter, *http.Request) {}).URL)
	w.cfg.Slots = 8
	start := func(claimed, func(), <-chan struct{}) { t.Error("something was sent") }
	for name, busy := range map[string]struct {
		endpoint string
		sends    int
	}{"the endpoint is full": {e.ID, 1}, "no slot is free": {"another", 8}} {
		d, err := New(w.cfg)
		if err != nil {
			t.Fatal(err)
		}
		var under []claimed
		for i := range busy.sends {
			c := claimed{GuildID: w.guild, EndpointID: busy.endpoint, ID: fmt.Sprint(i), Lane: laneWell}
			d.limiter.begin(c, time.Now())
			under = append(under, c)
		}
		w.record(w.guild, 1)
		d.bell.ring(w.guild)
		if _, err := d.claim(t.Context(), start); err != nil {
			t.Fatal(err)
		}
		if guilds, _ := d.bell.take(); len(guilds) != 1 {
			t.Errorf("%s: the next claim looks at %v", name, guilds)
		}
		if !d.limiter.end(under[0], decision{Healthy: true}, time.Now()) {
			t.Errorf("%s: the end of a send brings about no claim", name)
		}
	}
}

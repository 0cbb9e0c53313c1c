package delivery

import (
	"context"
	"net/http"
	"testing"

	"guildhall/internal/db"
)

// An endpoint that has more waiting than it is given is nothing to repair.
func TestRepairLeavesABacklogAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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

package delivery

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// Polls find the endpoints that are due, or that have fresh deliveries or expired leases. A simple
// Go program computes the same endpoints from random data, and each form of a poll must agree with
// it.
func TestLooksFindWhatIsDue(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	dbtest.AddGuilds(t, w.DB, "1", "2")
	ids := []endpointID{{"1", "a"}, {"1", "b"}, {"1", "c"}, {"2", "d"}, {"2", "e"}}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	rapid.Check(t, func(rt *rapid.T) {
		dbtest.Exec(rt, w.DB, `DELETE FROM webhook_deliveries`)
		dbtest.Exec(rt, w.DB, `DELETE FROM webhook_schedule`)
		some := func(name string, of ...int) int { return rapid.SampledFrom(of).Draw(rt, name) }
		at := func(name string) any {
			if n := some(name, -1, 0, 1, 2); n < 2 {
				return now.Add(time.Duration(n) * time.Minute)
			}
			return nil
		}
		comes := func(instant any) bool { return instant != nil && !instant.(time.Time).After(now) }
		after := rapid.SampledFrom(append(slices.Clone(ids), endpointID{})).Draw(rt, "after")
		full := ids[some("full", 0, 1, 2, 3, 4)].endpoint
		var all, ofOne []*candidate
		for _, id := range ids {
			c := &candidate{GuildID: id.guild, EndpointID: id.endpoint, Lane: laneWell}
			waiting, fresh, expired := false, false, false
			if some("known", 0, 1, 2) > 0 {
				c.Known, c.Lane = true, some("lane", laneUrgent, laneWell, laneFailing, laneBlocked, laneClosed)
				next := at("next due")
				waiting = comes(next)
				dbtest.Exec(rt, w.DB, `
					INSERT INTO webhook_schedule (guild_id, endpoint_id, urgent, disposition, failing_since, blocks, next_due)
					VALUES ($1, $2, $3 = 0, CASE WHEN $3 = 4 THEN 'hold' ELSE 'send' END, CASE WHEN $3 IN (2, 3) THEN $4::timestamptz END, $3 / 3, $5)`,
					id.guild, id.endpoint, c.Lane, now, next)
			}
			for n := range some("deliveries", 0, 1, 2) {
				state := rapid.SampledFrom([]string{StatePending, StatePending, StateHeld}).Draw(rt, "state")
				isFresh, lease := some("fresh", 0, 1, 2) == 0, at("lease")
				fresh = fresh || state == StatePending && isFresh
				expired = expired || state == StatePending && comes(lease)
				dbtest.Exec(rt, w.DB, `
					INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, state, fresh, lease_until)
					VALUES ($1, $2, $3, 'event', $4, $5, $6)`, id.guild, fmt.Sprint(id.endpoint, n), id.endpoint, state, isFresh, lease)
			}
			if id.guild == "1" && c.Known && (fresh || waiting) {
				ofOne = append(ofOne, &candidate{GuildID: id.guild, EndpointID: id.endpoint, Lane: c.Lane, Fresh: fresh, Known: true, Woken: true})
			}
			c.Fresh = expired || fresh && compareIDs(id, after) > 0
			if c.Fresh || c.Known && c.Lane < laneClosed && waiting && id.endpoint != full {
				all = append(all, c)
			}
		}
		same := func(form string, want, got []*candidate, err error) {
			slices.SortFunc(got, func(a, b *candidate) int { return compareIDs(a.id(), b.id()) })
			if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(candidate{})); err != nil || diff != "" && len(want)+len(got) > 0 {
				rt.Fatalf("%s: %v (-want +got):\n%s", form, err, diff)
			}
		}
		if !w.DB.Distributed() {
			found, err := pollAll(t.Context(), w.DB.Reader(), &now, after, []string{full})
			same("the look", all, found, err)
		}
		found, err := pollDistributed(t.Context(), w.DB.Reader(), &now, after, []string{full})
		same("the look where tables are distributed", all, found, err)
		for _, oneGuild := range []bool{w.DB.Distributed(), true} {
			found, err = pollGuilds(t.Context(), w.DB.Reader(), oneGuild, &now, []string{"1"})
			same("the look at a guild", ofOne, found, err)
		}
	})
}

// However many endpoints have fresh deliveries, a poll reads a bounded number of them.
func TestALookReadsSoManyEndpoints(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	w.exec(`
		INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id)
		SELECT $1, n::text, n::text, 'event' FROM generate_series(100, 300) n`, w.guild)
	looks := map[string]func() ([]*candidate, error){
		"walking": func() ([]*candidate, error) {
			return pollAll(t.Context(), w.DB.Reader(), nil, endpointID{}, nil)
		},
		"across": func() ([]*candidate, error) {
			return pollDistributed(t.Context(), w.DB.Reader(), nil, endpointID{}, nil)
		},
	}
	if w.DB.Distributed() {
		delete(looks, "walking")
	}
	for name, look := range looks {
		if found, err := look(); err != nil || len(found) != claimSize || found[0].EndpointID != "100" {
			t.Errorf("%s: %d are found, %v", name, len(found), err)
		}
	}
}

// A claim creates the missing schedules, as their endpoints require, and locks only the schedules
// that it names.
func TestAClaimLocksTheSchedulesThatItNames(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	push, _ := w.add(w.guild, "https://a.test/")
	off, _ := w.add(w.guild, "https://b.test/")
	pull := w.addPull(w.guild)
	other, _ := w.add(w.guild, "https://c.test/")
	w.exec(`UPDATE webhook_endpoints SET enabled = false WHERE id IN ($1, $2)`, off.ID, other.ID)
	w.exec(`DELETE FROM webhook_schedule WHERE endpoint_id <> $1`, other.ID)
	want := map[string]string{push.ID: "send", off.ID: "hold", pull.ID: "pull", "gone": "drop"}
	var named []*candidate
	for id := range want {
		named = append(named, &candidate{GuildID: w.guild, EndpointID: id})
	}
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		rows, err := lockIdle(ctx, tx, w.cfg.OneGuild, nil, named)
		got := make(map[string]string)
		for _, s := range rows {
			got[s.EndpointID] = s.Disposition
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("schedules (-want +got):\n%s", diff)
		}
		return err
	})
}

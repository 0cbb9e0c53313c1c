package delivery

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// parcel is a delivery, with its instants in minutes from now.
type parcel struct {
	GuildID    string `db:"guild_id" json:"guild_id"`
	ID         string `db:"id" json:"id"`
	EndpointID string `db:"endpoint_id" json:"endpoint_id"`
	Cause      string `db:"cause" json:"cause"`
	State      string `db:"state" json:"state"`
	Due        int    `db:"due" json:"due"`
	Lease      *int   `db:"lease" json:"lease"`
	Gen        int    `db:"lease_gen" json:"lease_gen"`
	Fresh      bool   `db:"fresh" json:"fresh"`
	Urgent     bool   `db:"urgent" json:"urgent"`
}

// free reports whether no worker has a valid lease.
func (w *parcel) free() bool { return w.State == StatePending && (w.Lease == nil || *w.Lease <= 0) }

// planned is the change that a claim makes to a schedule.
type planned struct {
	EndpointID string `db:"endpoint_id"`
	Urgent     bool   `db:"urgent"`
	NextDue    *int   `db:"next_due"`
	Recovered  *int   `db:"recovered"`
	Passes     bool   `db:"recovered_passes"`
}

// asked is an order, with its instants in minutes from now.
type asked struct {
	order
	notBefore, recovered *int
}

// takenNow is what a claim returns for a delivery.
type takenNow struct {
	ID, EndpointID, EventID, Type, URL string
	Gen                                int
	Expired, Recovered, More           bool
}

const leaseMinutes = 7

// takes is the model of take for one order; mine are the deliveries of its endpoint.
func (o asked) takes(mine []*parcel) (taken []takenNow, plan planned) {
	byTime := func(a, b *parcel) int { return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.ID, b.ID)) }
	some := func(of func(w *parcel) bool, most int, order func(a, b *parcel) int) []*parcel {
		list := slices.DeleteFunc(slices.Clone(mine), func(w *parcel) bool { return !w.free() || !of(w) })
		slices.SortFunc(list, order)
		return list[:min(len(list), most)]
	}
	test := func(w *parcel) int { return map[bool]int{true: 0, false: 1}[w.Cause == "test"] }
	urgent := func(w *parcel) bool { return w.Urgent && (o.Mode != takeTests || w.Cause == "test") }
	recovers := func(w *parcel) bool { return !w.Urgent && o.recovered != nil && w.Due == *o.recovered }
	other := func(w *parcel) bool { return !w.Urgent && o.recovered != nil && w.Due <= 0 && w.Due != *o.recovered }

	var list, back, rest []*parcel
	switch {
	case o.Mode == takeAll:
		list = some(func(w *parcel) bool { return w.Due <= 0 }, o.Take, byTime)
	case o.Mode != takeNone:
		list = some(urgent, o.Take, func(a, b *parcel) int { return cmp.Or(cmp.Compare(test(a), test(b)), byTime(a, b)) })
	}
	if o.Mode == takeTurns || o.Mode == takePassed {
		back = some(recovers, o.Take, byTime)
	}
	if o.Mode == takeTurns {
		rest = some(other, o.Take, byTime)
	}
	recovered := slices.Clone(back)
	for turn := o.RecoveredFirst; len(back)+len(rest) > 0; turn = !turn {
		from := &rest
		if turn {
			from = &back
		}
		if len(*from) > 0 {
			list = append(list, (*from)[0])
			*from = (*from)[1:]
		}
	}
	list = list[:min(len(list), o.Take)]

	left := func(of func(w *parcel) bool) []*parcel {
		return some(func(w *parcel) bool { return !slices.Contains(list, w) && of(w) }, len(mine), byTime)
	}
	closed := o.Mode == takeTests || o.Mode == takeNone
	more := !closed && o.recovered != nil && len(left(func(w *parcel) bool { return w.Due == *o.recovered })) > 0
	plan = planned{EndpointID: o.EndpointID, Passes: more && o.Passes}
	plan.Urgent = o.Mode != takeNone && len(left(urgent)) > 0 || plan.Passes
	if more {
		plan.Recovered = o.recovered
	}
	if all := left(func(*parcel) bool { return true }); plan.Urgent || closed {
		plan.NextDue = new(int)
	} else if len(all) > 0 {
		at := max(all[0].Due, 0)
		if o.notBefore != nil {
			at = max(at, *o.notBefore)
		}
		plan.NextDue = &at
	}
	for _, w := range mine {
		expired := w.free() && w.Lease != nil
		switch {
		case slices.Contains(list, w):
			until := leaseMinutes
			w.Lease, w.Gen, w.Fresh = &until, w.Gen+1, false
			taken = append(taken, takenNow{
				w.ID, w.EndpointID, "event-" + w.ID, "type-" + w.ID, "https://" + w.EndpointID, w.Gen,
				expired, slices.Contains(recovered, w), plan.NextDue != nil && *plan.NextDue <= 0,
			})
		case expired, o.Take == 0 && w.free() && w.Fresh:
			w.Lease, w.Fresh = nil, false
		}
	}
	return taken, plan
}

// A claim takes the deliveries that the order of each endpoint says, queues those that it may not
// take, and writes when each endpoint is next due. A simple Go program computes the same result
// from random data.
func TestAClaimTakesWhatItsOrdersSay(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	endpoints := map[string]string{"e1": w.guild, "e2": w.guild, "e3": "2"}
	dbtest.AddGuilds(t, w.DB, "2")
	for id, guild := range endpoints {
		w.exec(`INSERT INTO webhook_schedule (guild_id, endpoint_id) VALUES ($1, $2)`, guild, id)
		w.exec(`
			INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
			VALUES ($1, $2, 'https://' || $2, '{}', '', '')`, guild, id)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	instant := func(minutes *int) *time.Time {
		if minutes == nil {
			return nil
		}
		i := now.Add(time.Duration(*minutes) * time.Minute)
		return &i
	}
	modes := []string{takeTurns, takeAll, takeUrgent, takeTurns, takePassed, takeTests, takeNone, takeTurns}
	ids := make([]int, 24)
	for i := range ids {
		ids[i] = 10 + i
	}
	rapid.Check(t, func(rt *rapid.T) {
		one := func(name string, of ...int) int { return rapid.SampledFrom(of).Draw(rt, name) } // each value with the same probability
		minutes := func(name string, of ...int) *int {
			if rapid.Bool().Draw(rt, "no "+name) {
				return nil
			}
			n := one(name, of...)
			return &n
		}
		dbtest.Exec(rt, w.DB, `DELETE FROM webhook_deliveries`)
		dbtest.Exec(rt, w.DB, `DELETE FROM webhook_events`)
		var all []*parcel
		for _, n := range rapid.Permutation(ids).Draw(rt, "ids")[:rapid.IntRange(1, len(ids)).Draw(rt, "deliveries")] {
			e := rapid.SampledFrom([]string{"e1", "e1", "e2", "e3"}).Draw(rt, "endpoint")
			all = append(all, &parcel{
				GuildID: endpoints[e], ID: fmt.Sprint(n), EndpointID: e,
				Cause: rapid.SampledFrom([]string{"event", "redelivery", "test"}).Draw(rt, "cause"),
				State: rapid.SampledFrom([]string{StatePending, StatePending, StatePending, StateHeld}).Draw(rt, "state"),
				Due:   one("due", -1, -1, 0, 0, 1, 1), Lease: minutes("lease", -1, 0, 1), Gen: 3,
				Fresh: rapid.Bool().Draw(rt, "fresh"), Urgent: one("urgent", 0, 1, 2) == 0,
			})
		}
		given, err := json.Marshal(all)
		if err != nil {
			rt.Fatal(err)
		}
		dbtest.Exec(rt, w.DB, `
			INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, cause, state, due_at, lease_until, lease_gen, fresh, urgent)
			SELECT guild_id, id, endpoint_id, 'event-' || id, cause, state, $2::timestamptz + due * interval '1 minute',
			       $2::timestamptz + lease * interval '1 minute', lease_gen, fresh, urgent
			FROM jsonb_to_recordset($1) AS d (guild_id text, id text, endpoint_id text, cause text, state text, due int, lease int, lease_gen int,
				fresh boolean, urgent boolean)`, string(given), now)
		dbtest.Exec(rt, w.DB, `
			INSERT INTO webhook_events (guild_id, id, type, payload)
			SELECT guild_id, event_id, 'type-' || id, '{}' FROM webhook_deliveries`)
		var orders []order
		var want []takenNow
		var plans []planned
		for _, e := range []string{"e1", "e2", "e3"} {
			dbtest.Exec(rt, w.DB, `UPDATE webhook_schedule SET urgent = true, next_due = NULL, recovered_at = NULL, recovered_passes = false
				WHERE endpoint_id = $1`, e)
			if one("left out", 0, 1, 2, 3) == 0 {
				plans = append(plans, planned{EndpointID: e, Urgent: true})
				continue
			}
			o := asked{order: order{
				GuildID: endpoints[e], EndpointID: e, Take: one("take", 0, 1, 2, 3, 4),
				Mode:   rapid.SampledFrom(modes).Draw(rt, "mode"),
				Passes: rapid.Bool().Draw(rt, "passes"), RecoveredFirst: rapid.Bool().Draw(rt, "first"),
			}, notBefore: minutes("not before", 1, 2, 3), recovered: minutes("recovered", -1, 0, 1, 2)}
			switch o.Mode {
			case takeNone:
				o.Take = 0
			case takeTurns, takePassed:
				at := one("recovered at", -1, -1, 0, 2)
				o.recovered = &at
			}
			o.NotBefore, o.RecoveredAt = instant(o.notBefore), instant(o.recovered)
			orders = append(orders, o.order)
			taken, plan := o.takes(slices.DeleteFunc(slices.Clone(all), func(d *parcel) bool { return d.EndpointID != e }))
			want, plans = append(want, taken...), append(plans, plan)
		}
		var got []takenNow
		err = w.DB.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			rows, err := take(ctx, tx, rapid.Bool().Draw(rt, "of one guild") || w.DB.Distributed(), now, leaseMinutes*time.Minute, orders)
			for _, c := range rows {
				got = append(got, takenNow{c.ID, c.EndpointID, c.EventID, c.Type, *c.URL, c.LeaseGen, c.Expired, c.Recovered, c.More})
			}
			return err
		})
		if err != nil {
			rt.Fatal(err)
		}
		byID := func(a, b takenNow) int { return cmp.Compare(a.ID, b.ID) }
		slices.SortFunc(got, byID)
		slices.SortFunc(want, byID)
		if diff := gocmp.Diff(want, got); diff != "" {
			rt.Fatalf("taken (-want +got):\n%s", diff)
		}
		const inMinutes = `(extract(epoch FROM %s - $1) / 60)::int`
		is, err := db.Select[*parcel](t.Context(), w.DB.Reader(), `
			SELECT guild_id, id, endpoint_id, cause, state, lease_gen, fresh, urgent, `+fmt.Sprintf(inMinutes, "due_at")+` AS due,
			       `+fmt.Sprintf(inMinutes, "lease_until")+` AS lease
			FROM webhook_deliveries
			ORDER BY id`, now)
		if err != nil {
			rt.Fatal(err)
		}
		slices.SortFunc(all, func(a, b *parcel) int { return cmp.Compare(a.ID, b.ID) })
		if diff := gocmp.Diff(all, is); diff != "" {
			rt.Fatalf("what waits (-want +got):\n%s", diff)
		}
		schedules, err := db.Select[planned](t.Context(), w.DB.Reader(), `
			SELECT endpoint_id, urgent, recovered_passes, `+fmt.Sprintf(inMinutes, "next_due")+` AS next_due,
			       `+fmt.Sprintf(inMinutes, "recovered_at")+` AS recovered
			FROM webhook_schedule
			ORDER BY endpoint_id`, now)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := gocmp.Diff(plans, schedules); diff != "" {
			rt.Fatalf("schedules (-want +got):\n%s", diff)
		}
	})
}

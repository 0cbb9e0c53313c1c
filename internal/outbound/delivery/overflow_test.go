package delivery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
)

// overflowModel is the model of an endpoint, or of a stream in a guild, with a small maximum of
// deliveries: its waiting deliveries, with the instants of their events, and the deleted ones.
type overflowModel struct {
	w       *deliveryDB
	rt      *rapid.T
	d       *Deliverer
	waiting map[string]time.Time // by event
	lost    time.Time            // instant of the newest deleted event
	deleted int
	now     time.Time
}

func (m *overflowModel) record() {
	n := rapid.IntRange(1, 6).Draw(m.rt, "events")
	m.w.unit(func(ctx context.Context, tx *db.Tx) error {
		for range n {
			m.now = m.now.Add(2 * time.Millisecond)
			id := db.NewIDAt(m.now)
			if err := m.store(ctx, tx, id); err != nil {
				return err
			}
			m.waiting[id] = m.now
		}
		return nil
	})
}

func (m *overflowModel) store(ctx context.Context, tx *db.Tx, id string) error {
	_, err := db.Exec(ctx, tx, `
		WITH moved AS (SELECT $2::text AS event_id, $3::timestamptz AS updated_at, '{"type":"api"}' AS origin, '' AS trace),
		`+event.EmitSQL("moved", "$1", "'case.created'", "'{}'")+`
		SELECT`, m.w.guild, id, m.now)
	return err
}

// check runs the deletion and compares the result with the model: the newest deliveries remain, the
// others are deleted and counted, and complete_since is later than their events.
func (m *overflowModel) check(table, id string, complete, counted string) {
	if err := m.d.deleteOverflow(m.rt.Context()); err != nil {
		m.rt.Fatal(err)
	}
	ids := make([]string, 0, len(m.waiting))
	for e := range m.waiting {
		ids = append(ids, e)
	}
	slices.Sort(ids)
	for len(ids) > m.d.most {
		m.lost, m.deleted = m.waiting[ids[0]], m.deleted+1
		delete(m.waiting, ids[0])
		ids = ids[1:]
	}
	got := dbtest.Value[string](m.rt, m.w.DB, `SELECT coalesce(string_agg(event_id, ' ' ORDER BY event_id), '') FROM `+table+` WHERE `+id)
	if want := strings.Join(ids, " "); got != want {
		m.rt.Fatalf("%s: there wait\n%s, want\n%s", table, got, want)
	}
	events := m.w.count(`SELECT count(*) FROM webhook_events`)
	if events != len(ids) {
		m.rt.Fatalf("%s: %d events are there for %d deliveries", table, events, len(ids))
	}
	if counted != "" && m.w.count(counted) != m.deleted {
		m.rt.Fatalf("%s: %d deliveries are counted as failed, %d were deleted", table, m.w.count(counted), m.deleted)
	}
	since := dbtest.Value[time.Time](m.rt, m.w.DB, complete)
	if m.deleted > 0 && (!since.After(m.lost) || since.After(m.lost.Add(2*time.Millisecond))) {
		m.rt.Fatalf("%s: an event of %s was deleted, and nothing is lost since %s", table, m.lost, since)
	}
}

// If too many deliveries wait for an endpoint, or for a stream in a guild, exactly the oldest are
// deleted, whether they are held, leased by a fetch or untouched. The deletions are counted, and
// complete_since moves just behind the deleted events. RELIABILITY.md, Events.
func TestTheOldestOfTooManyDeliveriesAreDeleted(t *testing.T) {
	t.Parallel()
	for _, streamed := range []bool{false, true} {
		t.Run(fmt.Sprintf("streamed %v", streamed), func(t *testing.T) {
			t.Parallel()
			w := newDeliveryDB(t)
			start := time.Now().Truncate(time.Millisecond)
			rapid.Check(t, func(rt *rapid.T) {
				for _, table := range []string{
					"webhook_deliveries", "webhook_events", "stream_deliveries", "stream_listeners",
					"webhook_endpoints", "webhook_schedule", "webhook_hours",
				} {
					w.exec(`DELETE FROM ` + table)
				}
				w.exec(`DELETE FROM bot_streams WHERE id <> 'work'`)
				m := &overflowModel{w: w, rt: rt, d: w.deliverer(), waiting: map[string]time.Time{}, now: start}
				m.d.most = rapid.IntRange(1, 8).Draw(rt, "most")
				var check func()
				if streamed {
					w.exec(`INSERT INTO bot_streams (id, name, events, echo, complete_since) VALUES ('s', 's', '{case.created}', false, $1)`, start)
					w.exec(`INSERT INTO stream_listeners (guild_id, stream_id, events, echo) VALUES ($1, 's', '{case.created}', false)`, w.guild)
					check = func() {
						m.check("stream_deliveries", "stream_id = 's'", `SELECT complete_since FROM bot_streams WHERE id = 's'`, "")
					}
				} else {
					e := w.addPull(w.guild)
					w.exec(`UPDATE webhook_schedule SET complete_since = $1, releasing = false`, start)
					check = func() {
						m.check("webhook_deliveries", "state IN ('pending', 'held') AND endpoint_id = '"+e.ID+"'",
							`SELECT complete_since FROM webhook_schedule`, `SELECT coalesce(sum(deliveries), 0) FROM webhook_hours WHERE outcome = 'failed'`)
					}
				}
				rt.Repeat(map[string]func(*rapid.T){
					"record": func(*rapid.T) { m.record() },
					"fetch": func(*rapid.T) {
						w.exec(`UPDATE webhook_deliveries SET due_at = now() + interval '1 hour', lease_gen = 1
							WHERE id IN (SELECT id FROM webhook_deliveries ORDER BY due_at LIMIT 2)`)
						w.exec(`UPDATE stream_deliveries SET due_at = now() + interval '1 hour', fetched = true
							WHERE event_id IN (SELECT event_id FROM stream_deliveries ORDER BY due_at LIMIT 2)`)
					},
					"hold":     func(*rapid.T) { w.exec(`UPDATE webhook_deliveries SET state = 'held' WHERE state = 'pending'`) },
					"overflow": func(*rapid.T) { check() },
				})
				check()
			})
		})
	}
}

// The log of an endpoint keeps a bounded number of completed deliveries with their attempts: the
// oldest are deleted, and no waiting delivery is. RELIABILITY.md, Events.
func TestALogIsBounded(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	e, _ := w.add(w.guild, w.receive(nil).URL)
	w.record(w.guild, 10)
	w.exec(`INSERT INTO webhook_attempts (guild_id, delivery_id, number, started_at, duration_ms, outcome)
		SELECT guild_id, id, 1, now(), 1, 'delivered' FROM webhook_deliveries`)
	w.exec(`UPDATE webhook_deliveries SET state = 'delivered', fresh = false, completed_at = now()
		WHERE id IN (SELECT id FROM webhook_deliveries ORDER BY id LIMIT 7)`)
	newest := dbtest.Value[string](t, w.DB, `
		SELECT string_agg(id, ' ' ORDER BY id) FROM (SELECT id FROM webhook_deliveries ORDER BY id DESC LIMIT 7) x`)
	d := w.deliverer()
	d.most = 4
	if err := d.shortenLogs(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := dbtest.Value[string](t, w.DB, `SELECT string_agg(id, ' ' ORDER BY id) FROM webhook_deliveries WHERE endpoint_id = $1`, e.ID)
	if left != newest {
		t.Errorf("there are left\n%s, want\n%s", left, newest)
	}
	if a, v := w.count(`SELECT count(*) FROM webhook_attempts`), w.count(`SELECT count(*) FROM webhook_events`); a != 7 || v != 7 {
		t.Errorf("%d attempts and %d events are left, want 7 of each", a, v)
	}
}

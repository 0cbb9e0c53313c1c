package event_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
)

const guild = "402187554310020096"

// scene returns a database in which a guild has the given number of endpoints that listen to
// case.created, and one endpoint each that is disabled, that listens to another type, and that
// belongs to another guild.
func scene(t *testing.T, listeners int) *db.DB {
	t.Helper()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, guild, "2")
	add := func(in, id, typ string, enabled bool) {
		dbtest.Exec(t, d, `
			INSERT INTO webhook_endpoints (guild_id, id, url, events, enabled, secret, secret_preview)
			VALUES ($1, $2, 'https://example.com', ARRAY[$3], $4, '', '')`, in, id, typ, enabled)
	}
	for i := range listeners {
		add(guild, fmt.Sprint("listens-", i), event.CaseCreated, true)
	}
	add(guild, "off", event.CaseCreated, false)
	add(guild, "other type", event.CaseUpdated, true)
	add("2", "other guild", event.CaseCreated, true)
	return d
}

func record(t *testing.T, d *db.DB, do func(ctx context.Context, tx *db.Tx) error) {
	t.Helper()
	if err := d.Do(t.Context(), do); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, d *db.DB, query string) (rows []string) {
	t.Helper()
	if err := d.Reader().SelectContext(t.Context(), &rows, query); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestNothingIsWrittenForNobody(t *testing.T) {
	t.Parallel()
	d := scene(t, 0)
	record(t, d, func(ctx context.Context, tx *db.Tx) error {
		return event.Record(ctx, tx, event.System(guild).On(time.Now()), event.CaseCreated, map[string]int{"number": 1})
	})
	if n := list(t, d, `SELECT id FROM webhook_events UNION ALL SELECT id FROM webhook_deliveries`); len(n) != 0 {
		t.Errorf("rows were written: %v", n)
	}
}

// An event must have the instant of its change. The transaction's time would cost a query of its
// own, and would not follow the order of the changes.
func TestAnEventWithoutAnInstantIsRefused(t *testing.T) {
	t.Parallel()
	d := scene(t, 1)
	err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return event.Record(ctx, tx, event.System(guild), event.CaseCreated, 1)
	})
	if err == nil {
		t.Error("an event was recorded without its instant")
	}
}

func TestAnEventIsRenderedOnceAndDeliveredToEachListener(t *testing.T) {
	t.Parallel()
	d := scene(t, 2)
	by := event.From(auth.By{GuildID: guild, ID: `a"b`})
	at := time.Date(2026, 3, 1, 12, 30, 15, 999_999_000, time.UTC)
	record(t, d, func(ctx context.Context, tx *db.Tx) error {
		return event.Record(ctx, tx, by.On(at), event.CaseCreated, map[string]string{"reason": `<ü> & "so"`})
	})
	ids := list(t, d, `SELECT id FROM webhook_events`)
	if len(ids) != 1 {
		t.Fatalf("%d events, want one", len(ids))
	}
	want := `{"id":"` + ids[0] + `","type":"case.created","timestamp":"2026-03-01T12:30:15.999Z","guild_id":"` + guild +
		`","api_version":"v1","origin":{"type":"api","token_id":"a\"b","key_id":null},"data":{"reason":"<ü> & \"so\""}}`
	if got := list(t, d, `
		SELECT convert_from(payload, 'UTF8')
		FROM webhook_events
		WHERE occurred_at = '2026-03-01T12:30:15.999999Z'`); len(got) != 1 || got[0] != want {
		t.Errorf("the payload is\n%s, want\n%s", got, want)
	}
	got := fmt.Sprint(list(t, d, `
		SELECT concat_ws(' ', guild_id, endpoint_id, event_id, event_type, cause, state, fresh, to_char(event_at, 'US'))
		FROM webhook_deliveries ORDER BY endpoint_id`))
	if want := fmt.Sprintf("[%[1]s listens-0 %[2]s case.created event pending t 999999"+
		" %[1]s listens-1 %[2]s case.created event pending t 999999]", guild, ids[0]); got != want {
		t.Errorf("the deliveries are\n%s, want\n%s", got, want)
	}
}

func TestEachChangeHasAnEventOfItsOwn(t *testing.T) {
	t.Parallel()
	d := scene(t, 2)
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	var changes []event.Change
	for i := range 50 {
		changes = append(changes, event.Change{At: at.Add(time.Duration(i) * time.Second), Data: map[string]int{"n": i}})
	}
	record(t, d, func(ctx context.Context, tx *db.Tx) error {
		return event.RecordEach(ctx, tx, event.System(guild), event.CaseCreated, changes)
	})
	if n := list(t, d, `
		SELECT convert_from(v.payload, 'UTF8')
		FROM webhook_events v JOIN webhook_deliveries w ON w.guild_id = v.guild_id AND w.event_id = v.id AND w.event_at = v.occurred_at
		WHERE convert_from(v.payload, 'UTF8')::json #>> '{data,n}' =
			extract(epoch FROM v.occurred_at - '2026-03-01T00:00:00Z')::int::text`); len(n) != 100 {
		t.Errorf("%d deliveries of events with their own instants, want 100", len(n))
	}
}

// Endpoints and streams get the events that they listen to. A stream gets changes by bot keys only
// if it wants the echo. A change without an event id is not recorded.
func TestWhoListensIsTold(t *testing.T) {
	t.Parallel()
	d := scene(t, 1)
	for _, s := range []struct {
		guild, id, typ string
		echo           bool
	}{
		{guild, "hears", event.CaseCreated, false},
		{guild, "echoes", event.CaseCreated, true},
		{guild, "other type", event.CaseUpdated, true},
		{"2", "other guild", event.CaseCreated, true},
	} {
		dbtest.Exec(t, d, `
			INSERT INTO stream_listeners (guild_id, stream_id, events, echo)
			VALUES ($1, $2, ARRAY[$3], $4)`, s.guild, s.id, s.typ, s.echo)
	}
	record(t, d, func(ctx context.Context, tx *db.Tx) error {
		_, err := db.Exec(ctx, tx, `
			WITH moved AS (
				SELECT event_id, timestamptz '2026-03-01Z' AS updated_at, origin, '' AS trace
				FROM unnest($2::text[], $3::text[]) AS g (event_id, origin)
			), `+event.EmitSQL("moved", "$1", "'case.created'", "'{}'")+`
			SELECT`, guild, db.Texts([]*string{new("by-api"), new("by-bot"), nil}),
			db.Array([]string{`{"type":"api"}`, `{"type":"bot"}`, `{"type":"api"}`}))
		return err
	})
	for what, query := range map[string]string{
		"[by-api by-bot]":                            `SELECT id FROM webhook_events ORDER BY id`,
		"[listens-0 by-api listens-0 by-bot]":        `SELECT endpoint_id || ' ' || event_id FROM webhook_deliveries ORDER BY 1`,
		"[echoes by-api echoes by-bot hears by-api]": `SELECT stream_id || ' ' || event_id FROM stream_deliveries ORDER BY 1`,
	} {
		if got := fmt.Sprint(list(t, d, query)); got != what {
			t.Errorf("%s\ngives %s, want %s", query, got, what)
		}
	}
}

// The ids of deliveries sort in the order of their events.
func TestDeliveriesAreNumberedInTheOrderOfTheirMaking(t *testing.T) {
	t.Parallel()
	d := scene(t, 1)
	var last []string
	for n := 1; n <= 5; n++ {
		for begun := time.Now(); time.Since(begun) < 2*time.Millisecond; { // ids have a resolution of one millisecond
		}
		record(t, d, func(ctx context.Context, tx *db.Tx) error {
			return event.Record(ctx, tx, event.System(guild).On(time.Now()), event.CaseCreated, n)
		})
		ids := list(t, d, `SELECT id FROM webhook_deliveries ORDER BY id`)
		events := list(t, d, `SELECT id FROM webhook_events ORDER BY id`)
		if len(ids) != n || fmt.Sprint(ids[:n-1]) != fmt.Sprint(last) || ids[n-1][:15] != events[n-1][:15] {
			t.Fatalf("after %v come %v", last, ids)
		}
		if id, err := uuid.Parse(ids[n-1]); err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
			t.Errorf("%s is not a UUIDv7: %v", ids[n-1], err)
		}
		last = ids
	}
}

// An event's id begins with the millisecond of its change: it leads from a change to its
// event. Events of one millisecond stand in the order in which they were recorded.
func TestAnEventIsFoundByTheInstantOfItsChange(t *testing.T) {
	t.Parallel()
	d := scene(t, 1)
	at := time.Date(2026, 3, 1, 12, 30, 15, 999_999_000, time.UTC)
	var changes []event.Change
	for i := range 300 {
		changes = append(changes, event.Change{At: at.Add(time.Duration(i/100) * time.Hour), Data: map[string]int{"n": i}})
	}
	record(t, d, func(ctx context.Context, tx *db.Tx) error {
		return event.RecordEach(ctx, tx, event.System(guild), event.CaseCreated, changes)
	})
	events := list(t, d, `SELECT id || ' ' || (convert_from(payload, 'UTF8')::json #>> '{data,n}') FROM webhook_events ORDER BY id`)
	for i, e := range events {
		id, n, _ := strings.Cut(e, " ")
		if minted, ok := db.InstantOf(id); !ok || !minted.Equal(changes[i].At.Truncate(time.Millisecond)) || n != strconv.Itoa(i) {
			t.Fatalf("event %d is %s, minted at %s", i, e, minted)
		}
	}
	if len(events) != len(changes) {
		t.Errorf("%d events, want %d", len(events), len(changes))
	}
}

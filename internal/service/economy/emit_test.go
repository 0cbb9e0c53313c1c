package economy

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
)

// givenChanges is a statement that emits events for given changes: user, event and previous balance, in
// several guilds.
const givenChanges = `
	WITH moved AS (
		SELECT guild_id, user_id, event_id, was + 5 AS is_now, 5::bigint AS delta, $6::text AS reason,
		       NULL::text AS reference, NULL::text AS author_id,
		       $5::timestamptz AS updated_at, $7::text AS origin, ''::text AS trace
		FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS g (guild_id, user_id, event_id, was)
	), `

// The event made by the statement is the same as one made by event.Record, with all fields of the
// API document.
func TestAChangeTellsItsEventAsRecordDoes(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	dbtest.Listen(t, d, "1", []string{event.BalanceChanged})
	at := time.Date(2026, 3, 1, 1, 2, 3, 4_005_000, time.UTC)
	by, reason := event.From(auth.By{GuildID: "1", ID: `a"b`}), `<ü> & "so"`
	dbtest.Exec(t, d, givenChanges+emitting("moved.guild_id")+` SELECT`,
		db.Array([]string{"1"}), db.Array([]string{"7"}), db.Array([]string{"e-1"}), db.Integers([]int64{37}), at, reason, by.JSON())
	data, err := json.Marshal(gen.BalanceChange{
		UserID: "7", Balance: 42, PreviousBalance: 37, Delta: 5, Reason: &reason, LedgerEntryID: "e-1",
	})
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Data any }
	var want any
	payload := dbtest.Value[string](t, d, `SELECT convert_from(payload, 'UTF8') FROM webhook_events`)
	if err := json.Unmarshal([]byte(payload), &got); err != nil {
		t.Fatalf("%v: %s", err, payload)
	}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got.Data) != fmt.Sprint(want) {
		t.Errorf("the event has\n%v, want\n%v", got.Data, want)
	}
	text := dbtest.Value[string](t, d, `SELECT (convert_from(payload, 'UTF8')::json -> 'data')::text FROM webhook_events`)
	if want := event.NewEnvelope(by, event.BalanceChanged).Payload("e-1", at, text); payload != want {
		t.Errorf("the payload is\n%s, want\n%s", payload, want)
	}
}

// One statement can emit events of several guilds, each to its own endpoints.
func TestAStatementTellsSeveralGuilds(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2", "3")
	for _, guild := range []string{"1", "2"} {
		dbtest.Listen(t, d, guild, []string{event.BalanceChanged})
	}
	dbtest.Exec(t, d, `
		INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
		VALUES ('1', 'second', 'https://listener.test/', ARRAY[$1], '', '')`, event.BalanceChanged)
	dbtest.Exec(t, d, givenChanges+emitting("moved.guild_id")+` SELECT`, db.Array([]string{"1", "2", "3", "1"}),
		db.Array([]string{"7", "7", "7", "8"}),
		db.Array([]string{"a", "b", "c", "d"}), db.Integers([]int64{1, 2, 3, 4}), time.Now(), nil, event.System("1").JSON())
	var queued []string
	err := d.Reader().SelectContext(t.Context(), &queued, `
		SELECT concat_ws(' ', w.guild_id, w.event_id, convert_from(v.payload, 'UTF8')::json #>> '{data,previous_balance}')
		FROM webhook_deliveries w JOIN webhook_events v ON v.guild_id = w.guild_id AND v.id = w.event_id ORDER BY event_id, endpoint_id`)
	if want := "[1 a 1 1 a 1 2 b 2 1 d 4 1 d 4]"; err != nil || fmt.Sprint(queued) != want {
		t.Errorf("the deliveries are %v, %v, want %s", queued, err, want)
	}
	if n := dbtest.Value[string](t, d, `SELECT string_agg(id, ' ' ORDER BY id) FROM webhook_events`); n != "a b d" {
		t.Errorf("the events are %s, want a, b and d", n)
	}
}

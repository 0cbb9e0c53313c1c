package delivery

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// streamRows inserts events of guilds A and B that wait for the streams m and o, in each possible
// state for m, and in the opposite state for o. Two events of each guild wait for m alone; one of
// them was also sent to an endpoint.
const streamRows = `
	WITH rows AS (
		SELECT stream, guild, guild || '-' || name AS event, now() - happened::interval AS at, fetched <> (stream = 'o') AS fetched,
		       now() + due::interval * CASE stream WHEN 'o' THEN -1 ELSE 1 END AS due
		FROM (VALUES
			('due', '1 hour', '-1 hour', false), ('again', '1 hour', '-1 minute', true), ('leased', '1 hour', '1 minute', true),
			('later', '1 hour', '1 minute', false), ('old', '31 days', '-31 days', true), ('apart', '1 hour', '-1 minute', true),
			('beside', '1 hour', '1 minute', true), ('own', '1 hour', '1 minute', true), ('sent', '1 hour', '1 minute', true)
		) AS n (name, happened, due, fetched), unnest(ARRAY['m', 'o']) stream, unnest(ARRAY['4194304', '8388608']) guild
		WHERE stream = 'm' OR name NOT IN ('own', 'sent')
	), waiting AS (
		INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at, due_at, fetched)
		SELECT guild, stream, event, at, due, fetched FROM rows
	), sent AS (
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, state)
		SELECT '4194304', 'e', '4194304-sent', 'pending'
	), listening AS (
		INSERT INTO stream_listeners (guild_id, stream_id, events, echo)
		SELECT DISTINCT guild, stream, ARRAY['case.created'], false FROM rows
	), streams AS (
		INSERT INTO bot_streams (id, name, events, echo, ended_at)
		VALUES ('m', 'mirror', '{case.created}', false, NULL), ('o', 'other', '{case.created}', false, NULL)
	)
	INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload)
	SELECT DISTINCT guild, event, 'case.created', at, convert_to(event, 'UTF8') FROM rows
	UNION ALL SELECT '4194304', '4194304-unsent', 'case.created', now(), 'x'`

// ofStreams returns all rows of streams, by name.
func (w *deliveryDB) ofStreams() map[string]string {
	w.t.Helper()
	rows := make(map[string]string)
	for _, line := range strings.Split(dbtest.Value[string](w.t, w.DB, `
		SELECT string_agg(key || ' is ' || row, E'\n')
		FROM (
			SELECT stream_id || ' ' || event_id AS key, to_jsonb(d)::text AS row FROM stream_deliveries d
			UNION ALL SELECT 'event ' || id, to_jsonb(v)::text FROM webhook_events v
			UNION ALL SELECT stream_id || ' in ' || guild_id, to_jsonb(l)::text FROM stream_listeners l
			UNION ALL SELECT 'stream ' || id, to_jsonb(s)::text FROM bot_streams s
		) stored`), "\n") {
		key, row, _ := strings.Cut(line, " is ")
		rows[key] = row
	}
	return rows
}

// wantChanged fails the test unless exactly the named rows have changed since was; a minus before a
// name means a deleted row. A and B are the guilds.
func (w *deliveryDB) wantChanged(about string, was map[string]string, want ...string) {
	w.t.Helper()
	var changed []string
	is := w.ofStreams()
	for _, key := range slices.Sorted(maps.Keys(was)) {
		if row, there := is[key]; !there {
			changed = append(changed, "-"+key)
		} else if row != was[key] {
			changed = append(changed, key)
		}
	}
	for key := range is {
		if _, there := was[key]; !there {
			changed = append(changed, "+"+key)
		}
	}
	if got := lettered(changed...); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		w.t.Errorf("%s: changed are\n%v, want\n%v", about, got, want)
	}
}

func lettered(names ...string) []string {
	for i := range names {
		names[i] = strings.NewReplacer("4194304", "A", "8388608", "B").Replace(names[i])
	}
	slices.Sort(names)
	return names
}

// A statement about events of a stream changes the events that it names, in the state that it
// requires, and none of another stream.
func TestStatementsAboutAStreamsEventsChangeNoOthers(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	var named []streamed
	for _, name := range []string{"due", "again", "leased", "later", "old", "own", "sent"} {
		for _, guild := range []string{"4194304", "8388608"} {
			named = append(named, streamed{GuildID: guild, EventID: guild + "-" + name})
		}
	}
	now := time.Now()
	lease := []any{now, now.Add(-keep), now.Add(time.Hour), 1 << 20, true}
	statements := map[string]struct {
		statement statement
		args      []any
		want      []string
	}{
		"lease":  {leaseStreamed, lease, []string{"m A-due", "m A-again", "m B-due", "m B-again"}},
		"return": {returnStreamed, []any{now}, []string{"m A-leased", "m A-own", "m A-sent", "m B-leased", "m B-own", "m B-sent"}},
		"record": {settleStreamed, nil, []string{
			"-m A-again", "-m A-leased", "-m A-old", "-m A-own", "-m A-sent", "-event A-own",
			"-m B-again", "-m B-leased", "-m B-old", "-m B-own", "-m B-sent", "-event B-own", "-event B-sent",
		}},
	}
	for _, apart := range []bool{false, true} {
		for name, c := range statements {
			w.again()
			was := w.ofStreams()
			w.unit(func(ctx context.Context, tx *db.Tx) error {
				return run(c.statement, apart || tx.Distributed, named, func(e streamed) string { return e.GuildID },
					func(query, rows string, guild ...any) error {
						_, err := tx.ExecContext(ctx, query, slices.Concat([]any{rows, "m"}, c.args, guild)...)
						return err
					})
			})
			w.wantChanged(name, was, c.want...)
		}
	}
}

// again inserts the rows again.
func (w *deliveryDB) again() {
	w.t.Helper()
	for _, table := range []string{"stream_deliveries", "stream_listeners", "webhook_events", "webhook_deliveries"} {
		w.exec(`DELETE FROM ` + table)
	}
	w.exec(`DELETE FROM bot_streams WHERE id <> 'work'`)
	w.exec(streamRows)
}

// A query finds the events of one stream, in a part of the guilds, that can be fetched or
// acknowledged.
func TestALookAtAStreamFindsItsOwn(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	w.again()
	w.exec(`
		INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at, due_at)
		SELECT '4194304', stream, 'earlier ' || i, now(), now() - CASE stream WHEN 'm' THEN interval '61 days' ELSE interval '2 hours' END
		FROM generate_series(1, 1200) i, unnest(ARRAY['m', 'o']) stream`)
	now := time.Now()
	due := dbtest.Value[time.Time](t, w.DB, `SELECT due_at FROM stream_deliveries WHERE stream_id = 'm' AND event_id = '4194304-due'`)
	statements := []string{findInTime, findByGuild}
	if w.DB.Distributed() {
		statements = statements[:1] // a coordinator never searches guild by guild
	}
	start, all := streamed{DueAt: now.AddDate(0, 0, -60)}, []string{"A-due", "A-again", "A-apart", "B-due", "B-again", "B-apart"}
	for _, c := range []struct {
		about         string
		after         streamed
		shard, shards int
		guilds        []string
		want          []string
	}{
		{"everything", start, 0, 1, nil, all},
		{"a shard", start, 0, 2, nil, all[3:]},
		{"the other shard", start, 1, 2, nil, all[:3]},
		{"one guild", start, 0, 1, []string{"8388608"}, all[3:]},
		{"a guild of another shard", start, 1, 2, []string{"8388608"}, nil},
		{"behind one", streamed{GuildID: "4194304", EventID: "4194304-due", DueAt: due}, 0, 1, nil, all[1:]},
	} {
		for _, statement := range statements {
			found := w.find(statement, now, c.after, Part{Shard: c.shard, Shards: c.shards, Guilds: c.guilds}, 100)
			w.wantFound(c.about, found, c.want)
		}
	}
	w.exec(`DELETE FROM stream_deliveries WHERE stream_id = 'm' AND event_id IN ('8388608-again', '8388608-apart')`)
	for _, statement := range statements {
		behind := streamed{GuildID: "4194304", EventID: "4194304-due", DueAt: due}
		w.wantFound("the next one", w.find(statement, now, behind, Part{Shards: 1}, 1), []string{"B-due"})
	}
	w.exec(`DELETE FROM stream_deliveries WHERE stream_id = 'm' AND event_id IN ('4194304-due', '4194304-again', '4194304-apart')`)
	for _, statement := range statements {
		w.wantFound("the only one", w.find(statement, now, start, Part{Shards: 1}, 1), []string{"B-due"})
	}
	w.again()
	for _, guilds := range [][]string{nil, {"4194304"}} {
		var found []streamed
		want := []string{"A-again", "A-leased"}
		if guilds == nil {
			want = append(want, "B-again", "B-leased")
		}
		w.unit(func(ctx context.Context, tx *db.Tx) (err error) {
			found, err = db.Select[streamed](ctx, tx, findLeased, "m", db.Array([]string{
				"4194304-due", "4194304-again", "4194304-leased", "8388608-again", "8388608-leased",
			}), db.Array(guilds))
			return err
		})
		w.wantFound("leased", found, want)
	}
	w.exec(`DELETE FROM stream_deliveries WHERE stream_id = 'm' AND (guild_id = '8388608' OR due_at < now())`)
	for stream, want := range map[string]int{"m": 0, "o": 2} {
		if guilds, err := db.Select[string](t.Context(), w.DB.Reader(), newestDue, stream, newest); err != nil || len(guilds) != want {
			t.Errorf("stream %s has something for %v, %v", stream, guilds, err)
		}
	}
}

// find runs a query for the events of a part of stream m that can be fetched.
func (w *deliveryDB) find(statement string, now time.Time, after streamed, p Part, limit int) (found []streamed) {
	w.t.Helper()
	w.unit(func(ctx context.Context, tx *db.Tx) (err error) {
		found, err = db.Select[streamed](ctx, tx, statement, "m", now, after.DueAt, after.GuildID, after.EventID,
			p.Shards, p.Shard, db.Array(p.Guilds), now.Add(-keep), limit)
		return err
	})
	return found
}

func (w *deliveryDB) wantFound(about string, found []streamed, want []string) {
	w.t.Helper()
	var ids []string
	for _, f := range found {
		ids = append(ids, f.EventID)
	}
	if got := lettered(ids...); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		w.t.Errorf("%s: found are %v, want %v", about, got, want)
	}
}

// A change of a stream, or of one of its events, changes no other stream.
func TestAChangeOfAStreamIsOfNoOther(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	tell := func(context.Context, *db.Tx) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return errors.Join(BackfillStreams(ctx, w.DB, w.cfg.Log), ctx.Err()) // fails if the backfill does not end
	}
	for _, c := range []struct {
		about, before string
		do            func(ctx context.Context, tx *db.Tx) error
		want          []string
	}{
		{"record", "", func(ctx context.Context, tx *db.Tx) error {
			return SettleStreamed(ctx, tx, "4194304", "m", "4194304-leased")
		}, []string{"-m A-leased"}},
		{"take back", "", func(ctx context.Context, tx *db.Tx) error {
			_, err := TakeBackStreamed(ctx, tx, "4194304", "m", "4194304-due")
			return err
		}, []string{"-m A-due"}},
		{"take back what was fetched", "", func(ctx context.Context, tx *db.Tx) error {
			_, err := TakeBackStreamed(ctx, tx, "4194304", "m", "4194304-leased")
			return err
		}, nil},
		{"note a fetch", "", func(ctx context.Context, tx *db.Tx) error {
			return noteFetch(ctx, tx, stream{ID: "m", Now: time.Now()}, "caller")
		}, []string{"stream m"}},
		{"note a late fetch", "", func(ctx context.Context, tx *db.Tx) error {
			return noteFetch(ctx, tx, stream{ID: "m", Now: time.Now(), Overdue: true}, "caller")
		}, []string{"stream m"}},
		{"nothing to tell", "", tell, nil},
		{"tell of what one listens to", `UPDATE bot_streams SET backfilled = '', events = '{case.updated}' WHERE id = 'm'`, tell, []string{
			"stream m", "m in A", "m in B", "+m in of the future",
		}},
		{"tell of two", `UPDATE bot_streams SET backfilled = '', events = ARRAY['case.updated', id] WHERE id IN ('m', 'o')`, tell, []string{
			"stream m", "stream o", "m in A", "m in B", "o in A", "o in B", "+m in of the future", "+o in of the future",
		}},
		{"tell of one that is told of", `UPDATE bot_streams SET backfilled = '' WHERE id = 'o'`, func(ctx context.Context, tx *db.Tx) error {
			_, err := continueBackfill(ctx, tx, nil, "m")
			return err
		}, nil},
		{"tell a new guild", `
			INSERT INTO bot_streams (id, name, events, echo, ended_at) VALUES ('e', 'mirror', '{case.created}', false, now());
			DELETE FROM stream_listeners`, func(ctx context.Context, tx *db.Tx) error {
			return SubscribeNew(ctx, tx, []string{"4194304"})
		}, []string{"+m in A", "+o in A"}},
		{"tell of what is known", `UPDATE bot_streams SET backfilled = '' WHERE id = 'm'`, tell, []string{"stream m", "+m in of the future"}},
	} {
		w.again()
		w.exec(`DELETE FROM guilds`)
		w.exec(`
			INSERT INTO guilds (id, name, owner_id, removed_at, removed_after)
			SELECT id, 'Guild', '1', CASE WHEN days IS NOT NULL THEN now() END, now() + days * interval '1 day'
			FROM (VALUES ('4194304', NULL), ('8388608', NULL), ('of the future', 1), ('of the past', -1)) AS g (id, days)`)
		if c.before != "" {
			w.exec(c.before)
		}
		was := w.ofStreams()
		w.unit(c.do)
		w.wantChanged(c.about, was, c.want...)
	}

	w.again()
	w.exec(`UPDATE bot_streams SET ended_at = now() WHERE id = 'o'`)
	w.exec(`INSERT INTO bot_streams (id, name, events, echo, ended_at) VALUES ('e', 'mirror', '{}', false, now() - interval '1 hour')`)
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		if s, err := openStream(ctx, tx, nil, "mirror"); err != nil || s.ID != "m" || !s.Complete.Equal(s.Now) {
			t.Errorf("opened is %+v, %v", s, err)
		}
		if _, err := openStream(ctx, tx, nil, "other"); !errors.Is(err, noSuchStream) {
			t.Errorf("one that has ended: %v", err)
		}
		list, err := StreamsOf(ctx, tx, "4194304", 100)
		stand := make(map[string]int)
		for _, s := range list {
			stand[s.Name] = s.Waiting
		}
		if err != nil || !maps.Equal(stand, map[string]int{"mirror": 9, StreamWork: 0}) {
			t.Errorf("they stand at %+v, %v", list, err)
		}
		return err
	})
	was := w.ofStreams()
	w.unit(tell)
	want := []string{"-stream o", "-stream e", "-o in A", "-o in B"}
	for _, name := range []string{"due", "again", "leased", "later", "old", "apart", "beside"} {
		want = append(want, "-o A-"+name, "-o B-"+name)
	}
	w.wantChanged("end", was, want...)
}

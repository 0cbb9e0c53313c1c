package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/event"
)

// addStream creates the stream mirror, whose last fetch was unfetched ago, and returns its id.
func (w *deliveryDB) addStream(unfetched time.Duration) string {
	w.t.Helper()
	id := db.NewID()
	w.exec(`INSERT INTO bot_streams (id, name, events, echo, backfilled, created_at)
		VALUES ($1, 'mirror', $2, false, '', now() - $3 * interval '1 second')`,
		id, db.Array([]string{event.CaseCreated}), unfetched.Seconds())
	return id
}

// A fetch at the same time as a unit of work on its stream is stored, whether that unit of work
// commits or not; if the unit of work deletes the stream, the fetch finds no stream.
// RELIABILITY.md, Events.
func TestAFetchIsNotedBesideWhatWorksOnItsStream(t *testing.T) {
	t.Parallel()
	dies := errors.New("the unit dies")
	for name, c := range map[string]struct {
		statement string
		fails     error // error of the unit of work
		refused   bool  // the fetch finds no stream
	}{
		"a backfill":           {`UPDATE bot_streams SET backfilled = 'x' WHERE id = $1`, nil, false},
		"a backfill that dies": {`UPDATE bot_streams SET backfilled = 'x' WHERE id = $1`, dies, false},
		"an end that dies":     {`UPDATE bot_streams SET ended_at = now() WHERE id = $1`, dies, false},
		"an end":               {`UPDATE bot_streams SET ended_at = now() WHERE id = $1`, nil, true},
		"a fetch that dies":    {`UPDATE bot_streams SET fetched_at = now(), fetched_by = 'x' WHERE id = $1`, dies, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newDeliveryDB(t)
			id := w.addStream(streamEnds + time.Hour)
			fetched := make(chan error, 1)
			err := w.DB.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				if _, err := tx.ExecContext(ctx, c.statement, id); err != nil {
					return err
				}
				go func() {
					fetched <- w.DB.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
						_, err := FetchStream(ctx, tx, Part{Stream: "mirror", Shards: 1}, "caller", 1, time.Minute)
						return err
					})
				}()
				testutil.Eventually(t, "the fetch ends or waits", func() bool { return len(fetched) == 1 || dbtest.Waiting(t, w.DB) > 0 })
				return c.fails
			})
			if !errors.Is(err, c.fails) {
				t.Fatal(err)
			}
			if err := <-fetched; errors.Is(err, noSuchStream) != c.refused || err != nil && !c.refused {
				t.Fatalf("the fetch: %v", err)
			}
			if err := BackfillStreams(t.Context(), w.DB, w.cfg.Log); err != nil {
				t.Fatal(err)
			}
			if n := w.count(`SELECT count(*) FROM bot_streams WHERE id = $1 AND ended_at IS NULL`, id); (n == 0) != c.refused {
				t.Errorf("%d streams are there after the fetch", n)
			}
		})
	}
}

// addWaiting adds waiting events for a stream: each events in each of the given number of guilds,
// which belong to one of two shards. The events happened ago seconds ago, or a little later.
func (w *deliveryDB) addWaiting(stream string, shard, guilds, each, ago int) {
	w.t.Helper()
	rows := fmt.Sprintf(`SELECT (4194304::bigint * (2 * g + %d))::text AS guild, format('%d-%%s-%%s', g, e) AS event,
		now() - %d * interval '1 second' + (e * 100 + g) * interval '1 ms' AS at FROM generate_series(1, %d) AS g, generate_series(1, %d) AS e`,
		shard, shard, ago, guilds, each)
	w.exec(`INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload)
		SELECT guild, event, 'case.created', at, convert_to(format('{"id":"%s","guild_id":"%s"}', event, guild), 'UTF8') FROM (` + rows + `) r`)
	w.exec(`INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at, due_at)
		SELECT guild, $1, event, at, at FROM (`+rows+`) r`, stream)
}

// entriesRead is a query for the number of index entries and rows of stream_deliveries that the
// session has recently read.
const entriesRead = `
	SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(i.indexrelid)), 0) + pg_stat_get_xact_tuples_returned('stream_deliveries'::regclass)
	FROM pg_index i
	WHERE i.indrelid = 'stream_deliveries'::regclass`

// A shard that nobody fetches does not delay other shards, however many events wait for it: fetches
// of the other shards find their events behind it, each event once. RELIABILITY.md, Events.
func TestAShardThatNobodyFetchesSlowsNoOther(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	id := w.addStream(0)
	w.addWaiting(id, 1, 60, 300, 1000)
	w.addWaiting(id, 0, 7, 41, 500)
	w.exec(`ANALYZE stream_deliveries`)
	seen := make(map[string]bool)
	fetch := func(limit int) (got Fetched, read int) {
		t.Helper()
		w.unit(func(ctx context.Context, tx *db.Tx) (err error) {
			before, err := db.Get[int](ctx, tx, entriesRead)
			if err != nil {
				return err
			}
			got, err = FetchStream(ctx, tx, Part{Stream: "mirror", Shards: 2}, "caller", limit, 10*time.Minute)
			if err != nil {
				return err
			}
			read, err = db.Get[int](ctx, tx, entriesRead)
			read -= before
			return err
		})
		for _, payload := range got.Events {
			if e := string(payload); seen[e] || !strings.Contains(e, `"id":"0-`) {
				t.Errorf("%s came, twice: %v", e, seen[e])
			}
			seen[string(payload)] = true
		}
		return got, read
	}
	for want := 7 * 41; want > 0; want -= 100 {
		got, read := fetch(100)
		if len(got.Events) != min(want, 100) || got.More != (want > 100) {
			t.Fatalf("fetched %d of %d, more: %v", len(got.Events), want, got.More)
		}
		if most := 2500; read > most && !dbtest.Coordinator(t) {
			t.Errorf("a fetch of %d events has read %d entries, want %d at most", len(got.Events), read, most)
		}
	}
	if got, _ := fetch(100); len(got.Events) != 0 || got.More {
		t.Errorf("%d events came again, more: %v", len(got.Events), got.More)
	}
}

// fetched fetches a hundred events of the stream.
func (w *deliveryDB) fetched() (got Fetched) {
	w.t.Helper()
	w.unit(func(ctx context.Context, tx *db.Tx) (err error) {
		got, err = FetchStream(ctx, tx, Part{Stream: "mirror", Shards: 1}, "caller", 100, time.Minute)
		return err
	})
	return got
}

// A response of a stream holds at most a megabyte of events, but always one event, however large.
func TestAStreamsAnswerHoldsAMegabyte(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	id := w.addStream(0)
	for i, size := range []int{300_000, 300_000, 300_000, 300_000, 2 << 20, 10} {
		w.exec(`INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload)
			VALUES ($1, $2, 'case.created', now() + $3 * interval '1 ms', convert_to(repeat('7', $4), 'UTF8'))`, w.guild, fmt.Sprint(i), i, size)
		w.exec(`INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at) VALUES ($1, $2, $3, now())`, w.guild, id, fmt.Sprint(i))
	}
	for i, want := range []int{3, 1, 1, 1} {
		got := w.fetched()
		if n := len(got.JSON()); len(got.Events) != want || got.More != (i < 3) || n > 1<<20 && want > 1 {
			t.Errorf("answer %d has %d events in %d bytes, want %d; more: %v", i, len(got.Events), n, want, got.More)
		}
	}
}

// Large events come in the order of their waiting time, whatever their guild: the backlog of one
// guild does not delay another guild's events forever.
func TestLargeEventsOfAStreamComeOldestFirst(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	id := w.addStream(0)
	for _, g := range []struct {
		guild   string
		minutes int // age of its events
	}{{"1", 1}, {"9", 10}} {
		for i := range 30 {
			event := g.guild + "-" + fmt.Sprint(i)
			w.exec(`INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload)
				VALUES ($1, $2, 'case.created', now() - $3 * interval '1 minute', convert_to(rpad($1, 50000, '.'), 'UTF8'))`, g.guild, event, g.minutes)
			w.exec(`INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at, due_at)
				VALUES ($1, $2, $3, now() - $4 * interval '1 minute', now() - $4 * interval '1 minute')`, g.guild, id, event, g.minutes)
		}
	}
	got := w.fetched()
	for _, e := range got.Events {
		if e[0] != '9' {
			t.Fatalf("an event of guild %c came before older ones of another", e[0])
		}
	}
	if len(got.Events) != 20 || !got.More {
		t.Errorf("%d events came, more: %v", len(got.Events), got.More)
	}
}

// idsOf returns the ids of events as addWaiting made them.
func idsOf(got Fetched) (ids []string) {
	for _, payload := range got.Events {
		id, _, _ := strings.Cut(strings.TrimPrefix(string(payload), `{"id":"`), `"`)
		ids = append(ids, id)
	}
	return ids
}

// The cost of a stream depends on the number of events, never on the number of guilds: a fetch and
// its acknowledgement take as many statements for forty guilds as for one. The events of a guild
// come in the order in which they happened. RELIABILITY.md, Events.
func TestAFetchOfManyGuildsTakesAsManyStatementsAsOfOne(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	var sent atomic.Int64
	link := dbtest.NewJudgedLink(t, w.URL, func([]byte) dbtest.Fate { sent.Add(1); return dbtest.Pass })
	through, id, of := dbtest.Open(t, link.URL).DB, w.addStream(0), Part{Stream: "mirror", Shards: 1}
	round := func(guilds int) (statements int64) {
		t.Helper()
		w.addWaiting(id, 0, guilds, 40/guilds, 1000)
		before := sent.Load()
		for _, settle := range []int{0, 40} { // in the first round all events are returned
			var got Fetched
			dbtest.Do(t, through, func(ctx context.Context, tx *db.Tx) (err error) {
				got, err = FetchStream(ctx, tx, of, "caller", 100, time.Minute)
				return err
			})
			ids, newest := idsOf(got), make(map[int]int) // by guild
			for _, id := range ids {
				var guild, event int
				if _, err := fmt.Sscanf(id, "0-%d-%d", &guild, &event); err != nil || event <= newest[guild] {
					t.Errorf("%s came behind event %d of its guild, %v", id, newest[guild], err)
				}
				newest[guild] = event
			}
			settled, returned := 0, 0
			dbtest.Do(t, through, func(ctx context.Context, tx *db.Tx) (err error) {
				settled, returned, err = AcknowledgeStream(ctx, tx, of, ids[:min(settle, len(ids))], ids[min(settle, len(ids)):])
				return err
			})
			if settled != settle || returned != 40-settle {
				t.Fatalf("of 40 events %d came, %d were settled and %d given back", len(ids), settled, returned)
			}
		}
		return sent.Load() - before
	}
	round(1) // prepares the statements and stores the fetch
	if one, many := round(1), round(40); many > one+2 {
		t.Errorf("they take %d statements for forty guilds, %d for one", many, one)
	}
}

// A backlog that has come since the statistics were made is not read again for each event of a
// fetch, an acknowledgement or a return. RELIABILITY.md, Events.
func TestABacklogIsNotReadForEachEventOfAFetch(t *testing.T) {
	t.Parallel()
	const pages = `
		SELECT coalesce(sum(pg_stat_get_xact_blocks_fetched(i.indexrelid)), 0) + pg_stat_get_xact_blocks_fetched('stream_deliveries'::regclass)
		FROM pg_index i
		WHERE i.indrelid = 'stream_deliveries'::regclass`
	// Reading all events of a guild for each event takes 27,000 reads and more. The number of dead
	// index entries that a search reads depends on the other open transactions of the server.
	const most = 10_000
	for name, c := range map[string]struct {
		guilds int
		apart  bool
	}{
		"one guild": {1, false}, "twenty guilds": {20, false},
		"one guild, named": {1, true}, "twenty guilds, one after the other": {20, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newDeliveryDB(t)
			of := Part{Stream: "mirror", Shards: 1}
			id := w.addStream(0)
			w.exec(`ALTER TABLE stream_deliveries SET (autovacuum_enabled = false)`)
			w.exec(`ANALYZE stream_deliveries`)
			w.addWaiting(id, 0, c.guilds, 16_000/c.guilds, 1000)
			var ids []string
			reads := func(what string, do func(ctx context.Context, tx *db.Tx) error) {
				t.Helper()
				w.unit(func(ctx context.Context, tx *db.Tx) error {
					tx.Distributed = tx.Distributed || c.apart
					before, err := db.Get[int](ctx, tx, pages)
					if err != nil {
						return err
					}
					if err := do(ctx, tx); err != nil {
						return err
					}
					after, err := db.Get[int](ctx, tx, pages)
					t.Logf("%s of %d events has read %d pages", what, len(ids), after-before)
					if after-before > most {
						t.Errorf("%s of %d events has read %d pages, want %d at most", what, len(ids), after-before, most)
					}
					return err
				})
			}
			for range 8 { // from the sixth run on, Postgres uses a plan for any values
				reads("a fetch", func(ctx context.Context, tx *db.Tx) error {
					got, err := FetchStream(ctx, tx, of, "caller", 100, time.Minute)
					ids = idsOf(got)
					return err
				})
				reads("a return", func(ctx context.Context, tx *db.Tx) error {
					_, _, err := AcknowledgeStream(ctx, tx, of, nil, ids[:50])
					return err
				})
				reads("an acknowledgement", func(ctx context.Context, tx *db.Tx) error {
					_, _, err := AcknowledgeStream(ctx, tx, of, ids, nil)
					return err
				})
			}
		})
	}
}

// An acknowledgement locks events in the order of guild and id, whatever the order of its lists:
// while it waits for one event, it has locked those before it and none after it. RELIABILITY.md,
// Events.
func TestAcknowledgementsLockEventsInOneOrder(t *testing.T) {
	t.Parallel()
	var guilds []string // the guilds of addWaiting
	for n := range 5 {
		guilds = append(guilds, fmt.Sprint(2*4194304*(n+1)))
	}
	for name, apart := range map[string]bool{"over all guilds": false, "guild by guild": true} {
		for list, back := range map[string]bool{"settled": false, "given back": true} {
			t.Run(list+" "+name, func(t *testing.T) {
				t.Parallel()
				w := newDeliveryDB(t)
				of := Part{Stream: "mirror", Shards: 1}
				w.addWaiting(w.addStream(0), 0, 5, 2, 1000)
				ids := idsOf(w.fetched())
				slices.Reverse(ids)
				acknowledged := make(chan error, 1)
				w.unit(func(ctx context.Context, tx *db.Tx) error {
					const lock = `SELECT event_id FROM stream_deliveries WHERE guild_id = $1 AND event_id LIKE $2 ORDER BY event_id FOR UPDATE SKIP LOCKED`
					if _, err := tx.ExecContext(ctx, lock, guilds[2], "%-1"); err != nil {
						return err
					}
					go func() {
						acknowledged <- w.DB.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
							tx.Distributed = tx.Distributed || apart
							events, backs := ids, []string(nil)
							if back {
								events, backs = backs, events
							}
							_, _, err := AcknowledgeStream(ctx, tx, of, events, backs)
							return err
						})
					}()
					testutil.Eventually(t, "the acknowledgement waits", func() bool { return dbtest.Waiting(t, w.DB) == 1 })
					var free []string
					for _, guild := range guilds {
						some, err := db.Select[string](ctx, tx, lock, guild, "%")
						if err != nil {
							return err
						}
						free = append(free, some...)
					}
					// As texts, the ids of the guilds have the order 2, 3, 4, 5, 1.
					if want := []string{"0-1-1", "0-1-2", "0-3-1", "0-3-2", "0-4-1", "0-4-2", "0-5-1", "0-5-2"}; !slices.Equal(free, want) {
						t.Errorf("free are %v, want %v", free, want)
					}
					return nil
				})
				if err := <-acknowledged; err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

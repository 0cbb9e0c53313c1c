package giveaways

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/lanes"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/event"
)

// wantDrawnOnce checks that everything that a draw stores exists exactly once.
func (s giveawayDB) wantDrawnOnce(id string, winners int) {
	s.t.Helper()
	g := s.get(id)
	if g.Status != ended || g.Rounds != 1 || g.EndedAt == nil {
		s.t.Errorf("giveaway %s is %s after %d rounds, ended at %v", id, g.Status, g.Rounds, g.EndedAt)
	}
	if len(g.Winners) != winners || len(distinct(g.Winners)) != winners {
		s.t.Errorf("giveaway %s has the winners %v, want %d distinct ones", id, g.Winners, winners)
	}
	for what, query := range map[string]string{
		"records": `SELECT count(*) FROM giveaway_draws WHERE guild_id = $1 AND giveaway_id = $2`,
		"intents": `SELECT count(*) FROM chat_intents WHERE guild_id = $1 AND subject_id = $2 AND kind = 'giveaway_ended'`,
		"announcements": `
			SELECT count(*)
			FROM chat_intents
			WHERE try_at IS NOT NULL AND guild_id = $1 AND subject_id = $2`,
		"events": `SELECT count(*) FROM webhook_events WHERE guild_id = $1 AND type = 'giveaway.ended'
			AND convert_from(payload, 'UTF8')::json -> 'data' ->> 'id' = $2
			AND convert_from(payload, 'UTF8')::json -> 'origin' ->> 'type' = 'system'`,
	} {
		if n := dbtest.Value[int](s.t, s.DB, query, guild, id); n != 1 {
			s.t.Errorf("giveaway %s has %d %s, want 1", id, n, what)
		}
	}
	if drawn := dbtest.Value[db.Strings](s.t, s.DB, `
		SELECT drawn
		FROM giveaway_draws
		WHERE guild_id = $1 AND giveaway_id = $2`, guild, id); !slices.Equal(drawn, g.Winners) {
		s.t.Errorf("the record of giveaway %s says %v, the giveaway %v", id, drawn, g.Winners)
	}
	s.wantRepeatable(id)
}

// wantRepeatable repeats every draw of a giveaway from its record and the stored entries, with the
// implementation of the example.
func (s giveawayDB) wantRepeatable(id string) {
	s.t.Helper()
	var records []record
	if err := s.DB.Reader().SelectContext(context.Background(), &records, `
		SELECT round, seed, entries_hash, entry_count, excluded, drawn, replaced, token_id, reason
		FROM giveaway_draws WHERE guild_id = $1 AND giveaway_id = $2 ORDER BY round`, guild, id); err != nil {
		s.t.Fatal(err)
	}
	var all []entrant
	if err := s.DB.Reader().SelectContext(context.Background(), &all, `
		SELECT user_id, entries FROM giveaway_entries WHERE guild_id = $1 AND giveaway_id = $2`, guild, id); err != nil {
		s.t.Fatal(err)
	}
	weights := map[string]int64{}
	for _, e := range all {
		weights[e.UserID] = e.Entries
	}
	winners := s.firstWinners(id, records)
	won := slices.Clone(winners)
	for i, r := range records {
		if r.Round != i+1 {
			s.t.Errorf("record %d of giveaway %s says round %d", i+1, id, r.Round)
		}
		if !bytes.Equal(r.EntriesHash, potHash(all)) {
			s.t.Errorf("round %d of giveaway %s was drawn from other entries", r.Round, id)
		}
		out := setOf(slices.Concat(won, r.Excluded)...)
		if want := weight(all, out); r.EntryCount != want {
			s.t.Errorf("round %d of giveaway %s says %d entries in the pot, there are %d", r.Round, id, r.EntryCount, want)
		}
		if again := repeat(r.Seed, weights, out, len(r.Drawn)); !slices.Equal(again, r.Drawn) {
			s.t.Errorf("round %d of giveaway %s drew %v, repeated it draws %v", r.Round, id, r.Drawn, again)
		}
		for k, user := range r.Drawn {
			if slices.Contains(won, user) {
				s.t.Errorf("round %d of giveaway %s drew %s, who had won before", r.Round, id, user)
			}
			if k >= len(r.Replaced) {
				winners = append(winners, user)
			} else if at := slices.Index(winners, r.Replaced[k]); at >= 0 {
				winners[at] = user
			} else {
				s.t.Errorf("round %d of giveaway %s replaced %s, who was no winner", r.Round, id, r.Replaced[k])
			}
		}
		won = append(won, r.Drawn...)
	}
	if g := s.get(id); len(records) > 0 && !slices.Equal(g.Winners, winners) {
		s.t.Errorf("the records of giveaway %s leave the winners %v, it has %v", id, winners, g.Winners)
	}
}

// firstWinners returns the winners that a giveaway came with, in the order of their positions:
// those who are winners now, or were replaced, and were never drawn.
func (s giveawayDB) firstWinners(id string, records []record) (list []string) {
	list = slices.Clone(s.get(id).Winners)
	for _, r := range slices.Backward(records) {
		for k, user := range slices.Backward(r.Drawn) {
			if at := slices.Index(list, user); at < 0 {
				s.t.Errorf("round %d of giveaway %s drew %s, whom no later round replaced", r.Round, id, user)
			} else if k < len(r.Replaced) {
				list[at] = r.Replaced[k]
			} else {
				list = slices.Delete(list, at, at+1)
			}
		}
	}
	return list
}

func TestDraw(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	for _, c := range []struct {
		name           string
		entrants, want int
	}{
		{"draws as many winners as it is to have", 20, 3},
		{"draws everyone when fewer entered", 2, 2},
		{"ends without winners when nobody entered", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := giveawayDB{s.Database, t}
			s.giveaway(c.name, drawing, 3, c.entrants, func(i int) int64 { return int64(i) })
			for range 3 {
				if err := Draw(context.Background(), s.DB, guild, c.name); err != nil {
					t.Fatal(err)
				}
			}
			s.wantDrawnOnce(c.name, c.want)
		})
	}
	t.Run("leaves alone what is not in drawing", func(t *testing.T) {
		s := giveawayDB{s.Database, t}
		for _, status := range []string{scheduled, active, "paused", ended} {
			s.giveaway(status, status, 1, 3, equal)
			if err := Draw(context.Background(), s.DB, guild, status); err != nil {
				t.Fatal(err)
			}
			if g := s.get(status); g.Status != status || len(g.Winners) > 0 {
				t.Errorf("a giveaway that was %s is %s with the winners %v", status, g.Status, g.Winners)
			}
		}
		if err := Draw(context.Background(), s.DB, guild, "gone"); err != nil {
			t.Errorf("a giveaway that is gone: %v", err)
		}
	})
}

// Many callers and two workers race for the same giveaways, while some lose their transaction, some
// time out, and some lose the response to their commit and retry. RELIABILITY.md, Giveaways.
func TestDrawRunsOnceHoweverManyRace(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	const giveaways, callers = 40, 8
	for i := range giveaways {
		s.giveaway(fmt.Sprintf("g%02d", i), drawing, 2, 12, func(i int) int64 { return int64(i * i) })
	}
	var group sync.WaitGroup
	for w := range callers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(21, uint64(w)))
			todo := random.Perm(giveaways)
			for n := 0; len(todo) > 0; n++ {
				d := db.Doer(s.DB)
				ctx, cancel := context.WithCancel(context.Background())
				switch n % 4 {
				case 1:
					d = failing{s.DB, before}
				case 2:
					d = failing{s.DB, after}
				case 3:
					ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(6000))*time.Microsecond)
				}
				if err := Draw(ctx, d, guild, fmt.Sprintf("g%02d", todo[0])); err == nil {
					todo = todo[1:]
				}
				cancel()
				if n == 16 {
					dbtest.Exec(s.t, s.DB, `UPDATE giveaways SET redraw_at = now() - interval '1 second' WHERE status = 'drawing' AND id > 'g30'`)
				}
			}
		})
	}
	s.work(nil)
	s.work(nil)
	group.Wait()
	dbtest.Exec(s.t, s.DB, `UPDATE giveaways SET redraw_at = now() WHERE status = 'drawing'`)
	testutil.Eventually(s.t, "all draws", func() bool {
		return dbtest.Value[int](s.t, s.DB, `SELECT count(*) FROM giveaways WHERE status = 'drawing'`) == 0
	})
	for i := range giveaways {
		s.wantDrawnOnce(fmt.Sprintf("g%02d", i), 2)
	}
}

// work starts a worker that stops when the test ends.
func (s giveawayDB) work(p chat.Platform) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	if p == nil {
		p = chat.NewStandIn(slog.New(slog.DiscardHandler))
	}
	w := &lanes.Worker{
		DB: s.DB, Log: slog.New(slog.DiscardHandler), Outcomes: lanes.NewOutcomes(nil, "work", ""), Lanes: Lanes(s.DB, p),
	}
	go func() { done <- w.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}

// failing is a database whose transactions fail: before their commit, which rolls them back, or
// after it, so that only the response is lost.
type failing struct {
	*db.DB
	when int
}

const (
	before = iota
	after
)

var errBroken = errors.New("the connection broke")

func (f failing) Do(ctx context.Context, fn func(context.Context, *db.Tx) error) error {
	err := f.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := fn(ctx, tx); err != nil || f.when == after {
			return err
		}
		return errBroken
	})
	return errors.Join(err, errBroken)
}

// A worker is killed at every statement with which a draw writes, and once during its commit, by
// ending its database session. Nothing of the draw may remain, and another worker has to finish it,
// once. RELIABILITY.md, Giveaways.
func TestDrawIsFinishedAfterItsWorkerDied(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	dbtest.Exec(s.t, s.DB, `CREATE TABLE failpoints (name text)`)
	dbtest.Exec(s.t, s.DB, `
		CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF EXISTS (SELECT FROM failpoints WHERE name = TG_NAME) THEN
				PERFORM pg_terminate_backend(pg_backend_pid());
				PERFORM pg_sleep(5);
			END IF;
			RETURN NEW;
		END $$`)
	points := []string{}
	for _, on := range []struct{ what, table string }{
		{"INSERT", "giveaway_draws"}, {"UPDATE", "giveaways"}, {"INSERT", "webhook_events"}, {"INSERT", "chat_intents"},
	} {
		for _, when := range []string{"before", "after"} {
			name := when + "_" + on.table
			dbtest.Exec(s.t, s.DB, fmt.Sprintf(`CREATE TRIGGER %s %s %s ON %s FOR EACH ROW EXECUTE FUNCTION die()`, name, when, on.what, on.table))
			points = append(points, name)
		}
	}
	dbtest.Exec(s.t, s.DB, `CREATE CONSTRAINT TRIGGER in_commit AFTER INSERT ON giveaway_draws DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
		EXECUTE FUNCTION die()`)
	for _, point := range append(points, "in_commit") {
		s.giveaway(point, drawing, 2, 9, equal)
		dbtest.Exec(s.t, s.DB, `INSERT INTO failpoints VALUES ($1)`, point)
		if err := Draw(context.Background(), s.DB, guild, point); err == nil {
			t.Errorf("at %s: nothing failed", point)
		}
		dbtest.Exec(s.t, s.DB, `DELETE FROM failpoints`)
		if g := s.get(point); g.Status != drawing || len(g.Winners) > 0 || g.Rounds > 0 {
			t.Errorf("at %s: the dead draw left %+v", point, g)
		}
		dbtest.Exec(s.t, s.DB, `UPDATE giveaways SET redraw_at = now() WHERE status = 'drawing'`)
	}
	s.work(nil)
	s.work(nil)
	testutil.Eventually(s.t, "all draws", func() bool {
		return dbtest.Value[int](s.t, s.DB, `SELECT count(*) FROM giveaways WHERE status = 'drawing'`) == 0
	})
	for _, point := range append(points, "in_commit") {
		s.wantDrawnOnce(point, 2)
	}
}

// A giveaway that cannot be drawn must neither stop the others nor be retried without a pause.
// RELIABILITY.md, Giveaways.
func TestAGiveawayThatCannotBeDrawnStopsNoOther(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	for _, id := range []string{"a", "b", "c"} {
		s.giveaway(id, drawing, 1, 2, equal)
	}
	dbtest.Exec(s.t, s.DB, `ALTER TABLE giveaway_draws ADD CONSTRAINT not_b CHECK (giveaway_id <> 'b')`)
	dbtest.Exec(s.t, s.DB, `UPDATE giveaways SET redraw_at = now() - interval '1 second'`)
	s.work(nil)
	testutil.Eventually(s.t, "the other draws", func() bool { return s.get("a").Status == ended && s.get("c").Status == ended })
	s.wantDrawnOnce("a", 1)
	s.wantDrawnOnce("c", 1)
	testutil.Eventually(s.t, "two failures", func() bool { return s.get("b").Failures >= 2 })
	if again := dbtest.Value[float64](s.t, s.DB, `SELECT extract(epoch FROM redraw_at - now()) FROM giveaways WHERE id = 'b'`); again < 0.5 {
		t.Errorf("after two failures the draw is tried again in %v s", again)
	}
}

// A draw reads exactly the entries that the counters count, even while the bot writes further
// entries. RELIABILITY.md, Giveaways.
func TestDrawSeesWholeEntries(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	s.giveaway("a", drawing, 5, 10, equal)
	dbtest.Exec(s.t, s.DB, `UPDATE giveaways SET pot = 'gathering'`)
	stop, failed := make(chan struct{}), make(chan error, 4)
	var group sync.WaitGroup
	for w := range 4 {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				err := s.DB.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
					g, err := lock(ctx, tx, guild, "a")
					if err != nil {
						return err
					}
					_, err = advance(ctx, tx, g, gathering, "1", []string{fmt.Sprintf("9%d%04d", w, i)})
					return err
				})
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	for range 20 {
		dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error {
			g, err := lock(ctx, tx, guild, "a")
			if err != nil {
				return err
			}
			all, err := pot(ctx, tx, g)
			var sum int64
			for _, e := range all {
				sum += e.Entries
			}
			if int64(len(all)) != g.EntrantCount || sum != g.EntryCount {
				t.Errorf("%d entrants with %d entries, the counters say %d and %d", len(all), sum, g.EntrantCount, g.EntryCount)
			}
			return err
		})
	}
	close(stop)
	group.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
}

// Drawing and rerolling work with a hundred thousand entrants who have so many entries each that no
// data structure could hold every single entry. RELIABILITY.md, Giveaways.
func TestDrawOfAHundredThousand(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	s.giveaway("a", drawing, 100, 100_000, func(i int) int64 { return 1<<33 + int64(i) })
	begin := time.Now()
	if err := Draw(context.Background(), s.DB, guild, "a"); err != nil {
		t.Fatal(err)
	}
	drawn := time.Since(begin)
	begin = time.Now()
	if err := s.reroll("a", order{count: 100, all: true, excluded: []string{user(1), user(2)}}); err != nil {
		t.Fatal(err)
	}
	t.Logf("drawn in %v, rerolled in %v", drawn, time.Since(begin))
	if g := s.get("a"); g.Rounds != 2 || len(distinct(g.Winners)) != 100 {
		t.Errorf("after %d rounds there are %d winners", g.Rounds, len(distinct(g.Winners)))
	}
	first := dbtest.Value[db.Strings](s.t, s.DB, `SELECT drawn FROM giveaway_draws WHERE round = 1`)
	for _, w := range s.get("a").Winners {
		if slices.Contains(first, w) || w == user(1) || w == user(2) {
			t.Errorf("user %s won again or was excluded", w)
		}
	}
}

func (s giveawayDB) reroll(id string, o order) error {
	return s.DB.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		g, err := lock(ctx, tx, guild, id)
		if err != nil {
			return err
		}
		if err := tx.TakeTime(ctx, drawTime); err != nil {
			return err
		}
		g, _, err = conduct(ctx, tx, g, o)
		if err != nil {
			return err
		}
		return event.Record(ctx, tx, event.System(guild).On(time.Now()), event.GiveawayRerolled, show(g))
	})
}

// An imported giveaway has winners but no records of draws. These winners count as past winners,
// also after they have been replaced.
func TestImportedWinnersNeverWinAgain(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	s.giveaway("a", ended, 2, 5, equal)
	dbtest.Exec(s.t, s.DB, `UPDATE giveaways SET winners = ARRAY[$1, $2]`, user(1), user(2))
	won := setOf(user(1), user(2))
	for range 3 {
		if err := s.reroll("a", order{count: 1, all: true}); err != nil {
			t.Fatal(err)
		}
		w := s.get("a").Winners[0]
		if won[w] {
			t.Fatalf("user %s won twice", w)
		}
		won[w] = true
	}
	if err := s.reroll("a", order{count: 1, all: true}); err == nil {
		t.Error("a winner was found among those who had all won before")
	}
}

func BenchmarkDraw(b *testing.B) {
	for _, size := range []int{100, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := newGiveawayDB(b)
			s.giveaway("a", drawing, 10, size, equal)
			for b.Loop() {
				b.StopTimer()
				dbtest.Exec(s.t, s.DB, `DELETE FROM giveaway_draws`)
				dbtest.Exec(s.t, s.DB, `UPDATE giveaways SET status = 'drawing', rounds = 0, winners = '{}'`)
				b.StartTimer()
				if err := Draw(context.Background(), s.DB, guild, "a"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

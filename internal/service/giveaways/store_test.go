package giveaways

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/lanes"
	"guildhall/internal/base/page"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/event"
)

const guild = "197038439483310086"

// giveawayDB is a database with one guild.
type giveawayDB struct {
	*dbtest.Database
	t testing.TB
}

func newGiveawayDB(t testing.TB) giveawayDB {
	t.Helper()
	s := giveawayDB{dbtest.New(t), t}
	dbtest.AddGuilds(s.t, s.DB, guild)
	dbtest.Listen(t, s.DB, guild, event.Types)
	return s
}

// giveaway stores a giveaway with `users` entrants, each with the number of entries that weight
// returns.
func (s giveawayDB) giveaway(id, status string, winnerCount, users int, weight func(int) int64) {
	s.t.Helper()
	dbtest.Exec(s.t, s.DB, `
		INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, starts_at, ends_at, redraw_at)
		VALUES ($1, $2, $3, 'A prize', $4, '381886868708655104', now() - interval '1 day', now() + interval '1 day',
		now() + interval '30 seconds')`,
		guild, id, status, winnerCount)
	const batch = 5000 // an import also writes batches of this size
	for i := 0; i < users; {
		end := min(i+batch, users)
		dbtest.Do(s.t, s.DB, func(ctx context.Context, tx *db.Tx) error {
			return db.Copy(ctx, tx, "giveaway_entries", []string{"guild_id", "giveaway_id", "user_id", "entries"}, func() ([]any, error) {
				if i == end {
					return nil, io.EOF
				}
				i++
				return []any{guild, id, user(i), weight(i)}, nil
			})
		})
	}
	dbtest.Exec(s.t, s.DB, Recount)
}

// Recount corrects the counters after a test has written entries.
const Recount = `
	UPDATE giveaways g
	SET entrant_count = e.entrants, entry_count = e.entries
	FROM (
		SELECT guild_id, giveaway_id, count(*) AS entrants, sum(entries) AS entries
		FROM giveaway_entries
		GROUP BY guild_id, giveaway_id
	) e
	WHERE g.guild_id = e.guild_id
	  AND g.id = e.giveaway_id
	  AND (g.entrant_count, g.entry_count) <> (e.entrants, e.entries)`

func user(i int) string { return strconv.Itoa(200_000_000_000_000_000 + i*7919) }

func equal(int) int64 { return 1 }

// stored returns the whole row of a giveaway.
func stored(t testing.TB, d *db.DB, id string) string {
	t.Helper()
	return dbtest.Value[string](t, d, `SELECT to_jsonb(g)::text FROM giveaways g WHERE id = $1`, id)
}

func (s giveawayDB) get(id string) row {
	s.t.Helper()
	g, err := get(context.Background(), s.DB.Reader(), guild, id)
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

// The statement that adds entries counts exactly the entries that it adds. RELIABILITY.md,
// Giveaways.
func TestCountersFollowTheEntries(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	s.giveaway("a", drawing, 1, 5, func(i int) int64 { return int64(i) })
	s.giveaway("b", drawing, 1, 0, nil)
	dbtest.Exec(s.t, s.DB, `UPDATE giveaways SET pot = 'gathering'`)
	for _, step := range []struct {
		name, of string
		members  []string
		a, b     [2]int64
	}{
		{"nobody", "a", nil, [2]int64{5, 15}, [2]int64{0, 0}},
		{"one entrant", "b", []string{"42"}, [2]int64{5, 15}, [2]int64{1, 1}},
		{"three more", "a", []string{"42", "43", "44"}, [2]int64{8, 18}, [2]int64{1, 1}},
		{"some who are there already", "a", []string{"44", user(1), user(5), "45"}, [2]int64{9, 19}, [2]int64{1, 1}},
		{"one twice", "b", []string{"43", "43"}, [2]int64{9, 19}, [2]int64{2, 2}},
	} {
		dbtest.Do(s.t, s.DB, func(ctx context.Context, tx *db.Tx) error {
			got, err := advance(ctx, tx, s.get(step.of), gathering, "1", step.members)
			if want := map[string][2]int64{"a": step.a, "b": step.b}[step.of]; err == nil &&
				(got.EntrantCount != want[0] || got.EntryCount != want[1]) {
				t.Errorf("%s: the statement returns %d and %d", step.name, got.EntrantCount, got.EntryCount)
			}
			return err
		})
		a, b := s.get("a"), s.get("b")
		got := [2][2]int64{{a.EntrantCount, a.EntryCount}, {b.EntrantCount, b.EntryCount}}
		if diff := cmp.Diff([2][2]int64{step.a, step.b}, got); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", step.name, diff)
		}
	}
	s.wantCounted()
}

// wantCounted fails the test unless each giveaway's counters match its entries.
func (s giveawayDB) wantCounted() {
	s.t.Helper()
	if n := dbtest.Value[int](s.t, s.DB, `
		SELECT count(*)
		FROM giveaways g
		WHERE (entrant_count, entry_count) <> (
			SELECT count(*), coalesce(sum(entries), 0) FROM giveaway_entries e WHERE e.guild_id = g.guild_id AND e.giveaway_id = g.id)`); n != 0 {
		s.t.Errorf("the counters of %d giveaways are wrong", n)
	}
}

func TestEntriesCannotOutgrowTheCounter(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	s.giveaway("a", drawing, 1, 1, func(int) int64 { return 9007199254740990 })
	dbtest.Exec(s.t, s.DB, `UPDATE giveaways SET pot = 'gathering'`)
	add := func(users ...string) error {
		return s.DB.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
			_, err := advance(ctx, tx, s.get("a"), gathering, "1", users)
			return err
		})
	}
	if err := add("42", "43"); !db.Violates(err, "giveaways_entry_count") {
		t.Errorf("an entry beyond the limit: %v", err)
	}
	if err := add("42"); err != nil {
		t.Errorf("an entry up to the limit: %v", err)
	}
	if g := s.get("a"); g.EntrantCount != 2 || g.EntryCount != 9007199254740991 {
		t.Errorf("the counters are %d and %d", g.EntrantCount, g.EntryCount)
	}
	s.wantCounted()
}

// A page costs as much as it shows, however much data the guild and other guilds have: each list
// reads an index in the list's order.
func TestListsReadThroughTheirIndexes(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	dbtest.Fill(t, s.DB, `INSERT INTO guilds (id, name, owner_id) SELECT i::text, 'Guild', '1' FROM generate_series(1, 20) i`, `
		INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, starts_at, ends_at, created_at)
		SELECT (1 + i % 20)::text, 'g' || i, (ARRAY['scheduled', 'active', 'paused', 'drawing', 'ended'])[1 + (i / 20) % 5], 'A prize', 1, '1',
		       now() + make_interval(mins => i), now() + make_interval(mins => i + 60), now() - make_interval(mins => i)
		FROM generate_series(1, 4000) i`)
	dbtest.Exec(s.t, s.DB, `
		INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id, entered_at)
		SELECT (1 + g % 20)::text, 'g' || g, (100 + u)::text, now() - make_interval(secs => u)
		FROM generate_series(1, 20) g, generate_series(1, 400) u`)
	dbtest.Exec(s.t, s.DB, `ANALYZE giveaways, giveaway_entries`)

	dbtest.WantIndex(t, s.DB, "giveaways_newest", newest, "2", 26, 0)
	for _, status := range []string{scheduled, active, "paused", drawing, ended} {
		dbtest.WantIndex(t, s.DB, "giveaways_by_status", newestOfStatus, "2", 26, 0, status)
	}
	dbtest.WantIndex(t, s.DB, "giveaway_entries_oldest", oldestEntries, "2", "g1", 26, 0)
	dbtest.WantIndex(t, s.DB, "giveaway_entries_pkey", entryOfUser, "2", "g1", 26, 0, "150")
	if plan := dbtest.Plan(t, s.DB, entered, "2", "150", 10, Recent); !strings.Contains(plan, " using giveaways_newest ") ||
		!strings.Contains(plan, " using giveaway_entries_pkey ") {
		t.Errorf("the giveaways of a member are not looked up one by one among the newest:\n%s", plan)
	}
	since := time.Now().Add(-time.Hour)
	dbtest.WantIndex(t, s.DB, "giveaways_changed", changed, "2", 26, 0, since)
	for _, status := range []string{scheduled, active, "paused", drawing, ended} {
		dbtest.WantIndex(t, s.DB, "giveaways_changed_by_status", changedOfStatus, "2", 26, 0, status, since)
	}
	// 3,800 giveaways of 19 other guilds have the value too.
	dbtest.Exec(s.t, s.DB, `UPDATE giveaways SET metadata = '{"shop":"all"}' WHERE guild_id <> '2' OR id IN ('g1', 'g21', 'g41')`)
	dbtest.Exec(s.t, s.DB, `ANALYZE giveaways`)
	for _, statement := range []string{foundNewest, foundChanged} {
		dbtest.WantFound(t, s.DB, "giveaways", "giveaways_metadata", 3, statement, "2", 26, 0, "shop", "all", "", nil)
	}
	// (The list of draws may also add up a giveaway's entries, for draws of the first release.)
	if plan := dbtest.Plan(t, s.DB, draws, "2", "g1", 26, 0); !strings.Contains(plan, " using giveaway_draws_pkey ") ||
		strings.Contains(plan, "Sort") {
		t.Errorf("draws are not listed through their key:\n%s", plan)
	}
	dbtest.WantIndex(t, s.DB, "giveaway_entries_pkey", entriesToUpdate, "2", db.Array([]string{"g1", "g2"}), db.Array([]string{"150", "151"}))
	dbtest.WantIndex(t, s.DB, "giveaway_draws_pkey", drawsOf, "2", db.Array([]string{"g1", "g2"}))
	dbtest.WantIndex(t, s.DB, "giveaways_starting", startDue, look)
	dbtest.WantIndex(t, s.DB, "giveaways_ending", finishDue, look)
}

// Polling for work reads a partial index guild by guild: it costs as much as the work that it
// finds.
func TestWorkIsLookedForThroughIndexes(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	dbtest.Fill(t, s.DB, `INSERT INTO guilds (id, name, owner_id) SELECT i::text, 'Guild', '1' FROM generate_series(1, 200) i`, `
		INSERT INTO giveaways (guild_id, id, status, pot, prize, winner_count, channel_id, starts_at, ends_at, react_at, edit_at, redraw_at)
		SELECT (1 + i % 200)::text, 'g' || i, CASE WHEN i % 10 = 0 THEN 'drawing' ELSE 'ended' END,
		       CASE WHEN i % 20 = 0 THEN 'gathering' ELSE 'frozen' END, 'A prize', 1, '1', now(), now() + interval '1 hour',
		       CASE WHEN i % 10 = 5 THEN now() END, CASE WHEN i % 10 = 6 THEN now() END, now() - interval '1 minute'
		FROM generate_series(1, 20000) i`)
	dbtest.Exec(s.t, s.DB, `ANALYZE giveaways`)
	for index, queue := range map[string]lanes.Queue{
		"giveaways_to_draw": toDraw, "giveaways_to_gather": toGather, "giveaways_to_react": toReact, "giveaways_to_edit": toEdit,
	} {
		statement, reads := queue.Scan(false), 2
		if dbtest.Coordinator(t) { // Citus workers may prefer another index on giveaways
			statement, reads, index = queue.Scan(true), 1, "Index Scan"
		}
		plan := dbtest.Plan(t, s.DB, statement, "", 500, 4)
		if strings.Count(plan, index) < reads || strings.Contains(plan, "Seq Scan") {
			t.Errorf("the look does not go through %s:\n%s", index, plan)
		}
	}
}

func TestEntriesEndWithTheirGiveaway(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	s.giveaway("a", active, 1, 30, equal)
	for _, c := range []struct{ number, size, want int }{
		{1, 25, 25}, {2, 25, 5}, {3, 25, 0}, {1, 30, 30}, {2, 30, 0}, {100_000, 100, 0},
	} {
		p := page.Of(c.number, c.size)
		rows, err := entries(context.Background(), s.DB.Reader(), s.get("a"), nil, p)
		if err != nil {
			t.Fatal(err)
		}
		rows, more := page.Cut(rows, p)
		if wantMore := c.number*c.size < 30; len(rows) != c.want || more != wantMore {
			t.Errorf("page %d of %d has %d rows, more %t; want %d, %t", c.number, c.size, len(rows), more, c.want, wantMore)
		}
	}
}

func TestTransitions(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	cases := []struct {
		name, status, source string // as SQL: the source, whether the bot runs it, its message
		starts, ends         time.Duration
		// want is the resulting status and, for drawing, the state of entries, when it is drawn, whether its message is edited.
		want string
	}{
		{"starts what is due", scheduled, `'bot', false, NULL`, -time.Second, time.Hour, active},
		{"leaves what is not due", scheduled, `'bot', false, NULL`, time.Hour, 2 * time.Hour, scheduled},
		{"starts and ends what was due while nobody swept", scheduled, `'bot', false, '9'`, -2 * time.Hour, -time.Hour, "drawing frozen 0 f"},
		{"ends what is over", active, `'api', false, '9'`, -2 * time.Hour, -time.Second, "drawing gathering 0 t"},
		{"ends what no message shows", active, `'api', false, NULL`, -2 * time.Hour, -time.Second, "drawing gathering 0 f"},
		{"leaves the bot its minute", active, `'bot', true, '9'`, -2 * time.Hour, -time.Second, "drawing open 60 f"},
		{"lets the others run", active, `'bot', false, NULL`, -2 * time.Hour, time.Hour, active},
		{"never ends a paused one", "paused", `'bot', false, NULL`, -2 * time.Hour, -time.Hour, "paused"},
		{"leaves ended ones alone", ended, `'bot', false, NULL`, -2 * time.Hour, -time.Hour, ended},
	}
	for _, c := range cases {
		s.giveaway(c.name, c.status, 2, 3, equal)
		dbtest.Exec(s.t, s.DB, `
			UPDATE giveaways
			SET starts_at = now() + make_interval(secs => $2), ends_at = now() + make_interval(secs => $3),
			    (source, bot_run, message_id) = ROW (`+c.source+`)
			WHERE id = $1`,
			c.name, c.starts.Seconds(), c.ends.Seconds())
	}
	for range 2 { // a second sweep finds nothing to do
		if err := Transitions(context.Background(), s.DB); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			is := dbtest.Value[string](t, s.DB, `
				SELECT concat_ws(' ', status, CASE WHEN status = 'drawing' THEN
				       concat_ws(' ', pot, extract(epoch FROM redraw_at - drawing_at)::int, left((edit_at IS NOT NULL)::text, 1)) END)
				FROM giveaways
				WHERE id = $1`, c.name)
			if is != c.want {
				t.Errorf("it is %s, want %s", is, c.want)
			}
		})
	}
	if n := dbtest.Value[int](s.t, s.DB, `SELECT count(*) FROM webhook_events WHERE type = 'giveaway.started'`); n != 2 {
		t.Errorf("%d giveaways were told to have started, want 2", n)
	}
}

func TestTransitionsGetThroughABacklog(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	const n = 2*chunk + 1
	dbtest.Exec(s.t, s.DB, fmt.Sprintf(`
		INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, starts_at, ends_at)
		SELECT '%s', 'g' || i, 'scheduled', 'A prize', 1, '1', now() - interval '2 hours', now() - interval '1 hour'
		FROM generate_series(1, %d) i`, guild, n))
	if err := Transitions(context.Background(), s.DB); err != nil {
		t.Fatal(err)
	}
	if got := dbtest.Value[int](s.t, s.DB, `SELECT count(*) FROM giveaways WHERE status = 'drawing'`); got != n {
		t.Errorf("%d of %d are in drawing", got, n)
	}
}

// The entries of a giveaway never change once it is being drawn: the statement that adds entries
// names the only state in which it may add any. (The rules in package dbtest make sure that no
// statement changes or deletes entries.) RELIABILITY.md, Giveaways.
func TestEntriesAreFrozenWhenDrawingBegins(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	s.giveaway("a", active, 1, 3, equal)
	refused := func(when string) {
		t.Helper()
		err := s.DB.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
			_, err := advance(ctx, tx, s.get("a"), gathering, "9", []string{"1", "2"})
			return err
		})
		if !db.Missing(err) {
			t.Errorf("while it is %s: %v", when, err)
		}
		if n := dbtest.Value[int](s.t, s.DB, `SELECT count(*) FROM giveaway_entries`); n != 3 {
			t.Errorf("while it is %s there are %d entrants", when, n)
		}
	}
	refused(active)
	dbtest.Exec(s.t, s.DB, `UPDATE giveaways SET ends_at = now() WHERE id = 'a'`)
	if err := Transitions(context.Background(), s.DB); err != nil {
		t.Fatal(err)
	}
	for _, status := range []string{drawing, ended} {
		refused(status)
		if err := Draw(context.Background(), s.DB, guild, "a"); err != nil {
			t.Fatal(err)
		}
		if g := s.get("a"); g.EntrantCount != 3 || g.EntryCount != 3 {
			t.Errorf("there are %d entrants with %d entries", g.EntrantCount, g.EntryCount)
		}
	}
	s.wantRepeatable("a")
	s.wantCounted()
}

// A resume uses the giveaway's state after it has got the lock, not the state when it began to
// wait.
func TestAResumeGoesByTheGiveawayThatItHolds(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	s.giveaway("g", active, 1, 0, nil)
	dbtest.Exec(t, s.DB, `
		UPDATE giveaways
		SET status = 'paused', paused_at = now() - interval '1 hour'
		WHERE guild_id = $1 AND id = 'g'`, guild)
	ended := s.get("g").EndsAt
	resumed := make(chan error, 1)
	dbtest.Do(s.t, s.DB, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `
			UPDATE giveaways SET `+dbtest.Earlier(`interval '-1 day'`, "ends_at")+`
			WHERE guild_id = $1 AND id = 'g'`, guild)
		if err != nil {
			return err
		}
		go func() {
			resumed <- s.DB.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
				_, err := move(ctx, tx, toActive, guild, "g", fault.New(fault.Refused, "giveaway_not_paused", "it cannot be resumed."))
				return err
			})
		}()
		testutil.Eventually(t, "the resume waits for the giveaway", func() bool {
			return dbtest.Waiting(t, s.DB) > 0
		})
		return nil
	})
	if err := <-resumed; err != nil {
		t.Fatal(err)
	}
	if later := s.get("g").EndsAt.Time.Sub(ended.Time); later < 25*time.Hour {
		t.Errorf("the giveaway ends %s later, want a day and the hour for which it was paused", later)
	}
}

// The statements that poll for work and postpone it can be planned, also in their distributed form.
// With -v the test prints them.
func TestTheWorkersStatementsArePlanned(t *testing.T) {
	t.Parallel()
	texts := map[string]string{
		"postponed":               toDraw.Postpone(),
		"edits postponed":         toEdit.Postpone(),
		"announcements postponed": chat.Announcements.Postpone(),
	}
	for name, q := range map[string]lanes.Queue{
		"draws": toDraw, "gathering": toGather, "reactions": toReact, "edits": toEdit, "announcements": chat.Announcements,
	} {
		texts[name+", stepping"], texts[name+", all that is due"] = q.Scan(false), q.Scan(true)
	}
	dbtest.WantPlanned(t, dbtest.New(t).DB, texts)
}

// botWindow equals the time that the statement `closes` adds.
func TestTheBotsWindowIsWhatClosesAdds(t *testing.T) {
	t.Parallel()
	if adds := fmt.Sprintf("interval '%d seconds'", int(botWindow.Seconds())); !strings.Contains(closes, adds) {
		t.Errorf("closes does not add %s: %s", adds, closes)
	}
}

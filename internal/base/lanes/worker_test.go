package lanes

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// Two queues of giveaways: giveaways to draw, and giveaways whose reactions are read.
var (
	draws     = Queue{Table: "giveaways", At: "redraw_at", Failures: "failures", Condition: `status = 'drawing' AND pot <> 'gathering'`}
	gathering = Queue{Table: "giveaways", At: "redraw_at", Failures: "failures", Condition: `status = 'drawing' AND pot = 'gathering'`}
)

// The giveaways of five guilds: a has one that is in neither queue; b has two due draws, one draw
// that is not due and one giveaway whose reactions are read; c has one that is not due; d has one
// that is due but d is being removed; e has one that is due.
const waiting = `
	INSERT INTO giveaways (guild_id, id, status, pot, prize, winner_count, channel_id, starts_at, ends_at, redraw_at)
	SELECT guild, guild || n, status, pot, 'A prize', 1, '1', now() - interval '2 hours', now() - interval '1 hour',
	       now() + due * interval '1 minute'
	FROM (VALUES
		('a', 1, 'active', 'open', -9),
		('b', 3, 'drawing', 'open', -1), ('b', 2, 'drawing', 'frozen', -2), ('b', 1, 'drawing', 'frozen', -3),
		('b', 4, 'drawing', 'open', 9), ('b', 5, 'drawing', 'gathering', -9), ('b', 6, 'ended', 'frozen', -9),
		('c', 1, 'drawing', 'open', 9), ('d', 1, 'drawing', 'open', -9), ('e', 1, 'drawing', 'open', -1), ('f', 1, 'ended', 'frozen', -9)
	) AS g (guild, n, status, pot, due)`

// Both forms of the scan find due rows guild by guild. The form that jumps from guild to guild also
// returns guilds without due rows.
func TestAScanFindsWhatIsDue(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "a", "b", "c", "d", "e", "f")
	dbtest.Exec(t, d, waiting)
	dbtest.Exec(t, d, `UPDATE guilds SET removed_at = now(), removed_after = now() WHERE id = 'd'`)
	for name, c := range map[string]struct {
		statement string
		after     string
		guilds    int
		want      string
	}{
		"all":                     {draws.Scan(false), "", 10, "b:b1 b:b2 c: d: e:e1"},
		"after a guild":           {draws.Scan(false), "b", 10, "c: d: e:e1"},
		"two guilds":              {draws.Scan(false), "", 2, "b:b1 b:b2 c:"},
		"reactions":               {gathering.Scan(false), "", 10, "b:b5"},
		"all, distributed":        {draws.Scan(true), "", 10, "b:b1 b:b2 e:e1"},
		"after one, distributed":  {draws.Scan(true), "b", 10, "e:e1"},
		"reactions, distributed":  {gathering.Scan(true), "", 10, "b:b5"},
		"nothing, after the last": {draws.Scan(false), "e", 10, ""},
	} {
		found, err := db.Select[db.Found](t.Context(), d.Reader(), c.statement, c.after, c.guilds, 2)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range found {
			got = append(got, f.GuildID+":"+f.ID)
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: found %q, want %q", name, got, c.want)
		}
	}
}

// A poll continues past guilds without due rows, however many they are, and queues no row that is
// already worked on.
func TestGuildsInWhichNothingIsDueHideNobody(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `
		INSERT INTO guilds (id, name, owner_id)
		SELECT lpad(n::text, 5, '0'), 'x', '1' FROM generate_series(1, 2 * `+strconv.Itoa(guildsPerScan)+` + 5) n`, `
		INSERT INTO giveaways (guild_id, id, status, pot, prize, winner_count, channel_id, starts_at, ends_at, redraw_at)
		SELECT id, id, 'drawing', 'frozen', 'A prize', 1, '1', now() - interval '2 hours', now() - interval '1 hour',
		       now() + CASE WHEN id > '01003' THEN -1 ELSE 9 END * interval '1 minute'
		FROM guilds`)
	w := &Worker{DB: d, Log: slog.New(slog.DiscardHandler)}
	s := w.shift(Lane{Queue: draws, Slots: 4})
	s.running[db.Found{GuildID: "01004", ID: "01004"}] = true
	for _, c := range []struct{ begins, ends string }{{"", ""}, {"", ""}, {"00700", "00700"}, {"01005", ""}, {"99999", ""}} {
		s.after = c.begins
		s.poll(t.Context())
		if want := []db.Found{{GuildID: "01005", ID: "01005"}}; !slices.Equal(s.queue, want) || s.after != c.ends {
			t.Errorf("after %q %v are found, want %v; the next poll begins after %q, want %q", c.begins, s.queue, want, s.after, c.ends)
		}
	}
}

// While the database is down, the log mentions failing polls once in ten seconds, not at each poll.
func TestAPollThatFailsIsLoggedNowAndThen(t *testing.T) {
	t.Parallel()
	link := dbtest.NewLink(t, dbtest.New(t).URL)
	far := dbtest.Open(t, link.URL).DB
	link.Down()
	var log testutil.Log
	s := (&Worker{DB: far, Log: slog.New(slog.NewTextHandler(&log, nil))}).shift(Lane{Kind: "draw", Queue: draws, Slots: 4})
	for range 5 {
		s.poll(t.Context())
	}
	if n := strings.Count(log.String(), "polling for jobs failed"); n != 1 {
		t.Errorf("in five polls the log hears of the outage %d times, want 1:\n%s", n, log.String())
	}
}

// A guild has at most an eighth of the slots while other guilds wait, and half of them when it
// waits alone. All guilds together have no more than the lane's slots. Work that ends frees its
// slot.
func TestAGuildHasItsShareOfTheSlots(t *testing.T) {
	t.Parallel()
	of := func(guild string, n int) (list []db.Found) {
		for i := range n {
			list = append(list, db.Found{GuildID: guild, ID: strconv.Itoa(i)})
		}
		return list
	}
	many := of("a", 3)
	for i := range 20 {
		many = append(many, of(strconv.Itoa(i), 3)...)
	}
	for name, c := range map[string]struct {
		queue []db.Found
		a, b  int // slots expected for guilds a and b
		all   int
	}{
		"beside another": {append(of("a", 20), of("b", 3)...), 8, 3, 11},
		"found twice":    {append(of("a", 1), of("a", 1)...), 1, 0, 1},
		"one of many":    {many, 2, 0, 16},
	} {
		wait := make(chan struct{})
		work := func(context.Context, string, string) error { <-wait; return nil }
		w := &Worker{DB: new(db.DB), Outcomes: NewOutcomes(nil, "outcomes", "")}
		s := w.shift(Lane{Kind: "x", Slots: 16, Do: work})
		s.queue = c.queue
		s.begin(t.Context())
		if a, b, all := s.used["a"], s.used["b"], len(s.running); a != c.a || b != c.b || all != c.all {
			t.Errorf("%s: a has %d slots, b %d, all %d", name, a, b, all)
		}
		close(wait)
		for len(s.running) > 0 {
			r := <-s.finished
			before := s.used[r.GuildID]
			if s.end(r); s.used[r.GuildID] != before-1 {
				t.Errorf("%s: of %d slots %d are left", name, before, s.used[r.GuildID])
			}
		}
		if len(s.used) != 0 {
			t.Errorf("%s: at the end %v have slots", name, s.used)
		}
	}
}

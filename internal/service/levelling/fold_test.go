package levelling

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
)

// counting gives guilds that count weeks and months, with members who have 1,000 XP.
func counting(t testing.TB, d *db.DB, members int, guilds ...string) {
	t.Helper()
	dbtest.AddGuilds(t, d, guilds...)
	for _, guild := range guilds {
		dbtest.Exec(t, d, `INSERT INTO guild_settings (guild_id, xp_periods, timezone) VALUES ($1, true, 'Europe/Berlin')`, guild)
		dbtest.Exec(t, d, `INSERT INTO levels (guild_id, user_id, total_xp)
			SELECT $1, n::text, 1000 FROM generate_series(1, $2::int) n`, guild, members)
	}
}

// sums are the sums of a guild as "member kind xp", the members in order.
func sums(t testing.TB, d *db.DB, guild string) string {
	t.Helper()
	return dbtest.Value[string](t, d, `
		SELECT coalesce(string_agg(concat_ws(' ', user_id, kind, xp), ', ' ORDER BY user_id, kind, starts), '')
		FROM xp_periods WHERE guild_id = $1`, guild)
}

func fold(t testing.TB, d *db.DB) {
	t.Helper()
	if err := FoldMoves(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// Changes by a delta count, in a batch, alone and many at once; what is set does not, nor does
// anything in a guild that does not count.
func TestDeltasCountAndSetsDoNot(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	counting(t, d, 3, "1")
	dbtest.AddGuilds(t, d, "2")
	dbtest.Exec(t, d, `INSERT INTO guild_settings (guild_id) VALUES ('2')`)
	dbtest.Exec(t, d, `INSERT INTO levels (guild_id, user_id, total_xp) VALUES ('2', '1', 5)`)
	changed := func(guild, user string, xp int64, exactly bool) *change {
		return &change{Change: batch.Change{By: event.System(guild)}, user: user, xp: xp, exactly: exactly}
	}
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		return adjustEach(ctx, tx, []*change{
			changed("1", "1", 7, false), changed("1", "2", 2000, true), changed("1", "3", 0, false), changed("2", "1", 9, false),
		})
	})
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		return adjustAll(ctx, tx, []*change{
			changed("1", "1", -2, false), changed("1", "1", 5000, true), changed("1", "1", 3, false),
			changed("1", "4", 11, false), changed("1", "5", 8, true),
		}, func(_ int, err error) error { return err })
	})
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		return adjustAll(ctx, tx, []*change{changed("2", "1", 1, false)}, func(_ int, err error) error { return err })
	})
	if got := dbtest.Value[string](t, d, `
		SELECT string_agg(concat_ws(' ', guild_id, users, deltas, timezone), ', ' ORDER BY users) FROM xp_moves`); got !=
		"1 {1} {7} Europe/Berlin, 1 {1,4} {1,11} Europe/Berlin" {
		t.Errorf("these moves wait: %s", got)
	}
	fold(t, d)
	if got := sums(t, d, "1"); got != "1 month 8, 1 week 8, 4 month 11, 4 week 11" {
		t.Errorf("the sums are %s", got)
	}
	if n := dbtest.Value[int](t, d, `SELECT count(*) FROM xp_moves`); n != 0 {
		t.Errorf("%d moves are left", n)
	}
}

// A move counts in the week and month of the zone that the guild had at that moment; another
// zone moves nothing.
func TestAMoveCountsInTheZoneOfItsMoment(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	counting(t, d, 1, "1")
	add := func(at, zone string, xp int) {
		dbtest.Exec(t, d, `INSERT INTO xp_moves (guild_id, at, timezone, users, deltas)
			VALUES ('1', $1, $2, '{7}', ARRAY[$3::bigint])`, at, zone, xp)
	}
	add("2026-05-31T22:30:00Z", "Europe/Berlin", 1) // Monday 1 June there
	add("2026-05-31T22:30:00Z", "UTC", 10)          // Sunday 31 May
	add("2026-05-31T22:30:00Z", "Mars/Olympus", 100)
	add("2027-01-01T10:30:00Z", "Pacific/Kiritimati", 1000) // Saturday 2 January there, in the last week of 2026
	fold(t, d)
	got := dbtest.Value[string](t, d, `
		SELECT string_agg(concat_ws(' ', kind, starts, xp, kept_until), ', ' ORDER BY kind, starts) FROM xp_periods`)
	if want := "month 2026-05-01 110 2027-09-01, month 2026-06-01 1 2027-10-01, month 2027-01-01 1000 2028-05-01, " +
		"week 2026-05-25 110 2027-07-26, week 2026-06-01 1 2027-08-02, week 2026-12-28 1000 2028-02-28"; got != want {
		t.Errorf("the sums are\n%s, want\n%s", got, want)
	}
}

// Whatever is gained while two nodes add up, each sum is that of the deltas.
// RELIABILITY.md, Writes.
func TestSumsAreThoseOfTheDeltas(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	counting(t, d, 20, "1", "2", "3")
	var lock sync.Mutex
	want := map[string]int64{}
	var writers, folders sync.WaitGroup
	for range 6 {
		writers.Go(func() {
			for range 60 {
				guild, user, delta := fmt.Sprint(1+rand.IntN(3)), fmt.Sprint(1+rand.IntN(20)), rand.Int64N(9)-4
				c := &change{Change: batch.Change{By: event.System(guild)}, user: user, xp: delta}
				err := d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
					return adjustAlone(ctx, tx, c)
				})
				if err != nil {
					t.Error(err)
					return
				}
				lock.Lock()
				want[guild+" "+user] += delta
				lock.Unlock()
			}
		})
	}
	done := make(chan struct{})
	for range 2 {
		folders.Go(func() {
			for {
				if err := FoldMoves(context.Background(), d); err != nil {
					t.Error(err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	writers.Wait()
	close(done)
	folders.Wait()
	fold(t, d)
	rows, err := db.Select[struct {
		Member string `db:"member"`
		XP     int64  `db:"xp"`
	}](t.Context(), d.Reader(), `
		SELECT guild_id || ' ' || user_id AS member, sum(xp)::bigint AS xp FROM xp_periods WHERE kind = 'week' GROUP BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if want[r.Member] != r.XP {
			t.Errorf("member %s has gained %d, want %d", r.Member, r.XP, want[r.Member])
		}
		delete(want, r.Member)
	}
	for member, xp := range want {
		if xp != 0 {
			t.Errorf("member %s has gained %d, and has no sum", member, xp)
		}
	}
}

// A sum ends at the limit of XP, which setting XP again and again would pass.
func TestASumStaysWithinItsLimit(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	counting(t, d, 1, "1")
	for _, sign := range []int64{1, 1, -1, -1, -1, -1} {
		for range 2 {
			dbtest.Exec(t, d, `INSERT INTO xp_moves (guild_id, at, timezone, users, deltas)
				VALUES ('1', now(), 'UTC', '{7}', ARRAY[$1::bigint])`, sign*MaxXP)
		}
		fold(t, d)
	}
	if got := sums(t, d, "1"); got != fmt.Sprintf("7 month %d, 7 week %[1]d", -MaxXP) {
		t.Errorf("the sums are %s", got)
	}
	if !strings.Contains(addToPeriods, fmt.Sprintf("greatest(xp_periods.xp + excluded.xp, -%d), %[1]d)", MaxXP)) {
		t.Error("another most")
	}
}

// More moves than a transaction takes, and the moves of a guild that was deleted, go in one run.
func TestAFoldLeavesNothing(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	counting(t, d, 1, "1")
	dbtest.Exec(t, d, `
		INSERT INTO xp_moves (guild_id, at, timezone, users, deltas)
		SELECT '1', now(), 'UTC', ARRAY[(n % 50)::text, '77'], '{1,1}' FROM generate_series(1, $1::int) n`, 2*foldRows+50)
	dbtest.Exec(t, d, `
		INSERT INTO xp_moves (guild_id, at, timezone, users, deltas)
		SELECT 'g' || n, now(), 'UTC', '{1}', '{1}' FROM generate_series(1, $1::int) n`, 2*foldGuilds+1)
	fold(t, d)
	if n := dbtest.Value[int](t, d, `SELECT count(*) FROM xp_moves`); n != 0 {
		t.Errorf("%d moves are left", n)
	}
	if n := dbtest.Value[int](t, d, `SELECT sum(xp) FROM xp_periods WHERE kind = 'week'`); n != 2*(2*foldRows+50) {
		t.Errorf("%d of %d moves are counted", n, 2*(2*foldRows+50))
	}
}

// Sums go 60 weeks and 15 months after the end of their period, and no sooner.
func TestSumsExpire(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	counting(t, d, 1, "1")
	now := dbtest.Value[time.Time](t, d, `SELECT now()`).UTC()
	add := func(user string, p period) {
		dbtest.Exec(t, d, `INSERT INTO xp_periods (guild_id, user_id, kind, starts, xp, kept_until) VALUES ('1', $1, $2, $3, 1, $4)`,
			user, p.kind, p.start, p.keptUntil())
	}
	add("1", periodOf(week, dayOf(now.AddDate(0, 0, -60*7), time.UTC)))
	add("2", periodOf(week, dayOf(now.AddDate(0, 0, -62*7), time.UTC)))
	first := dayOf(now, time.UTC).AddDate(0, 0, 1-now.Day())
	add("1", periodOf(month, first.AddDate(0, -15, 0)))
	add("2", periodOf(month, first.AddDate(0, -17, 0)))
	if n, err := db.PruneOf(t.Context(), d, Expired()[0], 100); err != nil || n != 2 {
		t.Errorf("%d sums were deleted: %v", n, err)
	}
	if got := sums(t, d, "1"); got != "1 month 1, 1 week 1" {
		t.Errorf("left are %s", got)
	}
}

// Each statement of weeks and months is served from an index, and a page of a period from the
// index alone, in its order.
func TestPeriodsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2")
	dbtest.Fill(t, d, `
		INSERT INTO xp_periods (guild_id, user_id, kind, starts, xp, kept_until)
		SELECT guild, n::text, kind, '2026-06-01', (n * 7919) % 5000 - 50, '2028-01-01'
		FROM (VALUES ('1'), ('2')) AS g (guild), (VALUES ('week'), ('month')) AS k (kind), generate_series(1, 3000) n`,
		`INSERT INTO xp_moves (guild_id, at, timezone, users, deltas)
		SELECT guild, now(), 'UTC', ARRAY[n::text], '{1}' FROM (VALUES ('1'), ('2')) AS g (guild), generate_series(1, 1000) n`,
		`INSERT INTO guild_settings (guild_id, xp_periods) VALUES ('1', true), ('2', true)`,
		`INSERT INTO guilds (id, name, owner_id) SELECT 'g' || n, 'g', '1' FROM generate_series(1, 1000) n`,
		`INSERT INTO guild_settings (guild_id) SELECT 'g' || n FROM generate_series(1, 1000) n`)
	dbtest.Fill(t, d, `ANALYZE xp_periods, xp_moves, guild_settings`)
	for _, present := range []bool{false, true} {
		seen := &noted{Querier: d.Reader()}
		if _, err := gainsOf(present).Page(t.Context(), seen, "1", page.Of(1, 25), week, "2026-06-01"); err != nil {
			t.Fatal(err)
		}
		dbtest.WantIndex(t, d, "xp_periods_ranked", seen.query, seen.args...)
		if plan := dbtest.Plan(t, d, seen.query, seen.args...); strings.Contains(plan, "Sort Key") {
			t.Errorf("a page is sorted:\n%s", plan)
		}
		if _, err := gainsOf(present).Rank(t.Context(), seen, "1", "0", week, "2026-06-01"); !fault.Is(err, "not_found") {
			t.Fatal(err)
		}
		dbtest.WantIndex(t, d, "xp_periods_ranked", seen.query, seen.args...)
		dbtest.WantIndex(t, d, "xp_periods_pkey", seen.query, seen.args...)
	}
	dbtest.WantIndex(t, d, "xp_moves_guild", takeMoves, "1", foldRows)
	dbtest.WantIndex(t, d, "xp_moves_guild", guildsWithMoves, "", foldGuilds)
	rise := []*change{rising("2", "", 1)}
	dbtest.WantIndex(t, d, "guild_settings_xp_periods", adjustBatch.For(0), append(batch.Columns(rise), ownColumns(rise)...)...)
}

// noted keeps the last statement that was run through it.
type noted struct {
	db.Querier
	query string
	args  []any
}

func (n *noted) SelectContext(ctx context.Context, dest any, query string, args ...any) error {
	n.query, n.args = query, args
	return n.Querier.SelectContext(ctx, dest, query, args...)
}

func (n *noted) GetContext(ctx context.Context, dest any, query string, args ...any) error {
	n.query, n.args = query, args
	return n.Querier.GetContext(ctx, dest, query, args...)
}

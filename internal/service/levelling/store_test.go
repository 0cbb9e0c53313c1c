package levelling

import (
	"context"
	"slices"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

func TestReadsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2")
	dbtest.Fill(t, d, `
		INSERT INTO levels (guild_id, user_id, total_xp)
		SELECT guild, (100000 + n)::text, (n::bigint * 7919) % 50000
		FROM (VALUES ('1', 50000), ('2', 30000)) AS g (guild, total), generate_series(1, total) AS n`)
	dbtest.Fill(t, d, `ANALYZE levels`)
	dbtest.WantIndex(t, d, "levels_pkey", levelOfMember, "1", "100007")
	dbtest.WantIndex(t, d, "levels_pkey", manyHeld, "1", db.Array([]string{"100007", "100008"}))
	five := db.Integers([]int64{5, 5})
	dbtest.WantIndex(t, d, "levels_pkey", manyWritten.For(0), "1", db.Array([]string{"100007", "100008"}), db.Booleans([]bool{true, false}),
		five, five, five, db.Array([]string{"2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"}), five)
}

// TestTiesStandInNumericOrder checks the order of members with equal XP: 9 before 10, the reverse
// of the order of texts.
func TestTiesStandInNumericOrder(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2")
	dbtest.Fill(t, d, `
		INSERT INTO levels (guild_id, user_id, total_xp) VALUES
		('1', '10', 5), ('1', '9', 5), ('1', '100', 6), ('1', '99999999999999999999', 5), ('1', '18446744073709551616', 5),
		('1', '2', 0), ('2', '1', 1000)`)
	want := []string{"100", "9", "10", "18446744073709551616", "99999999999999999999", "2"}
	for size := 1; size <= len(want)+1; size++ {
		var got []string
		for number := 1; ; number++ {
			p := page.Of(number, size)
			rows, err := leaderboard.Levels.Page(ctx, d.Reader(), "1", p, false)
			if err != nil {
				t.Fatal(err)
			}
			rows, more := page.Cut(rows, p)
			for _, r := range rows {
				got = append(got, r.UserID)
			}
			if !more {
				break
			}
		}
		if len(got) != len(want) {
			t.Fatalf("pages of %d: %v, want %v", size, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("pages of %d: %v, want %v", size, got, want)
			}
		}
	}
}

// TestAdjustmentsSeeEachOther makes many concurrent adjustments of one member and sorts their
// responses: the value before each adjustment is the value after another one, and the instants have
// the same order. RELIABILITY.md, Operation.
func TestAdjustmentsSeeEachOther(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	const n = 60
	type step struct {
		before, after int64
		at            time.Time
	}
	steps, errs := make(chan step, n), make(chan error, n)
	for i := range n {
		go func() {
			errs <- d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
				c := &change{Change: batch.Change{By: event.System("1")}, user: "7", xp: int64(i)<<10 + 1}
				if i%3 == 0 {
					// Absolute values that no sum of the other changes can reach.
					c.xp, c.exactly = int64(i+1)<<20, true
				}
				err := adjustAlone(ctx, tx, c)
				if r := c.row; err == nil {
					steps <- step{r.PreviousXP, r.TotalXP, r.UpdatedAt.Truncate(time.Millisecond)}
				}
				return err
			})
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	close(steps)
	next := map[int64]step{}
	for s := range steps {
		if _, taken := next[s.before]; taken {
			t.Fatalf("two adjustments both found %d XP", s.before)
		}
		next[s.before] = s
	}
	var last step
	count := 0
	for ; count < n; count++ {
		s, ok := next[last.after]
		if !ok {
			break
		}
		if !s.at.After(last.at) {
			t.Errorf("the adjustment to %d at %s follows one at %s", s.after, s.at, last.at)
		}
		last = s
	}
	r, err := get(ctx, d.Reader(), "1", "7")
	if err != nil {
		t.Fatal(err)
	}
	if count != n || r.TotalXP != last.after {
		t.Errorf("the chain of %d adjustments ends after %d at %d XP; stored are %d", n, count, last.after, r.TotalXP)
	}
}

// TestTheLastXPIsSpentOnce makes more concurrent deductions than the member has XP for.
// RELIABILITY.md, Writes.
func TestTheLastXPIsSpentOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	dbtest.Fill(t, d,
		`INSERT INTO levels (guild_id, user_id, total_xp) VALUES ('1', '7', 95)`)
	errs := make(chan error)
	const n = 40
	for range n {
		go func() {
			errs <- d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
				return adjustAlone(ctx, tx, &change{Change: batch.Change{By: event.System("1")}, user: "7", xp: -10})
			})
		}()
	}
	var done int
	for range n {
		switch err := <-errs; {
		case err == nil:
			done++
		case !fault.Is(err, "xp_would_be_negative"):
			t.Error(err)
		}
	}
	r, err := get(ctx, d.Reader(), "1", "7")
	if err != nil {
		t.Fatal(err)
	}
	if done != 9 || r.TotalXP != 5 {
		t.Errorf("%d losses went through and %d XP are left, want 9 and 5", done, r.TotalXP)
	}
}

// An adjustment records these moves for the rank index of the leaderboard: one for a new member,
// one for a change, and none if the XP stays the same.
func TestAnAdjustmentNotesWhereTheMemberWent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2")
	dbtest.Fill(t, d,
		`INSERT INTO rank_indexes (guild_id, board, version, state) VALUES ('1', 'levels', 5, 'live'), ('1', 'wallets', 6, 'live')`)
	for _, c := range []struct {
		guild   string
		xp      int64
		exactly bool
	}{{"1", 10, false}, {"1", 5, false}, {"1", 15, true}, {"1", 3, true}, {"2", 7, false}} {
		if err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			return adjustAlone(ctx, tx,
				&change{Change: batch.Change{By: event.System(c.guild)}, user: "7", xp: c.xp, exactly: c.exactly})
		}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	if err := d.Reader().SelectContext(ctx, &got, `
		SELECT concat_ws(' ', guild_id, board, version, user_id, coalesce(was::text, 'none'), is_now) FROM rank_moves
		ORDER BY is_now DESC`); err != nil {
		t.Fatal(err)
	}
	if want := []string{"1 levels 5 7 -15 -3", "1 levels 5 7 none -10", "1 levels 5 7 -10 -15"}; !slices.Equal(got, want) {
		t.Errorf("noted are %q, want %q", got, want)
	}
}

package leaderboard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/service/leaderboard"
)

// gone makes every second member of guild $1 leave, in one of several ways, and the others present
// in another way: back again, recorded without a departure, or not recorded.
const gone = `
	INSERT INTO members (guild_id, user_id, joined_at, left_at)
	SELECT $1, n::text, CASE n % 10 WHEN 0 THEN NULL WHEN 2 THEN now() - interval '2 days' WHEN 4 THEN now() - interval '3 days'
	                                WHEN 1 THEN now() WHEN 3 THEN now() - interval '1 day' END,
	       CASE WHEN n % 10 IN (0, 1, 2, 3, 4) THEN now() - interval '1 day' END
	FROM generate_series(1, $2::int) n
	WHERE n % 10 <= 5`

// A page without departed members shows other members in their place, and ranks refer to the shown
// members among the first 10,000 entries.
func TestPagesWithoutThoseWhoLeft(t *testing.T) {
	t.Parallel()
	const total, size = 10_400, 10_000
	for _, b := range leaderboards {
		t.Run(b.table, func(t *testing.T) {
			t.Parallel()
			d := dbtest.New(t).DB
			dbtest.AddGuilds(t, d, "1", "2")
			dbtest.Fill(t, d, b.sql(fmt.Sprintf(`
				INSERT INTO {board} (guild_id, user_id, {points})
				SELECT g, n::text, n / 3 FROM generate_series(1, %d) n, (VALUES ('1'), ('2')) v (g)`, total)))
			do(t, d, gone, "1", total)
			var all []leaderboard.Row
			if err := d.Reader().SelectContext(t.Context(), &all, b.sql(sorted), "1"); err != nil {
				t.Fatal(err)
			}
			left := func(user string) bool { return strings.ContainsAny(user[len(user)-1:], "024") }
			shown := slices.DeleteFunc(slices.Clone(all[:size]), func(r leaderboard.Row) bool { return left(r.UserID) })
			for _, p := range []page.P{
				page.Of(1, 25), page.Of(3, 100), page.Of(70, 100), page.Of(71, 100), page.Of(240, 25), page.Of(100_000, 100),
			} {
				got, err := b.ranks.Page(t.Context(), d.Reader(), "1", p, true)
				want := shown[min(p.Offset(), len(shown)):min(p.Offset()+p.Limit(), len(shown))]
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("page %d of %d: %d rows, want %d: %v", p.Page, p.PerPage, len(got), len(want), err)
				}
			}
			for range 10 {
				at := rand.IntN(len(shown))
				place, err := b.ranks.Rank(t.Context(), d.Reader(), "1", shown[at].UserID, true)
				if want := (leaderboard.Place{Rank: int64(at) + 1, Points: shown[at].Points, Of: int64(len(shown))}); err != nil || place != want {
					t.Errorf("%s stands at %v, want %v: %v", shown[at].UserID, place, want, err)
				}
			}
			for user, message := range map[string]string{
				"10104": "left the guild", "1": "behind the first 10000 entries", "2": "left the guild", "99999": "not on the leaderboard",
			} {
				_, err := b.ranks.Rank(t.Context(), d.Reader(), "1", user, true)
				if !fault.Is(err, "not_found") || !strings.Contains(err.Error(), message) {
					t.Errorf("the rank of %s is refused with %v, want %q", user, err, message)
				}
			}
			if p, err := b.ranks.Rank(t.Context(), d.Reader(), "2", "10104", true); err != nil || p.Of != size {
				t.Errorf("in the other guild nobody left, and the member stands at %v: %v", p, err)
			}
		})
	}
}

// Departed members are looked up one by one in an index, even if nine of ten have left, and a page
// reads no more entries than needed.
func TestThoseWhoLeftAreLookedUp(t *testing.T) {
	t.Parallel()
	onCrowdedBoards(t, func(t *testing.T, base *dbtest.Database, b board) {
		d := base.DB
		dbtest.Fill(t, d, `
			INSERT INTO members (guild_id, user_id, left_at) SELECT '1', n::text, now() FROM generate_series(1, 35000) n WHERE n % 10 <> 0`)
		vacuumed(t, base, b.table, "rank_indexes", "rank_checkpoints")
		do(t, d, `ANALYZE members`)
		texts := b.ranks.Texts()
		for what, plan := range map[string]string{
			"page 1":  dbtest.Plan(t, d, texts["present"], "1", 26, 0),
			"page 40": dbtest.Plan(t, d, texts["present"], "1", 26, 975),
			"rank":    dbtest.Plan(t, d, texts["present rank"], "1", "17500"),
		} {
			fromIndexAlone(t, b, what, plan)
			if !strings.Contains(plan, "using members_left on members") || strings.Contains(plan, "Join") && what != "rank" {
				t.Errorf("%s of the %s looks those who left up so:\n%s", what, b.table, plan)
			}
		}
		if n := touched(t, d, texts["present"], "'1', 26, 0"); n > 1200 {
			t.Errorf("page 1 touches %d pages of the database", n)
		}
	})
}

// BenchmarkPagesWithoutThoseWhoLeft measures the longest reads with nine of ten members gone: the
// last page, which looks up all 10,000, and a rank.
func BenchmarkPagesWithoutThoseWhoLeft(b *testing.B) {
	base := dbtest.New(b)
	d := base.DB
	dbtest.AddGuilds(b, d, "402187554310020096")
	const members = `SELECT (100000000000000000 + (n::bigint * 829348951) % 900000000000000000)::text AS id, n
		FROM generate_series(1, 1000000) n`
	dbtest.Exec(b, d, `INSERT INTO wallets (guild_id, user_id, balance)
		SELECT '402187554310020096', id, n::bigint * 7919 % 1000003 FROM (`+members+`) m`)
	dbtest.Exec(b, d, `INSERT INTO members (guild_id, user_id, name, joined_at, left_at)
		SELECT '402187554310020096', id, 'name ' || n, now() - interval '1 day', CASE WHEN n % 10 <> 0 THEN now() END
		FROM (`+members+`) m ORDER BY random()`)
	vacuumed(b, base, "wallets", "members") // as autovacuum does it; until then each lookup reads the row as well
	for _, at := range []int{1, 10, 400} {
		b.Run(fmt.Sprintf("page %d", at), func(b *testing.B) {
			for b.Loop() {
				if _, err := leaderboard.Wallets.Page(context.Background(), d.Reader(), "402187554310020096", page.Of(at, 25), true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("rank", func(b *testing.B) {
		for b.Loop() {
			_, err := leaderboard.Wallets.Rank(context.Background(), d.Reader(), "402187554310020096", "7", true)
			if !fault.Is(err, "not_found") {
				b.Fatal(err)
			}
		}
	})
}

package cases

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/page"
)

// Every page, however deep and however filtered, equals the page of a list that the test has sorted
// itself.
func TestPagesAreThoseOfTheSortedList(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2")
	dbtest.Fill(t, d, `
		INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, status, source, created_at, updated_at)
		SELECT guild, 'case-' || n, n, (n % 3 + 1)::text, (n % 2 + 1)::text, CASE WHEN n % 4 = 0 THEN 'ban' ELSE 'warn' END, 'r',
		       CASE WHEN n % 5 = 0 THEN 'expired' ELSE 'active' END, 'bot',
		       timestamptz '2026-01-01' + n / 3 * interval '1 minute', timestamptz '2026-01-02' + n * 7919 % 5000 / 2 * interval '1 minute'
		FROM (VALUES ('1', 5000), ('2', 3000)) AS g (guild, total), generate_series(1, total) AS n`)
	var all []row
	if err := d.Reader().SelectContext(ctx, &all, selectCases+` WHERE guild_id = '1'`); err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		some := func(name string, of ...string) string { return rapid.SampledFrom(append(of, "")).Draw(t, name) }
		at := func(name string) *time.Time {
			if !rapid.Bool().Draw(t, "has "+name) {
				return nil
			}
			at := begin.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, name)) * time.Minute)
			return &at
		}
		f := filter{
			UserID: some("user", "1", "2", "9"), ModeratorID: some("moderator", "1", "2"),
			Type: some("type", "ban", "warn"), Status: some("status", "active", "expired"), Until: at("until"), Changed: at("changed"),
		}
		if since := at("since"); since != nil {
			f.Since = *since
		}
		p := page.Of(rapid.IntRange(1, 120).Draw(t, "page"), rapid.IntRange(1, 100).Draw(t, "per_page"))
		got, err := list(ctx, d.Reader(), "1", f, p)
		if err != nil {
			t.Fatal(err)
		}
		want := byHand(all, f)
		want = want[min(p.Offset(), len(want)):min(p.Offset()+p.Limit(), len(want))]
		if !slices.EqualFunc(got, want, func(a, b row) bool { return a.ID == b.ID }) {
			t.Fatalf("got %d rows, want %d", len(got), len(want))
		}
	})
}

func byHand(all []row, f filter) []row {
	kept := slices.DeleteFunc(slices.Clone(all), func(c row) bool {
		return f.UserID != "" && c.UserID != f.UserID || f.ModeratorID != "" && c.ModeratorID != f.ModeratorID ||
			f.Type != "" && c.Type != f.Type || f.Status != "" && c.Status != f.Status ||
			c.CreatedAt.Time.Before(f.Since) || f.Until != nil && !c.CreatedAt.Time.Before(*f.Until) ||
			f.Changed != nil && c.UpdatedAt.Time.Before(*f.Changed)
	})
	slices.SortFunc(kept, func(a, b row) int {
		if f.Changed != nil {
			if n := a.UpdatedAt.Time.Compare(b.UpdatedAt.Time); n != 0 {
				return n
			}
			return strings.Compare(a.ID, b.ID)
		}
		if n := b.CreatedAt.Time.Compare(a.CreatedAt.Time); n != 0 {
			return n
		}
		return strings.Compare(b.ID, a.ID)
	})
	return kept
}

package tickets

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/page"
	"guildhall/internal/base/wire"
)

const twoGuilds = `INSERT INTO guilds (id, name, owner_id) VALUES ('1', 'one', '1'), ('2', 'two', '1')`

// Every page, however deep and however filtered and ordered, equals the page of a list that the
// test has sorted itself.
func TestPagesAreThoseOfTheSortedList(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, twoGuilds, `
		INSERT INTO tickets (guild_id, id, number, status, opener_id, claimed_by_id, channel_id,
			last_message_at, created_at, updated_at, closed_at)
		SELECT guild, 'ticket-' || n, n, CASE WHEN n % 5 = 0 THEN 'closed' ELSE 'open' END, (n % 3 + 1)::text, nullif(n % 4, 0)::text,
		       CASE WHEN n % 5 = 0 THEN nullif(n % 50, 0) WHEN n % 50 <> 0 THEN n END::text,
		       CASE WHEN n % 6 <> 0 THEN timestamptz '2026-01-02' + n * 6101 % 5000 / 2 * interval '1 minute' END,
		       timestamptz '2026-01-01' + n / 3 * interval '1 minute', timestamptz '2026-01-02' + n * 7919 % 5000 / 2 * interval '1 minute',
		       CASE WHEN n % 5 = 0 THEN timestamptz '2026-01-05' END
		FROM (VALUES ('1', 5000), ('2', 3000)) AS g (guild, total), generate_series(1, total) AS n`)
	var all []row
	if err := d.Reader().SelectContext(ctx, &all, `SELECT `+columns+` FROM tickets WHERE guild_id = '1'`); err != nil {
		t.Fatal(err)
	}
	for _, f := range everyFilter() {
		kept := byHand(all, f)
		for _, p := range []page.P{page.Of(1, 100), page.Of(40, 7)} {
			got, err := list(ctx, d.Reader(), "1", f, p)
			if err != nil {
				t.Fatal(err)
			}
			want := kept[min(p.Offset(), len(kept)):min(p.Offset()+p.Limit(), len(kept))]
			if !slices.EqualFunc(got, want, func(a, b row) bool { return a.ID == b.ID }) {
				t.Errorf("%+v, %+v: got %d rows, want %d", f, p, len(got), len(want))
			}
		}
	}
}

// everyFilter returns all combinations of filters with and without a value. Ticket 17 has all these
// values except that it is claimed; ticket 18 has another opener, ticket 20 another status.
func everyFilter() []filter {
	since := time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)
	all := []filter{{}}
	for _, values := range [][]func(f *filter){
		{func(f *filter) { f.Status = open }},
		{func(f *filter) { f.OpenerID = "3" }},
		{func(f *filter) { f.ClaimedByID = "1" }, func(f *filter) { f.Unclaimed = true }},
		{func(f *filter) { f.ChannelID = "17" }},
		{func(f *filter) { f.Number = 17 }, func(f *filter) { f.Number = 18 }, func(f *filter) { f.Number = 20 }},
		{func(f *filter) { f.Activity = true }},
		{func(f *filter) { f.Changed = &since }},
	} {
		without := slices.Clone(all)
		for _, set := range values {
			for _, f := range without {
				set(&f)
				all = append(all, f)
			}
		}
	}
	return all
}

func byHand(all []row, f filter) []row {
	kept := slices.DeleteFunc(slices.Clone(all), func(r row) bool {
		return f.Status != "" && r.Status != f.Status || f.OpenerID != "" && r.OpenerID != f.OpenerID ||
			f.ClaimedByID != "" && or(r.ClaimedByID, "") != f.ClaimedByID || f.Unclaimed && r.ClaimedByID != nil ||
			f.ChannelID != "" && or(r.ChannelID, "") != f.ChannelID || f.Number != 0 && r.Number != f.Number ||
			f.Changed != nil && r.UpdatedAt.Time.Before(*f.Changed)
	})
	slices.SortFunc(kept, func(a, b row) int {
		var n int
		switch {
		case f.Changed != nil:
			if n = a.UpdatedAt.Time.Compare(b.UpdatedAt.Time); n == 0 {
				n = strings.Compare(a.ID, b.ID)
			}
			return n
		case f.Activity:
			n = or(b.LastMessageAt, wire.Time{}).Time.Compare(or(a.LastMessageAt, wire.Time{}).Time)
		default:
			n = b.CreatedAt.Time.Compare(a.CreatedAt.Time)
		}
		if n == 0 {
			n = strings.Compare(b.ID, a.ID)
		}
		return n
	})
	return kept
}

// 6,000 tickets of 9,000: few are open, and few of those are unclaimed; one member has opened a
// third of them. 3 tickets of guild 1 and all of guild 2 have the same metadata.
const many = `
	INSERT INTO tickets (guild_id, id, number, status, opener_id, claimed_by_id, channel_id,
		last_message_at, created_at, updated_at, closed_at, metadata)
	SELECT guild, 'ticket-' || n, n, CASE WHEN n % 100 = 0 THEN 'open' ELSE 'closed' END,
	       CASE WHEN n % 3 = 0 THEN '77' ELSE (1000 + n % 400)::text END, CASE WHEN n % 70 <> 0 THEN (40 + n % 20)::text END, (5000 + n)::text,
	       CASE WHEN n % 10 <> 0 THEN timestamptz '2026-01-02' + n * 6101 % 6000 * interval '10 minutes' END,
	       timestamptz '2026-01-01' + n * interval '10 minutes', timestamptz '2026-01-01' + n * interval '610 seconds',
	       CASE WHEN n % 100 <> 0 THEN timestamptz '2026-03-01' END,
	       CASE WHEN guild = '2' OR n <= 3 THEN '{"shop":"all"}'::jsonb ELSE '{}' END
	FROM (VALUES ('1', 6000), ('2', 3000)) AS g (guild, total), generate_series(1, total) AS n`

// wantPlannedOnce checks that a page has a generic plan, since planning takes longer than reading,
// and that the plan uses the order of the index for every guild.
func wantPlannedOnce(t *testing.T, d *db.DB) {
	t.Helper()
	for index, f := range map[string]filter{
		"tickets_newest": {}, "tickets_by_status": {Status: "open"}, "tickets_unclaimed": {Unclaimed: true},
	} {
		sql, args := query("1", f, page.Of(3, 25))
		dbtest.WantPlannedOnce(t, d, index, sql, args...)
	}
}

// Nearly all other guilds are small, and tickets are stored in random order.
func TestAListOfALargeGuildAmongSmallOnesIsReadInOrder(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `INSERT INTO guilds (id, name, owner_id) SELECT n::text, 'one', '1' FROM generate_series(1, 300) n`, `
		INSERT INTO tickets (guild_id, id, number, opener_id, created_at, updated_at)
		SELECT CASE WHEN n % 2 = 0 THEN '1' ELSE (n / 2 % 300 + 1)::text END, md5(n::text), n, (n % 50)::text,
		       timestamptz '2026-01-01' + (n * 7919 % 8000) * interval '5 minutes', timestamptz '2026-01-01'
		FROM generate_series(1, 8000) n`, `ANALYZE tickets`)
	wantPlannedOnce(t, d)
	for _, index := range []string{"tickets_pkey", "tickets_number"} {
		dbtest.WantIndex(t, d, index, withName, "1", "ticket-5", 7)
	}
}

// wantFoundByMetadata lists 3 tickets of a guild by a value that all tickets of another have.
func wantFoundByMetadata(t *testing.T, d *db.DB) {
	t.Helper()
	for _, f := range []filter{{}, {Activity: true}, {Changed: &time.Time{}}} {
		f.Metadata = &metadata.Lookup{Name: "shop", Value: "all"}
		sql, args := query("1", f, page.Of(1, 25))
		dbtest.WantFound(t, d, "tickets", "tickets_metadata", 3, sql, args...)
	}
}

func TestEveryListReadsInTheOrderOfAnIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, twoGuilds, many, `ANALYZE tickets`)
	since := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, index string
		filter      filter
	}{
		{"everything", "tickets_newest", filter{}},
		{"a status", "tickets_by_status", filter{Status: "open"}},
		{"an opener", "tickets_of_opener", filter{OpenerID: "1017"}},
		{"an opener of many", "tickets_of_opener", filter{OpenerID: "77", Status: "open", ClaimedByID: "42"}},
		{"a staff member", "tickets_of_claim", filter{ClaimedByID: "42", Status: "closed"}},
		{"unclaimed", "tickets_unclaimed", filter{Unclaimed: true}},
		{"unclaimed and open", "tickets_unclaimed_by_status", filter{Unclaimed: true, Status: "open"}},
		{"a channel", "tickets_of_channel", filter{ChannelID: "5017"}},
		{"a number", "tickets_number", filter{Number: 17, ChannelID: "5017"}},
		{"by activity", "tickets_active", filter{Activity: true}},
		{"unclaimed by activity", "tickets_active", filter{Activity: true, Unclaimed: true}},
		{"open by activity", "tickets_active_by_status", filter{Activity: true, Status: "open"}},
		{"unclaimed and open by activity", "tickets_active_by_status", filter{Activity: true, Status: "open", Unclaimed: true}},
		{"an opener by activity", "tickets_of_opener", filter{Activity: true, OpenerID: "1017"}},
		{"a staff member by activity", "tickets_of_claim", filter{Activity: true, ClaimedByID: "42"}},
		{"changes", "tickets_changed", filter{Changed: &since}},
		{
			"changes of some", "tickets_changed",
			filter{Changed: &since, OpenerID: "77", Status: "open", Unclaimed: true, ChannelID: "5017", Number: 17},
		},
	} {
		for _, p := range []page.P{page.Of(1, 25), page.Of(400, 25)} {
			t.Run(fmt.Sprintf("%s, page %d", c.name, p.Page), func(t *testing.T) {
				t.Parallel()
				sql, args := query("1", c.filter, p)
				if dbtest.Coordinator(t) || c.filter.Changed != nil || !c.filter.Activity && c.filter.Number == 0 && c.filter.ChannelID == "" {
					dbtest.WantIndex(t, d, c.index, sql, args...)
				} else if plan := dbtest.Plan(t, d, sql, args...); !strings.Contains(plan, " using "+c.index+" ") &&
					!strings.Contains(plan, " on "+c.index+"\n") {
					// The page, or the few rows that are sorted, must come from the index.
					t.Errorf("the query does not use %s:\n%s", c.index, plan)
				}
			})
		}
	}
	wantPlannedOnce(t, d)
	t.Run("metadata", func(t *testing.T) {
		t.Parallel()
		wantFoundByMetadata(t, d)
	})
	for name, order := range map[string]string{"reading order": reading, "from the end": backwards} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.WantIndex(t, d, "ticket_messages_reading", order, "1", "ticket-5", since, 26, 0)
		})
	}
}

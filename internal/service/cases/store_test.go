package cases

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/page"
)

// many inserts a guild with 6,000 cases among 9,000: 40 members with a hundred each, and one
// member with the rest; bans are rare, revoked bans rarer.
const many = `
	INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, status, expires_at, source, created_at, updated_at)
	SELECT guild, 'case-' || n, n, CASE WHEN n % 3 = 0 THEN '77' ELSE (1000 + n % 40)::text END, (40 + n % 20)::text,
	       CASE WHEN n % 100 = 0 THEN 'ban' WHEN n % 2 = 0 THEN 'warn' ELSE 'note' END, 'r',
	       CASE WHEN n % 500 = 0 THEN 'revoked' WHEN n % 7 = 0 THEN 'expired' ELSE 'active' END,
	       CASE WHEN n % 10 = 0 THEN timestamptz '2040-01-01' END,
	       'bot', timestamptz '2026-01-01' + n * interval '10 minutes', timestamptz '2026-01-01' + n * interval '610 seconds'
	FROM (VALUES ('1', 6000), ('2', 3000)) AS g (guild, total), generate_series(1, total) AS n`

// shared gives 7 cases of guild 1 and 3,000 of guild 2 one value, and each of them a value of
// its own. A coordinator refuses an UPDATE with jsonb_build_object of a column, which is STABLE.
const shared = `
	UPDATE cases
	SET metadata = ('{"shop": "all", "shop.order": "' || (number % 1000)::text || '"}')::jsonb
	WHERE guild_id = '2' OR number BETWEEN 11 AND 17`

func TestEveryListReadsInTheOrderOfAnIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2")
	dbtest.Fill(t, d, many)
	dbtest.Fill(t, d, `ANALYZE cases`)
	since := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	until := since.AddDate(0, 0, 20)
	for _, c := range []struct {
		name, index string
		filter      filter
	}{
		{"everything", "cases_newest", filter{}},
		{"since", "cases_newest", filter{Since: since}},
		{"until", "cases_newest", filter{Since: since, Until: &until}},
		{"a member", "cases_of_user", filter{UserID: "1017"}},
		{"a member with very many", "cases_of_user", filter{UserID: "77", Type: "warn", Status: "active", ModeratorID: "42", Since: since}},
		{"a moderator", "cases_of_moderator", filter{ModeratorID: "42"}},
		{"a moderator's bans", "cases_of_moderator", filter{ModeratorID: "42", Type: "ban", Status: "active", Until: &until}},
		{"a type", "cases_by_type", filter{Type: "note"}},
		{"a rare type", "cases_by_type", filter{Type: "ban", Since: since}},
		{"a status", "cases_by_status", filter{Status: "active"}},
		{"a rare status", "cases_by_status", filter{Status: "revoked", Since: since}},
		{"a type and a status", "cases_by_type_status", filter{Type: "note", Status: "expired"}},
		{"a rare pair", "cases_by_type_status", filter{Type: "ban", Status: "revoked"}},
		{"a pair without any", "cases_by_type_status", filter{Type: "kick", Status: "deleted"}},
		{"a number", "cases_number", filter{Number: 4711}},
		{
			"a number of somebody's", "cases_number",
			filter{Number: 4711, UserID: "77", ModeratorID: "42", Type: "warn", Status: "active", Since: since, Until: &until},
		},
		{"changes", "cases_changed", filter{Changed: &since}},
		{
			"changes of some", "cases_changed",
			filter{Changed: &since, UserID: "77", Type: "warn", Status: "active", ModeratorID: "42", Until: &until},
		},
	} {
		for _, p := range []page.P{page.Of(1, 25), page.Of(400, 25)} {
			t.Run(fmt.Sprintf("%s, page %d", c.name, p.Page), func(t *testing.T) {
				t.Parallel()
				sql, args := query("1", c.filter, p)
				dbtest.WantIndex(t, d, c.index, sql, args...)
			})
		}
	}
	dbtest.Fill(t, d, shared)
	dbtest.Fill(t, d, `ANALYZE cases`)
	for n, f := range map[int]filter{
		0: {Metadata: &metadata.Lookup{Name: "shop.order", Value: "none"}},
		1: {Metadata: &metadata.Lookup{Name: "shop.order", Value: "17"}},
		7: {Metadata: &metadata.Lookup{Name: "shop", Value: "all"}},
	} {
		for _, since := range []*time.Time{nil, {}} {
			f.Changed = since
			sql, args := query("1", f, page.Of(1, 25))
			dbtest.WantFound(t, d, "cases", "cases_metadata", n, sql, args...)
		}
	}
	t.Run("a pair is planned once", func(t *testing.T) {
		t.Parallel()
		sql, args := query("1", filter{Type: "note", Status: "expired"}, page.Of(1, 25))
		dbtest.WantPlannedOnce(t, d, "cases_by_type_status", sql, args...)
	})
	t.Run("one case", func(t *testing.T) {
		t.Parallel()
		dbtest.WantIndex(t, d, "cases_pkey", byID, "1", "case-5")
	})
	t.Run("a case by its id or number", func(t *testing.T) {
		t.Parallel()
		dbtest.WantIndex(t, d, "cases_pkey", withName, "1", "case-5", 7)
		dbtest.WantIndex(t, d, "cases_number", withName, "1", "case-5", 7)
	})
	t.Run("what records name", func(t *testing.T) {
		t.Parallel()
		if plan := dbtest.Plan(t, d, heldCases, "1", db.Array([]string{"case-5", "case-7"})); !strings.Contains(plan, " using cases_pkey ") {
			t.Errorf("they are not found through their key:\n%s", plan)
		}
		dbtest.WantIndex(t, d, "cases_number", writer.Counted.Taken, "1", db.Integers([]int64{5, 7}))
	})
	t.Run("the overdue", func(t *testing.T) {
		t.Parallel()
		dbtest.WantIndex(t, d, "cases_due", due, 1000)
	})
}

func TestExpire(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2")
	dbtest.Fill(t, d, `
		INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, status, expires_at, source, updated_at)
		SELECT guild, name, row_number() OVER (), '7', '42', 'warn', 'r', status, expires_at, 'bot', timestamptz '2026-01-01'
		FROM (VALUES
			('1', 'past',     'active',  now() - interval '1 second'),
			('1', 'ancient',  'active',  timestamptz '0001-01-01'),
			('1', 'future',   'active',  now() + interval '1 hour'),
			('1', 'never',    'active',  NULL),
			('1', 'revoked',  'revoked', now() - interval '1 day'),
			('1', 'deleted',  'deleted', now() - interval '1 day'),
			('2', 'past',     'active',  now() - interval '1 second')
		) AS c (guild, name, status, expires_at)`)
	if err := Expire(ctx, d); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"past": "expired", "ancient": "expired", "future": "active", "never": "active", "revoked": "revoked", "deleted": "deleted",
	} {
		c, err := get(ctx, d.Reader(), "1", name)
		if err != nil {
			t.Fatal(err)
		}
		if c.Status != want {
			t.Errorf("%s is %s, want %s", name, c.Status, want)
		}
		if moved := c.UpdatedAt.Time.Year() != 2026 || c.UpdatedAt.Time.YearDay() != 1; moved != (want == "expired") {
			t.Errorf("%s: updated_at is %s", name, c.UpdatedAt)
		}
	}
	if c, err := get(ctx, d.Reader(), "2", "past"); err != nil || c.Status != "expired" {
		t.Errorf("the other guild's case is %q, %v", c.Status, err)
	}
}

func TestExpireWorksThroughABacklogAroundAHeldCase(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	dbtest.Fill(t, d, `
		INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, expires_at, source)
		SELECT '1', 'case-' || n, n, '7', '42', 'warn', 'r', now() - interval '1 second', 'bot'
		FROM generate_series(1, 2500) AS n`)
	left := func() (n int) {
		t.Helper()
		if err := d.Reader().GetContext(ctx, &n, `SELECT count(*) FROM cases WHERE status = 'active'`); err != nil {
			t.Fatal(err)
		}
		return n
	}
	// A moderator edits one of the cases meanwhile. The sweep neither waits for that case nor loses
	// it.
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := lock(ctx, tx, "1", "case-3"); err != nil {
			return err
		}
		if err := Expire(context.Background(), d); err != nil {
			return err
		}
		if n := left(); n != 1 {
			t.Errorf("%d cases are still active, want the held one", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := Expire(ctx, d); err != nil {
		t.Fatal(err)
	}
	if n := left(); n != 0 {
		t.Errorf("%d cases are still active", n)
	}
}

// Four thousand cases, most of them of one guild, expire at once. Each gets one event, and editing
// or creating cases meanwhile does not wait for all of them.
func TestExpiryOfManyHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `INSERT INTO guilds (id, name, owner_id, last_case) SELECT n::text, 'one', '1', 4000 FROM generate_series(1, 100) n`, `
		INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
		SELECT id, 'e' || id, 'https://example.com', '{case.updated}', '', '' FROM guilds`, `
		INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, expires_at, source)
		SELECT CASE WHEN n <= 3600 THEN '1' ELSE (n % 100 + 1)::text END, 'case-' || n, n, '7', '42', 'warn', 'r',
		       now() - interval '1 second', 'bot'
		FROM generate_series(1, 4000) AS n`)
	expired := make(chan error, 1)
	go func() { expired <- Expire(ctx, d) }()
	var longest time.Duration
	for n, done := 1, false; !done; n++ {
		select {
		case err := <-expired:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		default:
		}
		begun := time.Now()
		err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			if _, err := insert(ctx, tx, auth.System("1"),
				row{GuildID: "2", ID: db.NewID(), UserID: "7", ModeratorID: "8", Type: "note", Status: active, Source: "api"}); err != nil {
				return err
			}
			c, err := lock(ctx, tx, "1", fmt.Sprint("case-", n%3600+1))
			if err == nil {
				_, err = edit(ctx, tx, auth.System("1"), c, c, nil)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(begun))
	}
	t.Logf("the longest edit took %s", longest)
	// Cases that were being edited may have been skipped.
	if err := Expire(ctx, d); err != nil {
		t.Fatal(err)
	}
	var told struct{ Expired, Events, Cases int }
	if err := d.Reader().GetContext(ctx, &told, `
		SELECT (SELECT count(*) FROM cases WHERE source = 'bot' AND status = 'expired') AS expired,
		       count(*) AS events, count(DISTINCT p #>> '{data,id}') AS cases
		FROM (SELECT convert_from(payload, 'UTF8')::json AS p FROM webhook_events WHERE type = 'case.updated' OFFSET 0) e
		WHERE p #>> '{origin,type}' = 'system'
		  AND p #>> '{data,status}' = 'expired'
		  AND p #>> '{data,changed}' = '["status"]'
		  AND p ->> 'timestamp' = p #>> '{data,updated_at}'`); err != nil {
		t.Fatal(err)
	}
	if told.Expired != 4000 || told.Events != 4000 || told.Cases != 4000 {
		t.Errorf("of 4,000 cases %d have expired, and %d events told of %d", told.Expired, told.Events, told.Cases)
	}
}

// Each number is given once, in the order of the cases' instants.
func TestNumbersAreGivenOutOncePerGuild(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1", "2")
	const each = 40
	errs := make(chan error)
	for i := range 2 * each {
		go func() {
			errs <- d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
				guild := []string{"1", "2"}[i%2]
				_, err := insert(ctx, tx, auth.System("1"),
					row{GuildID: guild, ID: db.NewID(), UserID: "7", ModeratorID: "8", Type: "note", Status: active, Source: "api"})
				return err
			})
		}()
	}
	for range 2 * each {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for _, guild := range []string{"1", "2"} {
		rows, err := list(ctx, d.Reader(), guild, filter{}, page.Of(1, 100))
		if err != nil {
			t.Fatal(err)
		}
		seen := map[int64]bool{}
		for i, c := range rows {
			seen[c.Number] = true
			// Compared in milliseconds, as callers see the instants.
			if i > 0 && (c.Number > rows[i-1].Number ||
				!c.CreatedAt.Time.Truncate(time.Millisecond).Before(rows[i-1].CreatedAt.Time.Truncate(time.Millisecond))) {
				t.Errorf("guild %s: case %d of %s comes after %d of %s", guild, c.Number, c.CreatedAt, rows[i-1].Number, rows[i-1].CreatedAt)
			}
		}
		for n := int64(1); n <= each; n++ {
			if !seen[n] {
				t.Errorf("guild %s has no case %d among %d", guild, n, len(rows))
			}
		}
	}
}

// A row with a foreign key to the guild locks the guild's row (FOR KEY SHARE). Creating cases
// meanwhile must not deadlock.
func TestCasesAndNewMembersDoNotBlockOneAnother(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	dbtest.WantNoCircle(t, d, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO levels (guild_id, user_id, total_xp) VALUES ('1', $1, 1)`, db.NewID())
		return err
	}, 40, 1, func(d db.Doer) error {
		return d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := insert(ctx, tx, auth.System("1"),
				row{GuildID: "1", ID: db.NewID(), UserID: "7", ModeratorID: "8", Type: "note", Status: active, Source: "api"})
			return err
		})
	})
}

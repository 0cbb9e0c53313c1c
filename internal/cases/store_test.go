package cases

import (
	"context"
	"testing"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/db/dbtest"
	"guildhall/internal/page"
)

// exec runs statements in one unit, however long they take.
func exec(t *testing.T, d *db.DB, statements ...string) {
	t.Helper()
	err := d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		for _, s := range append([]string{`SET LOCAL statement_timeout = 0`}, statements...) {
			if _, err := tx.ExecContext(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// many is a guild with 60,000 cases among 90,000: 200 members with a hundred
// each, and one hoarder; bans are rare, and revoked bans rarer.
const many = `
	INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, status, expires_at, source, created_at)
	SELECT guild, 'case-' || n, n, CASE WHEN n % 3 = 0 THEN '77' ELSE (1000 + n % 400)::text END, '42',
	       CASE WHEN n % 500 = 0 THEN 'ban' WHEN n % 2 = 0 THEN 'warn' ELSE 'note' END, 'r',
	       CASE WHEN n % 2500 = 0 THEN 'revoked' WHEN n % 7 = 0 THEN 'expired' ELSE 'active' END,
	       CASE WHEN n % 10 = 0 THEN timestamptz '2040-01-01' END,
	       'bot', timestamptz '2026-01-01' + n * interval '1 minute'
	FROM (VALUES ('1', 60000), ('2', 30000)) AS g (guild, total), generate_series(1, total) AS n`

func TestEveryListReadsInTheOrderOfAnIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	exec(t, d, `INSERT INTO guilds (id, name, owner_id) VALUES ('1', 'one', '1'), ('2', 'two', '1')`, many)
	exec(t, d, `ANALYZE cases`)
	since := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, index string
		filter      filter
		page        int
	}{
		{"everything", "cases_newest", filter{}, 1},
		{"everything, deep", "cases_newest", filter{}, 40},
		{"since", "cases_newest", filter{Since: since}, 1},
		{"a member", "cases_by_user", filter{UserID: "1017"}, 1},
		{"a member with very many", "cases_by_user", filter{UserID: "77", Type: "warn", Status: "active", Since: since}, 1},
		{"a type", "cases_by_type", filter{Type: "note"}, 1},
		{"a rare type", "cases_by_type", filter{Type: "ban", Since: since}, 1},
		{"a status", "cases_by_status", filter{Status: "active"}, 1},
		{"a rare status", "cases_by_status", filter{Status: "revoked", Since: since}, 1},
		{"a type and a status", "cases_by_type_status", filter{Type: "note", Status: "expired"}, 1},
		{"a rare pair", "cases_by_type_status", filter{Type: "ban", Status: "revoked"}, 1},
		{"a pair without any", "cases_by_type_status", filter{Type: "kick", Status: "deleted"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sql, args := query("1", c.filter, page.Of(c.page, 25))
			dbtest.WantIndex(t, d, c.index, sql, args...)
		})
	}
	t.Run("one case", func(t *testing.T) {
		t.Parallel()
		dbtest.WantIndex(t, d, "cases_pkey", byID, "1", "case-5")
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
	exec(t, d, `INSERT INTO guilds (id, name, owner_id) VALUES ('1', 'one', '1'), ('2', 'two', '1')`, `
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
		if moved := c.UpdatedAt.Year() != 2026 || c.UpdatedAt.YearDay() != 1; moved != (want == "expired") {
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
	exec(t, d, `INSERT INTO guilds (id, name, owner_id) VALUES ('1', 'one', '1')`, `
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
	// Somebody edits one of them meanwhile: the job neither waits for it nor
	// loses it.
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

func TestNumbersAreGivenOutOncePerGuild(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := dbtest.New(t).DB
	exec(t, d, `INSERT INTO guilds (id, name, owner_id) VALUES ('1', 'one', '1'), ('2', 'two', '1')`)
	const each = 40
	errs := make(chan error)
	for i := range 2 * each {
		go func() {
			errs <- d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
				guild := []string{"1", "2"}[i%2]
				_, err := insert(ctx, tx, row{GuildID: guild, ID: db.NewID(), UserID: "7", ModeratorID: "8", Type: "note", Status: active, Source: "api"})
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
		for _, c := range rows {
			seen[c.Number] = true
		}
		for n := int64(1); n <= each; n++ {
			if !seen[n] {
				t.Errorf("guild %s has no case %d among %d", guild, n, len(rows))
			}
		}
	}
}

package auth

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// A page of revoked tokens is read in the order of an index, even if the guild has many.
func TestAPageOfTokensIsReadFromItsIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.WantIndex(t, d, "api_tokens_guild", endedRows, "1", 51, 50)
}

// Revoked and expired tokens accumulate. However many there are, listing and counting the active
// tokens costs the same.
func TestTokensThatHaveEndedCostThoseThatWorkNothing(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	tokens := func(id, expires, revoked string, n int) {
		dbtest.Exec(t, d, `
			INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes, created_at, expires_at, revoked_at)
			SELECT $1 || n, '1', 't', 'p', sha256(($1 || n)::bytea), '{}', now() + n * interval '1 second', `+expires+`, `+revoked+`
			FROM generate_series(1, $2::int) n`, id, n)
		dbtest.Exec(t, d, `ANALYZE api_tokens`)
	}
	tokens("works", `CASE WHEN n % 2 = 0 THEN now() + interval '1 hour' END`, `NULL`, 20)
	list, count := pages(t, d, workingRows), pages(t, d, countWorking)
	tokens("revoked", `NULL`, `now()`, 4_000)
	tokens("expired", `now() - interval '1 hour'`, `NULL`, 4_000)
	if now := pages(t, d, workingRows); now > list+20 {
		t.Errorf("beside 8,000 tokens that have ended those that work are listed with %d pages, without them with %d", now, list)
	}
	if now := pages(t, d, countWorking); now > count+20 {
		t.Errorf("beside 8,000 tokens that have ended those that work are counted with %d pages, without them with %d", now, count)
	}
}

var buffers = regexp.MustCompile(`(?m)^ *Buffers: shared hit=(\d+)`)

// pages returns how many pages a statement about guild 1 touches.
func pages(t *testing.T, d *db.DB, statement string) (n int) {
	t.Helper()
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `PREPARE working AS `+statement); err != nil {
			return err
		}
		for range 8 { // after these executions Postgres uses a generic plan
			if _, err := tx.ExecContext(ctx, `EXECUTE working('1')`); err != nil {
				return err
			}
		}
		var lines []string
		if err := tx.SelectContext(ctx, &lines, `EXPLAIN (ANALYZE, BUFFERS, TIMING off) EXECUTE working('1')`); err != nil {
			return err
		}
		plan := strings.Join(lines, "\n")
		m := buffers.FindStringSubmatch(plan)
		if m == nil {
			t.Fatalf("the plan names no pages:\n%s", plan)
		}
		n, _ = strconv.Atoi(m[1])
		t.Logf("%d pages:\n%s", n, plan)
		_, err := tx.ExecContext(ctx, `DEALLOCATE working`)
		return err
	})
	return n
}

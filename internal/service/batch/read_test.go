package batch

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// balance is a row as tests read it.
type balance struct {
	UserID    string     `db:"user_id"`
	Balance   int64      `db:"balance"`
	UpdatedAt *time.Time `db:"updated_at"`
}

var balances = RowsOf[balance]("wallets", "user_id", "balance", "updated_at")

func TestEachQueryGetsItsOwnRow(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT g::text, u::text, 10 * g + u
		FROM generate_series(1, 3) g, generate_series(1, 5) u`)
	for _, guilds := range []int{1, 3} {
		if guilds > 1 && dbtest.Coordinator(t) { // which no program asks of distributed tables
			continue
		}
		var queries []*Query[balance]
		for n := range 40 { // each twice and more, and some of members without a row
			queries = append(queries, &Query[balance]{Guild: strconv.Itoa(1 + n%guilds), User: strconv.Itoa(7 - n%7)})
		}
		queries = append(queries, &Query[balance]{Guild: "1", User: `{"odd\,NULL`}, &Query[balance]{Guild: "1", User: "5"})
		if err := balances.Read(t.Context(), d.Reader(), queries); err != nil {
			t.Fatal(err)
		}
		for i, q := range queries {
			g, _ := strconv.Atoi(q.Guild)
			u, _ := strconv.Atoi(q.User)
			want := balance{UserID: q.User, Balance: int64(10*g + u)}
			if u < 1 || u > 5 {
				want = balance{}
			}
			q.Row.UpdatedAt = nil
			if q.Row != want {
				t.Errorf("%d guilds, query %d of %s in %s: %+v, want %+v", guilds, i, q.User, q.Guild, q.Row, want)
			}
		}
	}
}

// Rows are looked up one by one through the index, also where few are there, and
// planned once, whatever Postgres believes of the guilds: a connection keeps its
// plans, and planning takes longer than the read.
func TestRowsAreReadByIndex(t *testing.T) {
	t.Parallel()
	ctx, d := context.Background(), dbtest.New(t).DB
	both := db.Array([]string{"1", "2"})
	statements := map[string]any{balances.one: "1", balances.several: both}
	if dbtest.Coordinator(t) {
		delete(statements, balances.several)
	}
	for _, guilds := range []string{`1, 20`, `21, 2000`} {
		dbtest.Fill(t, d, `INSERT INTO wallets (guild_id, user_id, balance)
			SELECT g::text, u::text, 1 FROM generate_series(`+guilds+`) g, generate_series(1, 10) u`, `ANALYZE wallets`)
		for statement, first := range statements {
			plan := dbtest.Plan(t, d, statement, first, both)
			if !strings.Contains(plan, "Index Scan using wallets_pkey") || !strings.Contains(plan, "Nested Loop") {
				t.Errorf("with the guilds %s:\n%s", guilds, plan)
			}
		}
	}
	if dbtest.Coordinator(t) {
		return // it plans for its shards, which Postgres does not count
	}
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		for statement, first := range statements {
			for range 30 {
				var found []answer[balance]
				if err := tx.SelectContext(ctx, &found, statement, first, both); err != nil {
					return err
				}
			}
		}
		var plans []int
		err := tx.SelectContext(ctx, &plans, `
			SELECT custom_plans FROM pg_prepared_statements WHERE statement LIKE '%row.balance%' AND generic_plans + custom_plans = 30`)
		if err == nil && (len(plans) != len(statements) || slices.Max(plans) > 5) {
			err = fmt.Errorf("of 30 uses of each form so many were planned by themselves: %v", plans)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

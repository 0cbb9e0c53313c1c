package economy

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/service/batch"
)

func asked(guild, user string) *lookup { return &lookup{guild: guild, wallet: row{UserID: user}} }

func TestEachQuestionGetsItsOwnWallet(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, `INSERT INTO wallets (guild_id, user_id, balance) SELECT g::text, u::text, 10 * g + u
		FROM generate_series(1, 3) g, generate_series(1, 5) u`)
	for _, guilds := range []int{1, 3} {
		if guilds > 1 && dbtest.Coordinator(t) { // the service never reads several guilds from distributed tables
			continue
		}
		var queries []*lookup
		for n := range 40 { // each member twice or more, and some members without a row
			queries = append(queries, &lookup{guild: strconv.Itoa(1 + n%guilds), wallet: row{UserID: strconv.Itoa(7 - n%7)}})
		}
		queries = append(queries, asked("1", `{"odd\,NULL`), asked("1", "5"))
		users := batch.Each(queries, func(q *lookup) string { return q.wallet.UserID })
		if err := answerEach(t.Context(), d.Reader(), queries); err != nil {
			t.Fatal(err)
		}
		for i, q := range queries {
			g, _ := strconv.Atoi(q.guild)
			u, _ := strconv.Atoi(users[i])
			want := row{UserID: users[i], Balance: int64(10*g + u)}
			if u < 1 || u > 5 {
				want.Balance = 0
			}
			q.wallet.UpdatedAt = nil
			if q.wallet != want {
				t.Errorf("%d guilds, lookup %d of %s in %s: %+v, want %+v", guilds, i, users[i], q.guild, q.wallet, want)
			}
		}
	}
}

// The rows are found one by one through the index, also in a small table, and the statement is
// planned once, whatever Postgres estimates: a connection keeps its plans, and planning takes
// longer than reading.
func TestWalletsAreReadByIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	both := db.Array([]string{"1", "2"})
	for _, guilds := range []string{`1, 20`, `21, 2000`} {
		dbtest.Fill(t, d, `INSERT INTO wallets (guild_id, user_id, balance)
			SELECT g::text, u::text, 1 FROM generate_series(`+guilds+`) g, generate_series(1, 10) u`, `ANALYZE wallets`)
		plan := dbtest.Plan(t, d, walletsOf, both, both, "1")
		if !strings.Contains(plan, "Index Scan using wallets_pkey") || !strings.Contains(plan, "Nested Loop") {
			t.Errorf("with the guilds %s:\n%s", guilds, plan)
		}
	}
	dbtest.WantOnePlan(t, d, 1, "g.number, w.", func(ctx context.Context, tx *db.Tx, _ int) error {
		return answerEach(ctx, tx, []*lookup{asked("1", "1"), asked("2", "2")})
	})
}

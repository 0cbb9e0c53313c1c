package db_test

import (
	"context"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

func TestADistributedStatementSaysWhatItsCommentsSay(t *testing.T) {
	t.Parallel()
	for statement, want := range map[string]string{
		`SELECT 1 /* : no mark */ FROM t`: `SELECT 1 /* : no mark */ FROM t`,
		`WHERE d.guild_id = due.guild_id /*: $5 */ AND d.id = due.id`: `WHERE d.guild_id = ` +
			`$5 AND d.id = due.id`,
		`WHERE guild_id IN (SELECT guild_id FROM o) /*: ($5) */ AND fresh`: `WHERE guild_id IN ($5) AND fresh`,
		"SELECT $1 /*: home.id */, m.id\nFROM m /*: m JOIN guilds home ON home.id = $1 */\nWHERE true": "SELECT home.id, m.id\nFROM m JOIN " +
			"guilds home ON home.id = $1\nWHERE true",
		"SELECT m.g /*: $1 */ /*: home.id */ FROM m /*: m JOIN guilds home ON home.id = m.g /*: $1 */ */": "SELECT home.id FROM m JOIN " +
			"guilds home ON home.id = $1",
		`SELECT max(a.b /*: c.b */), now()`: `SELECT max(c.b), now()`,
	} {
		if got := db.Distributed(statement); got != want {
			t.Errorf("%s\nbecomes\n%s, want\n%s", statement, got, want)
		}
	}
}

func TestVariablesAreSetAsPsqlSetsThem(t *testing.T) {
	t.Parallel()
	const statement = `SELECT -t.:points::bigint, :'board', '{}'::text[] FROM :board t WHERE x = $1`
	want := `SELECT -t.balance::bigint, 'wallets', '{}'::text[] FROM wallets t WHERE x = $1`
	if got := db.With(statement, "board", "wallets", "points", "balance"); got != want {
		t.Errorf("the statement is %s, want %s", got, want)
	}
}

// The connection prepares the form of a statement that fits the database, with or without
// arguments.
func TestTheStatementThatIsRunFitsTheDatabase(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	want := "plain"
	if d.Distributed() {
		want = "distributed"
	}
	err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for _, args := range [][]any{nil, {"1"}} {
			statement := `SELECT 'plain' /*: 'distributed' */` + strings.Repeat(" WHERE $1 = '1'", len(args))
			var got string
			if err := tx.GetContext(ctx, &got, statement, args...); err != nil {
				return err
			}
			if got != want {
				t.Errorf("with %v the %s form was run, want the %s one", args, got, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

package db_test

import (
	"context"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

func TestAStatementLooksNoGuildUpWhereTablesLieTogether(t *testing.T) {
	t.Parallel()
	for statement, want := range map[string]string{
		`INSERT INTO cases (guild_id, id)
		SELECT home.id, m.id
		FROM m
		JOIN guilds home ON home.id = $1
		RETURNING id`: `INSERT INTO cases (guild_id, id)
		SELECT $1, m.id
		FROM m
		RETURNING id`,
		`WITH a AS (INSERT INTO x SELECT home.id, m.n FROM m JOIN guilds home ON home.id = m.guild_id WHERE m.n > 0 ORDER BY home.id, m.n), ` +
			`b AS (INSERT INTO y SELECT home.id FROM l JOIN guilds home ON home.id = $1) SELECT`: `WITH a AS (INSERT INTO x ` +
			`SELECT m.guild_id, m.n FROM m WHERE m.n > 0 ORDER BY m.guild_id, m.n), b AS (INSERT INTO y SELECT $1 FROM l) SELECT`,
		`INSERT INTO x SELECT home.id, d.* FROM guilds home, (SELECT 1) d WHERE home.id = $1`: `INSERT INTO x SELECT home.id, d.* ` +
			`FROM guilds home, (SELECT 1) d WHERE home.id = $1`,
		`SELECT 1`: `SELECT 1`,
	} {
		if got := db.Together(statement); got != want {
			t.Errorf("%s\nbecomes\n%s, want\n%s", statement, got, want)
		}
	}
}

// What is prepared is that form, and on a coordinator the one that is written.
func TestTheFormThatIsPreparedFitsTheDatabase(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		const statement = `
			WITH step AS MATERIALIZED (SELECT $2::text AS board)
			INSERT INTO rank_requests (guild_id, board)
			SELECT home.id, step.board
			FROM step
			JOIN guilds home ON home.id = $1`
		if _, err := tx.ExecContext(ctx, statement, "1", "wallets"); err != nil {
			return err
		}
		var prepared []string
		if err := tx.SelectContext(ctx, &prepared,
			`SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%rank_requests%'`); err != nil {
			return err
		}
		if len(prepared) != 1 || strings.Contains(prepared[0], "home") != d.Distributed() {
			t.Errorf("prepared are %q", prepared)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if n := dbtest.Value[int](t, d, `SELECT count(*) FROM rank_requests WHERE guild_id = '1'`); n != 1 {
		t.Errorf("%d rows were inserted, want one", n)
	}
}

package delivery

import (
	"context"
	"encoding/json"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// A statement works on rows that are passed as a JSON list; each row names its guild. In the form
// several, each row is matched with table rows of its own guild, and the list may hold several
// guilds. In the form one, all rows belong to the one guild that the last parameter names: where
// tables are distributed by guild, only such a statement runs on one machine and can lock rows.
//
// With one guild for each statement, a claim of ten guilds' events takes twice as long.
type statement struct{ several, one string }

func newStatement(text string) statement { return statement{several: text, one: db.Distributed(text)} }

// run calls do with a form of the statement, the rows in JSON, and the parameter that names the
// guild: once, or once for each guild.
func run[T any](s statement, oneGuild bool, rows []T, guild func(T) string, do func(query, rows string, guild ...any) error) error {
	if len(rows) == 0 {
		return nil
	}
	if !oneGuild {
		in, err := json.Marshal(rows)
		if err != nil {
			return fault.Wrap(err, "render rows")
		}
		return do(s.several, string(in))
	}
	for guild, part := range db.ByGuild(rows, guild) {
		in, err := json.Marshal(part)
		if err != nil {
			return fault.Wrap(err, "render rows of guild", guild)
		}
		if err := do(s.one, string(in), guild); err != nil {
			return fault.Wrap(err, "guild", guild)
		}
	}
	return nil
}

// byIndex makes Postgres plan the later statements of a transaction with index lookups. The
// package's statements name a few rows of large tables, but Postgres assumes a hundred rows for a
// JSON list and many rows for each of them: with ten thousand endpoints, Postgres would read whole
// tables for each claim. A statement that cannot be planned with index lookups gets a cost so high
// that Postgres would compile it, which takes 0.3 s; byIndex turns that off, too.
const byIndex = `set_config('enable_hashjoin', 'off', true) || set_config('enable_mergejoin', 'off', true) || set_config('enable_seqscan', 'off', true) ||
	set_config('jit', 'off', true)`

// planByIndex runs byIndex as a separate statement.
func planByIndex(ctx context.Context, tx *db.Tx) error { return plan(ctx, tx, byIndex) }

// byIndexOrder is byIndex for statements that name one guild and take some of the guild's rows:
// otherwise Postgres would read and sort all rows of the guild instead of following the order of an
// index.
const byIndexOrder = byIndex + ` || set_config('enable_sort', 'off', true)`

// planByIndexOrder runs byIndexOrder as a separate statement.
func planByIndexOrder(ctx context.Context, tx *db.Tx) error { return plan(ctx, tx, byIndexOrder) }

func plan(ctx context.Context, tx *db.Tx, settings string) error {
	_, err := db.Exec(ctx, tx, `SELECT `+settings)
	return fault.Wrap(err, "set how statements are planned")
}

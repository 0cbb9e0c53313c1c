package delivery

import (
	"context"
	"encoding/json"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// A statement works on rows that come as a list in JSON, each of which names its
// guild. In the form that is written, each row is matched with rows of its own
// guild, whichever that is. In the distributed one, all rows are of the one guild
// that the last parameter names: where tables are distributed by guild, nothing else
// runs on one machine, and locks.
//
// With one guild a statement, a claim of ten guilds' events takes twice as long.
type statement struct{ several, one string }

func newStatement(text string) statement { return statement{several: text, one: db.Distributed(text)} }

// run calls do with a form of the statement, the rows in JSON, and what names the
// guild in that form: once, or for each guild.
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

// byIndex makes the plans of the statements that follow in a transaction look
// rows up by an index. The engine's statements name a few rows of large tables,
// but Postgres takes a list in JSON for a hundred rows and each of a few for many
// more: at ten thousand endpoints it would rather read whole tables, for each
// claim. A statement that cannot be planned that way would look so dear that Postgres
// compiled it, which takes 0.3 s.
const byIndex = `set_config('enable_hashjoin', 'off', true) || set_config('enable_mergejoin', 'off', true) || set_config('enable_seqscan', 'off', true) ||
	set_config('jit', 'off', true)`

// planByIndex is byIndex as a statement of its own.
func planByIndex(ctx context.Context, tx *db.Tx) error { return plan(ctx, tx, byIndex) }

// byIndexOrder is byIndex for statements that name one guild and take some of what it has:
// Postgres would rather read and sort all of it than follow an index in its order.
const byIndexOrder = byIndex + ` || set_config('enable_sort', 'off', true)`

// planByIndexOrder is byIndexOrder as a statement of its own.
func planByIndexOrder(ctx context.Context, tx *db.Tx) error { return plan(ctx, tx, byIndexOrder) }

func plan(ctx context.Context, tx *db.Tx, settings string) error {
	_, err := db.Exec(ctx, tx, `SELECT `+settings)
	return fault.Wrap(err, "set how statements are planned")
}

package transfer

import (
	"context"
	"encoding/json"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// Recordset returns rows as JSON for jsonb_populate_recordset, and the names of those that are
// stored already.
func Recordset[R any](rows []*Row[R], name func(r *R) string) (list string, there []string, err error) {
	is := make([]*R, len(rows))
	for i, row := range rows {
		is[i] = &row.Is
		if row.Was != nil {
			there = append(there, name(&row.Is))
		}
	}
	text, err := json.Marshal(is)
	if err != nil {
		return "", nil, fault.Wrap(err, "write rows for the database")
	}
	return string(text), there, nil
}

// StoreRows runs a statement that updates and inserts rows, and returns how many. Its parameters
// are the guild, the results of Recordset, and more. It returns db.Again if not all rows were
// written.
func StoreRows[R any](ctx context.Context, tx *db.Tx, c *Call, rows []*Row[R], name func(r *R) string, statement string, more ...any) error {
	list, there, err := Recordset(rows, name)
	if err != nil {
		return err
	}
	n, err := db.Get[int](ctx, tx, statement, append([]any{c.By.GuildID, list, db.Array(there)}, more...)...)
	if err == nil && n != len(rows) {
		return db.Again
	}
	return err
}

package transfer

import (
	"encoding/json"

	"guildhall/internal/base/fault"
)

// Recordset is rows as Postgres makes a set of them, by jsonb_populate_recordset of
// their table, and the names of those that are there.
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

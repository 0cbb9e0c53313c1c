package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// Fixed is how records meet rows of a kind that never change once they are there.
type Fixed[R any] struct {
	// Name names a row in words.
	Name func(r *R) string
	// There reads those of the rows that are there, by what names them; it may read more.
	There func(ctx context.Context, tx *db.Tx, rows []R) ([]R, error)
}

// Differs lists the members in which a record does not agree with the row that is
// there. A member that the record leaves out agrees.
func (k *Kind[R]) Differs(was R, text []byte, now time.Time) ([]string, error) {
	is := clone(was)
	if err := json.Unmarshal(text, &is); err != nil {
		return nil, fault.Wrap(err, "read a record that has been checked")
	}
	if k.Complete != nil {
		if err := k.Complete(&is, now); err != nil {
			return nil, err
		}
	}
	old, err := members(was)
	if err != nil {
		return nil, err
	}
	given, err := members(is)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(given, func(name string, value json.RawMessage) bool { return bytes.Equal(value, old[name]) })
	return slices.Sorted(maps.Keys(given)), nil
}

// members are those of a row as a record of it shows them.
func members(r any) (m map[string]json.RawMessage, err error) {
	text, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, fault.Wrap(err, "show a row as its record")
}

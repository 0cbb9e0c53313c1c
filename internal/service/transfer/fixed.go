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

// Fixed says how an import compares records with stored rows of a kind whose rows never change.
type Fixed[R any] struct {
	// Name returns a name of a row for messages.
	Name func(r *R) string
	// There returns the stored rows whose keys match rows. It may return more.
	There func(ctx context.Context, tx *db.Tx, rows []R) ([]R, error)
	// With names the thing that a row is a part of; may be nil. An import that updates stores
	// the rows of the things that it inserts, and leaves out the rows of all others.
	With func(r *R) Ref
}

// StoredUnder returns the There of a Fixed kind whose rows are stored under other things, as a
// draw under its giveaway. It reads all rows of the things that under names, by a statement whose
// parameters are a guild and their ids.
func StoredUnder[R any](what, statement string, under func(r *R) Ref) func(ctx context.Context, tx *db.Tx, rows []R) ([]R, error) {
	return func(ctx context.Context, tx *db.Tx, rows []R) (stored []R, err error) {
		named := make(map[Ref]bool)
		for i := range rows {
			named[under(&rows[i])] = true
		}
		for guild, refs := range InGuilds(maps.Keys(named)) {
			list, err := db.Select[R](ctx, tx, statement, guild, db.Array(IDs(refs)))
			if err != nil {
				return nil, fault.Wrap(err, "read", what, "of guild", guild)
			}
			stored = append(stored, list...)
		}
		return stored, nil
	}
}

// Differs returns the members in which a record differs from the stored row. A member that the
// record leaves out does not differ.
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

// members returns the members of a row as its record shows them.
func members(r any) (m map[string]json.RawMessage, err error) {
	text, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, fault.Wrap(err, "show a row as its record")
}

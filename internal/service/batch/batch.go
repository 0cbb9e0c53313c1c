// Package batch lets changes, and questions, of members that arrive together share a
// statement. Each is decided by itself, so that one that is refused is no matter to the
// others.
package batch

import (
	"time"

	"guildhall/internal/base/db"
)

// Host is what the program gives to those who collect.
type Host struct {
	DB       *db.DB
	OneGuild bool // a statement is about one guild

	// Began makes what is told of each statement of an operation: of how many it is,
	// and how long the one that came first had waited.
	Began func(operation string) func(size int, waited time.Duration)

	Wake func(guild string) // called after a commit that may have recorded events of the guild
}

// Each is what of says of each item.
func Each[T, V any](items []T, of func(T) V) []V {
	list := make([]V, len(items))
	for i, item := range items {
		list[i] = of(item)
	}
	return list
}

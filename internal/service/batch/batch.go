// Package batch lets concurrent changes, and concurrent reads, of members share a statement.
// Each change is decided by itself: a refused change does not affect the others.
package batch

import (
	"time"

	"guildhall/internal/base/db"
)

// Host is what the program provides to batched operations.
type Host struct {
	DB       *db.DB
	OneGuild bool // a batch holds one guild's items

	// Started returns a function that is called for each batch of an operation, with the size
	// of the batch and how long its oldest item waited.
	Started func(operation string) func(size int, waited time.Duration)

	Wake func(guild string) // called after a commit that may have recorded events of the guild
}

// Each returns the value of each item.
func Each[T, V any](items []T, of func(T) V) []V {
	list := make([]V, len(items))
	for i, item := range items {
		list[i] = of(item)
	}
	return list
}

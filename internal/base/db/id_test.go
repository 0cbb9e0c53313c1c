package db_test

import (
	"testing"
	"time"

	"guildhall/internal/base/db"
)

// An id contains the millisecond in which it was made, or the one that it was made for.
func TestAnIDTellsItsInstant(t *testing.T) {
	t.Parallel()
	for _, at := range []time.Time{
		time.Date(2026, 6, 15, 10, 5, 12, 480_999_999, time.UTC), time.UnixMilli(0), time.UnixMilli(1<<48 - 1),
		time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC),
	} {
		id := db.NewIDAt(at)
		if got, ok := db.InstantOf(id); !ok || !got.Equal(at.Truncate(time.Millisecond)) {
			t.Errorf("%s tells %s, %t, want %s", id, got, ok, at)
		}
		if again := db.NewIDAt(at); again == id {
			t.Errorf("%s was minted twice", id)
		}
	}
	before := time.Now().Truncate(time.Millisecond)
	if got, ok := db.InstantOf(db.NewID()); !ok || got.Before(before) || got.After(time.Now()) {
		t.Errorf("an id of now tells %s, %t", got, ok)
	}
	for _, id := range []string{
		"", "x", "00000000-0000-4000-8000-000000000000", "0197742A-8C00-7000-8000-000000000402", "0197742a8c0070008000000000000402",
	} {
		if at, ok := db.InstantOf(id); ok {
			t.Errorf("%q tells %s", id, at)
		}
	}
}

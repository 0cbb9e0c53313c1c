package main

import (
	"context"
	"errors"
	"testing"

	"guildhall/internal/base/db"
)

// A kind of rows that comes as fast as it is deleted keeps no other waiting, and
// no step is taken that has nothing to do.
func TestPruneReachesEveryKind(t *testing.T) {
	t.Parallel()
	calls := map[string]int{}
	step := func(name string, found ...int) func(context.Context, db.Doer) (int, error) {
		return func(context.Context, db.Doer) (int, error) {
			n := found[min(calls[name], len(found)-1)]
			calls[name]++
			if n < 0 {
				return 0, errors.New(name)
			}
			return n, nil
		}
	}
	err := prune(t.Context(), nil,
		step("endless", 1000), step("trickle", 7), step("two and a bit", 1000, 1000, 3), step("broken", 1000, -1), step("nothing", 0))
	if err == nil || err.Error() != "broken" {
		t.Errorf("the failure of one kind is told as %v", err)
	}
	for name, want := range map[string]int{"endless": pruneRounds, "trickle": 1, "two and a bit": 3, "broken": 2, "nothing": 1} {
		if calls[name] != want {
			t.Errorf("%s: %d steps, want %d", name, calls[name], want)
		}
	}
}

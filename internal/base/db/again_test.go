package db

import (
	"errors"
	"testing"
	"time"

	"github.com/lib/pq"
)

// RELIABILITY.md, Operation.
func TestAMigrationGivesUpOnALockInTheEnd(t *testing.T) {
	t.Parallel()
	// Two errors after which a migration retries: a lock timeout, and a deadlock.
	held, deadlock := &pq.Error{Code: "55P03"}, &pq.Error{Code: "40P01"}
	for _, c := range []struct {
		lockedFor int
		locked    error
		then      error
		tries     int
		fails     bool
	}{
		{0, held, nil, 1, false},
		{2, held, nil, 3, false},
		{9, held, nil, 4, true},
		{1, held, errors.New("no such column"), 2, true},
		{2, deadlock, nil, 3, false},
		{9, deadlock, nil, 4, true},
	} {
		tries := 0
		err := againWhileLocked(t.Context(), 4, time.Microsecond, func() error {
			if tries++; tries <= c.lockedFor {
				return c.locked
			}
			return c.then
		})
		if tries != c.tries || (err != nil) != c.fails {
			t.Errorf("%v %d times: %d tries, %v", c.locked, c.lockedFor, tries, err)
		}
		if c.lockedFor > c.tries && !errors.Is(err, c.locked) {
			t.Errorf("the last error is lost: %v", err)
		}
	}
}

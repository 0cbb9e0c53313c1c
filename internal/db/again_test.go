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
	locked := &pq.Error{Code: "55P03"}
	for _, c := range []struct {
		lockedFor int
		then      error
		tries     int
		fails     bool
	}{{0, nil, 1, false}, {2, nil, 3, false}, {9, nil, 4, true}, {1, errors.New("no such column"), 2, true}} {
		tries := 0
		err := againWhileLocked(t.Context(), 4, time.Microsecond, func() error {
			if tries++; tries <= c.lockedFor {
				return locked
			}
			return c.then
		})
		if tries != c.tries || (err != nil) != c.fails {
			t.Errorf("locked %d times: %d tries, %v", c.lockedFor, tries, err)
		}
		if c.lockedFor > c.tries && !LockTimeout(err) {
			t.Errorf("the last error is lost: %v", err)
		}
	}
}

package dbtest

import (
	"context"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/testutil"
)

// Command is one concurrent operation of a test, with a gate of its own for its requests to
// Postgres.
type Command struct {
	Name string
	Gate *Gate
	Stop int // the command is held back after this many requests to Postgres
	Fate Fate
	Run  func(ctx context.Context) error

	Err  error // the error that Run returned
	Died bool  // the held request met a fate other than Pass

	done chan struct{}
}

// Ran reports whether the command was started.
func (c *Command) Ran() bool { return c.done != nil }

// Interleave runs commands concurrently, in a chosen order: each command but the last is held back
// between two of its requests while the next one runs until that one has ended, is held back
// itself, or waits for a lock. No command starts after one that waits for a lock. Interleave
// returns when all have ended, and when Postgres has ended the transactions of commands whose
// connection was cut.
func Interleave(t testutil.Test, d *db.DB, commands ...*Command) {
	t.Helper()
	died := false
	for _, c := range commands {
		if c.begin(); !c.halts(t, d) {
			break
		}
	}
	for _, c := range commands {
		if c.Ran() {
			c.Gate.Open()
		}
	}
	for _, c := range commands {
		if c.Ran() {
			testutil.Eventually(t, c.Name+" ends", c.ended)
			c.Died = c.Gate.Open()
			died = died || c.Died
		}
	}
	if died {
		testutil.Eventually(t, "Postgres ends what the dead have begun", func() bool {
			return Value[int](t, d, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
				AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'`) == 0
		})
	}
}

func (c *Command) begin() {
	c.done = make(chan struct{})
	c.Gate.Arm(c.Stop, c.Fate)
	go func() {
		defer close(c.done)
		c.Err = c.Run(context.Background())
	}()
}

// beforeAsking is how long a command runs before Postgres is asked whether it waits for a lock.
const beforeAsking = 4 * time.Millisecond

// halts waits until the command has ended, is held back, or waits for a lock. It returns false if
// it waits for a lock: then no further command may start.
func (c *Command) halts(t testutil.Test, d *db.DB) bool {
	waits := false
	begun := time.Now()
	testutil.Eventually(t, c.Name+" halts", func() bool {
		if c.ended() || c.Gate.Reached() {
			return true
		}
		// Asking costs a query, thousands of times in a test, and most commands halt before
		// Postgres would have answered.
		waits = time.Since(begun) > beforeAsking && Waiting(t, d) > 0
		return waits
	})
	return !waits
}

func (c *Command) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

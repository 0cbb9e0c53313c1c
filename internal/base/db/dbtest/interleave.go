package dbtest

import (
	"context"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/testutil"
)

// Command is something that a worker or a request does, whose every request to
// Postgres passes a gate of its own.
type Command struct {
	Name string
	Gate *Gate
	Stop int // requests to Postgres before it is held back
	Fate Fate
	Run  func(ctx context.Context) error

	Err  error // what Run has returned
	Died bool  // the call that was held back has met another fate than to pass

	done chan struct{}
}

// Ran reports whether the command was begun.
func (c *Command) Ran() bool { return c.done != nil }

// Interleave runs some commands at once. Each but the last is held back between two of
// its requests until the next one has ended, is held back itself, or waits for a lock;
// none is begun after one that waits. It returns when all have ended, and Postgres has
// ended what those had begun that died.
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

// beforeAsking is how long a command goes on before Postgres is asked whether it waits.
const beforeAsking = 4 * time.Millisecond

// halts waits until the command has ended, is held back, or waits for a lock; it
// reports whether another may begin, which it may not in the last case.
func (c *Command) halts(t testutil.Test, d *db.DB) bool {
	waits := false
	begun := time.Now()
	testutil.Eventually(t, c.Name+" halts", func() bool {
		if c.ended() || c.Gate.Reached() {
			return true
		}
		// Most are there before Postgres has answered, which is asked thousands of times.
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

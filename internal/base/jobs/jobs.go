// Package jobs is the background work: River's queue in the same database, so
// that a job is enqueued by the transaction that makes it necessary, and sweeps
// (sweep.go), which look for what is to be done. The jobs and the work itself
// belong to the domains; this package knows none of them.
//
// Jobs are the quick way, not the only one: everything a job does follows from
// the state of its subject, so the sweeps find what a lost job has left undone.
package jobs

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/rivertype"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// queueName is the name of the one queue. Its jobs wait for the chat platform.
const queueName = "chat"

// Args is what one job is about: a struct that travels as JSON and names its
// kind. It holds ids and nothing secret, since it is logged when the job fails.
type Args interface {
	// Kind is the name of the job's kind, the same for all values of a type.
	Kind() string
}

// driver is River's driver without NOTIFY, which would take a database-wide
// lock at each commit. Workers poll instead.
type driver struct{ *riverdatabasesql.Driver }

// SupportsListenNotify keeps NOTIFY out of the units that enqueue.
func (driver) SupportsListenNotify() bool { return false }

// inserter enqueues; it has no pool and no workers of its own.
var inserter = sync.OnceValues(func() (*river.Client[txOf], error) {
	return river.NewClient(driver{riverdatabasesql.New(nil)}, &river.Config{Logger: slog.New(slog.DiscardHandler)})
})

// Enqueue stores jobs in the caller's unit. They become real with the commit
// and are started within a quarter of a second by one of the workers.
func Enqueue(ctx context.Context, tx *db.Tx, list ...Args) error {
	return insert(ctx, tx, river.UniqueOpts{}, list)
}

// EnqueueOnce is Enqueue, but leaves out a job that is there already, waiting or
// at work.
func EnqueueOnce(ctx context.Context, tx *db.Tx, list ...Args) error {
	return insert(ctx, tx, river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable,
		rivertype.JobStateRunning, rivertype.JobStateScheduled,
	}}, list)
}

func insert(ctx context.Context, tx *db.Tx, unique river.UniqueOpts, list []Args) error {
	if len(list) == 0 {
		return nil
	}
	client, err := inserter()
	if err != nil {
		return fault.Wrap(err, "enqueue")
	}
	opts := river.InsertOpts{Queue: queueName, MaxAttempts: maxAttempts, UniqueOpts: unique}
	params := make([]river.InsertManyParams, len(list))
	for i, args := range list {
		params[i] = river.InsertManyParams{Args: args, InsertOpts: &opts}
	}
	_, err = client.InsertManyFastTx(ctx, tx.Tx.Tx, params)
	return fault.Wrap(err, "enqueue", strconv.Itoa(len(list)), "of", list[0].Kind())
}

// A job that fails is tried again after growing pauses, until it is a day old.
const (
	maxAge      = 24 * time.Hour
	maxPause    = 15 * time.Minute
	maxAttempts = 250 // more than fit into a day
)

// growing is the retry policy: a second after the first failure, doubling up to
// a quarter of an hour, and a little more, so that what failed together does
// not come back together.
type growing struct{}

// NextRetry is when a failed job is tried again.
func (growing) NextRetry(job *rivertype.JobRow) time.Time {
	pause := time.Duration(math.Min(math.Pow(2, float64(len(job.Errors))), maxPause.Seconds()) * float64(time.Second))
	return time.Now().Add(pause + rand.N(pause/10+time.Millisecond)) //nolint:gosec // no secret
}

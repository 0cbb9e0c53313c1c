// Package jobs is the background work: River's queue in the same database, so
// that a job is enqueued by the transaction that makes it necessary. The work
// itself is a function of the domain it belongs to; this package imports none
// of them.
//
// Jobs are the quick way, not the only one: everything a job does follows from
// the state of its subject, so the sweeps (sweep.go) find what a lost job has
// left undone.
package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/rivertype"

	"guildhall/internal/db"
)

// The queues. What waits for the chat platform must not keep draws waiting.
const (
	queueDraws = "draws"
	queueChat  = "chat"
)

// DrawGiveaway draws the winners of a giveaway in state drawing. There is one
// such job per giveaway and round.
type DrawGiveaway struct {
	GuildID    string `json:"guild_id"`
	GiveawayID string `json:"giveaway_id"`
	Round      int    `json:"round"`
}

// Kind is the job's name in the queue.
func (DrawGiveaway) Kind() string { return "draw_giveaway" }

// InsertOpts makes the job unique.
func (DrawGiveaway) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: queueDraws, UniqueOpts: river.UniqueOpts{ByArgs: true}}
}

// AnnounceGiveaway posts the prepared chat intent that tells a giveaway's
// result.
type AnnounceGiveaway struct {
	GuildID  string `json:"guild_id"`
	IntentID string `json:"intent_id"`
}

// Kind is the job's name in the queue.
func (AnnounceGiveaway) Kind() string { return "announce_giveaway" }

// InsertOpts keeps the job among those that wait for the platform.
func (AnnounceGiveaway) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: queueChat} }

// SyncTicketChannel makes a ticket's channel follow the ticket: archived or
// deleted when it was closed, restored when it was reopened.
type SyncTicketChannel struct {
	GuildID  string `json:"guild_id"`
	TicketID string `json:"ticket_id"`
}

// Kind is the job's name in the queue.
func (SyncTicketChannel) Kind() string { return "sync_ticket_channel" }

// InsertOpts keeps the job among those that wait for the platform.
func (SyncTicketChannel) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: queueChat} }

// quiet is River's driver without NOTIFY, which would take a database-wide lock
// at each commit. Workers poll instead.
type quiet struct{ *riverdatabasesql.Driver }

// SupportsListenNotify keeps NOTIFY out of the units that enqueue.
func (quiet) SupportsListenNotify() bool { return false }

// inserter enqueues; it has no pool and no workers of its own.
var inserter = sync.OnceValues(func() (*river.Client[txOf], error) {
	return river.NewClient(quiet{riverdatabasesql.New(nil)}, &river.Config{Logger: slog.New(slog.DiscardHandler)})
})

// Enqueue stores a job in the caller's unit. It becomes real with the commit
// and is started within a quarter of a second by one of the workers. A unique
// job that is there already is left as it is.
func Enqueue(ctx context.Context, tx *db.Tx, args river.JobArgs, opts *river.InsertOpts) error {
	client, err := inserter()
	if err != nil {
		return fmt.Errorf("enqueue %s: %w", args.Kind(), err)
	}
	if _, err := client.InsertTx(ctx, tx.Tx.Tx, args, opts); err != nil {
		return fmt.Errorf("enqueue %s: %w", args.Kind(), err)
	}
	return nil
}

// EnqueueOnce is Enqueue unless the same job is there already, waiting or at
// work.
func EnqueueOnce(ctx context.Context, tx *db.Tx, args river.JobArgs) error {
	return Enqueue(ctx, tx, args, &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable,
		rivertype.JobStateRunning, rivertype.JobStateScheduled,
	}}})
}

// soon is the retry policy: a second after the first failure, doubling to ten
// minutes.
type soon struct{}

// NextRetry is when a failed job is tried again.
func (soon) NextRetry(job *rivertype.JobRow) time.Time {
	wait := time.Duration(math.Min(math.Pow(2, float64(len(job.Errors))), 600)) * time.Second
	from := time.Now()
	if job.AttemptedAt != nil {
		from = *job.AttemptedAt
	}
	return from.Add(wait)
}

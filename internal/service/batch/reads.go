package batch

import (
	"context"
	"errors"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/batcher"
	"guildhall/internal/base/db"
)

const (
	// enoughReads start a statement beside a running one. Fewer reads gain more by waiting:
	// a statement costs Postgres as much as ten further rows of another statement.
	enoughReads = 16

	// fewReads of different members gain nothing by sharing a statement: with eight
	// connections, sharing answers up to a fifth fewer reads.
	fewReads = 8

	// mostPages bounds the pages of a guild in a batch, which reads them one after the other:
	// deep pages take up to 0.2 s each while a large, just imported leaderboard has no rank
	// index yet.
	mostPages = 16

	// readTimeout is how long a read waits for its batch: earlier statements may have met a
	// cold disk or dead connections. After it the read falls back to a statement of its own.
	readTimeout = 500 * time.Millisecond
)

// Reads answers the queries of one operation: each with a statement of its own while few are
// running, and batched otherwise.
type Reads[Q any] struct {
	db      *db.DB
	one     func(ctx context.Context, q db.Querier, query Q) error
	each    func(ctx context.Context, q db.Querier, queries []Q) error
	batches *batcher.Batcher[Q]
}

// NewReads returns the Reads of an operation about a member. one answers one query, and each
// answers several queries in one statement.
func NewReads[Q any](h Host, operation string, one func(context.Context, db.Querier, Q) error, each func(context.Context, db.Querier, []Q) error) *Reads[Q] {
	return newReads(h, operation, Reads[Q]{one: one, each: each}, batcher.Config[Q]{Few: fewReads, PerGroup: h.OneGuild})
}

// NewPages returns the Reads of an operation that lists a guild: a page that several callers
// ask for is read once.
func NewPages[Q any](h Host, operation string, each func(context.Context, db.Querier, []Q) error) *Reads[Q] {
	one := func(ctx context.Context, q db.Querier, query Q) error { return each(ctx, q, []Q{query}) }
	return newReads(h, operation, Reads[Q]{one: one, each: each}, batcher.Config[Q]{Most: mostPages, Few: 1, PerGroup: true})
}

func newReads[Q any](h Host, operation string, r Reads[Q], cfg batcher.Config[Q]) *Reads[Q] {
	r.db = h.DB
	cfg.Run, cfg.Acquire, cfg.Enough, cfg.Started = r.run, h.DB.EnterReading, enoughReads, h.Started(operation)
	cfg.Timeout = func(context.Context) time.Duration { return readTimeout }
	cfg.OwnShare, cfg.Busy = batcher.ErrFallback, batcher.ErrFallback
	r.batches = batcher.New(cfg)
	return &r
}

// Do answers a query of by. The wait for other queries is charged to the request.
func (r *Reads[Q]) Do(ctx context.Context, by auth.By, query Q) error {
	begun := time.Now() //nolint:forbidigo // how long this process works or waits, no instant
	err := r.batches.Do(ctx, batcher.Caller{Group: by.GuildID, Name: by.ID}, query)
	fallback, ok := errors.AsType[*batcher.Fallback](err)
	if !ok {
		return err
	}
	defer fallback.Release()
	db.Charge(ctx, time.Since(begun))
	return r.one(ctx, db.Read(ctx), query)
}

// run answers a batch of queries in one statement. If the statement fails, each query falls
// back to a statement of its own, unless the statement has hung: the others would hang too.
func (r *Reads[Q]) run(ctx context.Context, queries []Q) error {
	begun := time.Now() //nolint:forbidigo // how long this process works or waits, no instant
	err := r.each(ctx, r.db.Reader(), queries)
	if err != nil && time.Since(begun) < readTimeout {
		return batcher.ErrFallback
	}
	return err
}

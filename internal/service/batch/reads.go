package batch

import (
	"context"
	"errors"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/collect"
	"guildhall/internal/base/db"
)

const (
	// enoughReads are worth a statement beside another one. Fewer gain more by waiting
	// for it: each statement costs Postgres as much as ten further rows of one.
	enoughReads = 16

	// fewReads of different members gain nothing by waiting for each other: with eight
	// connections up to a fifth fewer are answered where they do.
	fewReads = 8

	// mostPages bounds the pages of a guild that are read one after the other: deep ones
	// take up to 0.2 s each while a large leaderboard, just imported, has no map yet.
	mostPages = 16

	// readWait is how long a read waits for the statements before it, which may have
	// met a cold disk or dead connections. It is then made by itself.
	readWait = 500 * time.Millisecond
)

// Reads answers questions of one kind: by itself each, where few are asked, and
// otherwise together.
type Reads[Q any] struct {
	db        *db.DB
	one       func(ctx context.Context, q db.Querier, question Q) error
	each      func(ctx context.Context, q db.Querier, questions []Q) error
	collector *collect.Collector[Q]
}

// NewReads returns the questions of an operation about a member. one answers one, and
// each answers several in one statement.
func NewReads[Q any](h Host, operation string, one func(context.Context, db.Querier, Q) error, each func(context.Context, db.Querier, []Q) error) *Reads[Q] {
	return newReads(h, operation, Reads[Q]{one: one, each: each}, collect.Config[Q]{Few: fewReads, Apart: h.OneGuild})
}

// NewPages returns those of an operation about a guild: what several ask for is read
// once.
func NewPages[Q any](h Host, operation string, each func(context.Context, db.Querier, []Q) error) *Reads[Q] {
	one := func(ctx context.Context, q db.Querier, question Q) error { return each(ctx, q, []Q{question}) }
	return newReads(h, operation, Reads[Q]{one: one, each: each}, collect.Config[Q]{Most: mostPages, Few: 1, Apart: true})
}

func newReads[Q any](h Host, operation string, r Reads[Q], cfg collect.Config[Q]) *Reads[Q] {
	r.db = h.DB
	cfg.Run, cfg.Enter, cfg.Enough, cfg.Began = r.run, h.DB.EnterReading, enoughReads, h.Began(operation)
	cfg.Wait, cfg.OwnShare, cfg.Busy = func(context.Context) time.Duration { return readWait }, collect.Alone, collect.Alone
	r.collector = collect.New(cfg)
	return &r
}

// Do answers a question of by's. The time that it waits for others counts as waited.
func (r *Reads[Q]) Do(ctx context.Context, by auth.By, question Q) error {
	begun := time.Now() //nolint:forbidigo // how long this process works or waits, no instant
	err := r.collector.Do(ctx, collect.Caller{Group: by.GuildID, Name: by.ID}, "", question)
	left, ok := errors.AsType[*collect.Left](err)
	if !ok {
		return err
	}
	defer left.Release()
	db.Charge(ctx, time.Since(begun))
	return r.one(ctx, db.Read(ctx), question)
}

// run answers the questions of a batch in one statement. When that fails each is
// answered alone, unless it has hung: they would hang once more.
func (r *Reads[Q]) run(ctx context.Context, questions []Q) error {
	begun := time.Now() //nolint:forbidigo // how long this process works or waits, no instant
	err := r.each(ctx, r.db.Reader(), questions)
	if err != nil && time.Since(begun) < readWait {
		return collect.Alone
	}
	return err
}

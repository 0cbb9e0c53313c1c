package api

import (
	"context"
	"errors"
	"slices"
	"time"

	"guildhall/internal/base/collect"
	"guildhall/internal/base/db"
	"guildhall/internal/service/economy"
	"guildhall/internal/service/leaderboard"
	"guildhall/internal/service/levelling"
)

// reader answers the queries of one collected operation that reads.
type reader struct {
	db        *db.DB
	each      func(ctx context.Context, q db.Querier, queries []any) error
	few       int  // so many at once need not wait for each other; 0 means one
	apart     bool // a statement holds one guild's, and what several ask for is read once
	collector *collect.Collector[*wanted]
}

const (
	// enoughReads are worth a statement beside another one. Fewer gain more by waiting
	// for it: each statement costs Postgres as much as ten further rows of one.
	enoughReads = 16

	// fewReads of different members gain nothing by waiting for each other: with eight
	// connections up to a fifth fewer are answered where they do.
	fewReads = 8

	// lanesApart are statements of one guild each. Nothing is gained by waiting for
	// that of another guild, so there are as many as a pool has connections.
	lanesApart = 8

	// mostPages bounds the pages of a guild's leaderboard that are read one after the
	// other: deep ones take up to 0.2 s each for the seconds in which a large
	// leaderboard that was just imported has no map.
	mostPages = 16

	// patience is how long a read waits for the statements before it, which may have
	// met a cold disk or dead connections. It is then made by itself.
	patience = 500 * time.Millisecond
)

// errImpatient says that a read has waited for longer.
var errImpatient = errors.New("a read waits for no batch any more")

// readers are the operations that read and are collected.
func readers(d *db.DB, oneGuild bool, m *metrics) map[string]*reader {
	all := map[string]*reader{
		"getWallet":      {each: eachOf[any](economy.AnswerEach), few: fewReads},
		"getLevelRecord": {each: eachOf[any](levelling.AnswerEach), few: fewReads},

		"getEconomyLeaderboard":   {each: eachOf[any](leaderboard.Wallets.Answer), apart: true},
		"getLevellingLeaderboard": {each: eachOf[any](leaderboard.Levels.Answer), apart: true},
	}
	for id, r := range all {
		r.db = d
		cfg := config[*wanted](id, oneGuild || r.apart, m)
		cfg.Run, cfg.Enter, cfg.Enough, cfg.Few = r.run, d.EnterReading, enoughReads, r.few
		if cfg.Apart {
			cfg.Lanes = lanesApart
		}
		if r.apart {
			cfg.Most = mostPages
		}
		cfg.Wait, cfg.Waited, cfg.Late = patience, nil, func(bool) error { return errImpatient }
		r.collector = collect.New(cfg)
	}
	return all
}

// query serves an operation that reads: as any other read where few of its kind are
// on their way, else together with others.
func (u *units) query(rs *reqState, r *reader, next handler) (err error) {
	if r.collector.Now(func() { err = u.read(rs, next) }) {
		return err
	}
	q := &wanted{}
	if _, err := capture(context.WithValue(rs.ctx, wantedKey{}, q), rs, next); err != nil {
		return err
	}
	alone, begun := false, time.Now()
	err = r.collector.Do(rs.ctx, callerOf(rs), "", q, func() error {
		alone = true
		return u.read(rs, next)
	})
	switch {
	case errors.Is(err, errImpatient):
		db.Charge(rs.ctx, time.Since(begun))
		return u.read(rs, next)
	case err != nil || alone:
		return err
	}
	rs.Response().Writer = &whole{ResponseWriter: rs.Response().Writer, of: rs}
	return q.visit(rs.Response())
}

// run answers the queries of a batch in one statement. When that fails each is made
// alone, unless it has hung: they would hang once more.
func (r *reader) run(ctx context.Context, batch []*wanted) []error {
	queries := make([]any, len(batch))
	for i, q := range batch {
		queries[i] = q.of
	}
	begun := time.Now()
	err := r.each(ctx, r.db.Reader(), queries)
	if err != nil && time.Since(begun) < patience {
		err = collect.Alone
	}
	return slices.Repeat([]error{err}, len(batch))
}

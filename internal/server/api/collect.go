package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/collect"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/service/economy"
	"guildhall/internal/service/levelling"
)

// change is what a collected operation wants to have changed, as its domain knows
// it. Once it is decided the domain has its response.
type change interface {
	Subject() string // two changes of one subject are made one after the other
	UnderKey(r idempotency.Request)
	Referenced() bool
	Decided() bool
}

// member is a change on its way to a batch, and what its operation leaves there.
type member struct {
	wanted
	change
	key      *idempotency.Request // nil: it came without one
	response idempotency.Response // kept under the key
	refusal  error                // which the response says
}

// batcher makes the changes of one collected operation, as many as have arrived
// at once.
type batcher struct {
	db        *db.DB
	keys      idempotency.Keys
	each      func(ctx context.Context, q db.Querier, changes []change) error
	unit      bool // it takes more than one statement, and keeps responses under keys
	entries   *idempotency.Entries
	collector *collect.Collector[*member]
}

// collectors are the operations that are collected.
func collectors(d *db.DB, wallets *economy.Service, keys idempotency.Keys, oneGuild bool, m *metrics) map[string]*batcher {
	all := map[string]*batcher{
		"adjustBalance": {each: eachOf[change](wallets.AdjustEach)},
		// The level follows from the XP by a curve that the database does not know, so
		// what is told of it needs a second statement.
		"adjustXp": {each: eachOf[change](levelling.AdjustEach), unit: true},
	}
	for id, t := range all {
		t.db, t.keys, t.entries = d, keys, &idempotency.Entries{}
		cfg := config[*member](id, oneGuild, m)
		cfg.Run, cfg.Enter, cfg.Long = t.run, d.Enter, func(*member) bool { return t.unit }
		t.collector = collect.New(cfg)
	}
	return all
}

// config is what collected operations have in common.
func config[T any](id string, oneGuild bool, m *metrics) collect.Config[T] {
	sizes, waits := m.batches.WithLabelValues(id), m.waits.WithLabelValues(id)
	return collect.Config[T]{
		Apart: oneGuild, Waited: db.Waited,
		Late: func(own bool) error {
			if own {
				return db.ErrOwnShare
			}
			return db.ErrBusy
		},
		Began: func(size int, waited time.Duration) {
			sizes.Observe(float64(size))
			waits.Observe(waited.Seconds())
		},
	}
}

// eachOf is a domain's function for changes, or queries, of its own type.
func eachOf[Any, Own any](each func(context.Context, db.Querier, []Own) error) func(context.Context, db.Querier, []Any) error {
	return func(ctx context.Context, q db.Querier, list []Any) error {
		own := make([]Own, len(list))
		for i, v := range list {
			var ok bool
			if own[i], ok = any(v).(Own); !ok {
				return fmt.Errorf("a %T was collected for another operation", v)
			}
		}
		return each(ctx, q, own)
	}
}

// callerOf is on whose account a request is done together with others.
func callerOf(rs *reqState) collect.Caller {
	return collect.Caller{Group: rs.by.GuildID, Name: rs.by.ID}
}

// collected serves an operation that is done together with others. What a batch
// leaves undone, and what validation has refused, becomes a unit of its own.
func (u *units) collected(rs *reqState, t *batcher, next handler) error {
	if rs.key == "" {
		return u.join(rs, t, &member{}, next, func() (idempotency.Response, error) { return u.own(rs, next) })
	}
	return u.once(rs, func(r idempotency.Request) error {
		return u.join(rs, t, &member{key: &r}, next, func() (idempotency.Response, error) { return u.claimed(rs, r, next) })
	})
}

// join has m done together with others. own does it alone.
func (u *units) join(rs *reqState, t *batcher, m *member, next handler, own func() (idempotency.Response, error)) error {
	if rs.broken == nil {
		rs.broken = asked(rs, m, next)
	}
	if rs.broken != nil {
		response, err := own()
		if err != nil {
			return err
		}
		return send(rs, response)
	}
	alone := false
	err := t.collector.Do(rs.ctx, callerOf(rs), m.Subject(), m, func() (err error) {
		alone = true
		m.response, err = own()
		return err
	})
	if err != nil {
		return err
	}
	if !m.response.Replayed {
		u.wake(rs.by.GuildID)
	}
	switch {
	case alone:
		return send(rs, m.response)
	case t.unit && m.key != nil:
		rs.refusal = m.refusal
		return send(rs, m.response)
	}
	return m.visit(rs.Response())
}

// asked has the operation read its request, and gives m what it wants changed.
func asked(rs *reqState, m *member, next handler) error {
	if _, err := capture(context.WithValue(rs.ctx, wantedKey{}, &m.wanted), rs, next); err != nil {
		return err
	}
	var ok bool
	if m.change, ok = m.of.(change); !ok {
		return errors.New("an operation that is collected has left no change")
	}
	if m.key != nil {
		m.UnderKey(*m.key)
	}
	return nil
}

// run makes the changes of a batch: in one statement that is a transaction of its own,
// or in a unit that keeps their responses too. When it fails, and nothing of it is
// there, each member is made alone.
func (t *batcher) run(ctx context.Context, batch []*member) []error {
	var err error
	if t.unit {
		err = t.inUnit(ctx, batch)
	} else {
		err = t.inStatement(ctx, batch)
	}
	outcomes := make([]error, len(batch))
	for i, m := range batch {
		switch {
		case db.Uncertain(err):
			outcomes[i] = err
		case err != nil, !m.Decided():
			outcomes[i] = collect.Alone
		}
	}
	return outcomes
}

// inStatement leaves changes with keys alone as long as keys must not name what was
// made. Distributed tables take a unit, in which workers are told how long to wait.
func (t *batcher) inStatement(ctx context.Context, batch []*member) error {
	keyed := func(m *member) bool { return m.key != nil }
	if slices.ContainsFunc(batch, keyed) {
		named, err := t.entries.Named(ctx, t.db.Single())
		if err != nil {
			return err
		}
		if !named {
			batch = slices.DeleteFunc(slices.Clone(batch), keyed)
		}
	}
	switch {
	case len(batch) == 0:
		return nil
	case t.db.Distributed():
		return t.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error { return t.each(ctx, tx, changes(batch)) })
	}
	return t.each(ctx, t.db.Single(), changes(batch))
}

func (t *batcher) inUnit(ctx context.Context, batch []*member) (err error) {
	defer func() {
		if p := recover(); p != nil { // before the commit
			err = fmt.Errorf("a batch: %w", fault.Panicked(p))
		}
	}()
	return t.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := t.each(ctx, tx, changes(batch)); err != nil {
			return err
		}
		if !slices.ContainsFunc(batch, (*member).Decided) {
			return errUndone
		}
		var requests []idempotency.Request
		var responses []idempotency.Response
		for _, m := range batch {
			if m.key == nil || !m.Decided() {
				continue
			}
			if err := m.render(); err != nil {
				return err
			}
			requests, responses = append(requests, *m.key), append(responses, m.response)
		}
		if len(requests) == 0 {
			return nil
		}
		return t.keys.KeepEach(ctx, tx, requests, responses)
	})
}

// errUndone gives up a unit that has decided nothing.
var errUndone = errors.New("a batch is given up")

// renderEntry is the body of the response to the change of a balance.
func renderEntry(ctx context.Context, q db.Querier, guild, id string, at time.Time) ([]byte, error) {
	response, err := economy.Adjusted(ctx, q, guild, id, at)
	if err != nil {
		return nil, err
	}
	b := &buffer{header: http.Header{}}
	err = response.VisitAdjustBalanceResponse(b)
	return b.body.Bytes(), err
}

func changes(batch []*member) []change {
	list := make([]change, len(batch))
	for i, m := range batch {
		list[i] = m.change
	}
	return list
}

// render makes the response that is kept under the key.
func (m *member) render() error {
	b := &buffer{header: http.Header{}}
	err := m.visit(b)
	m.refusal = nil // the unit may have been run before
	if kept(err) {
		f, _ := fault.As(err)
		writeFault(b, f)
		m.refusal, err = err, nil
	}
	m.response = b.response()
	return err
}

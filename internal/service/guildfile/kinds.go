package guildfile

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/schema"
	"guildhall/internal/base/wire"
	"guildhall/internal/service/cases"
	"guildhall/internal/service/economy"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/guilds"
	"guildhall/internal/service/levelling"
	"guildhall/internal/service/network"
	"guildhall/internal/service/tickets"
	"guildhall/internal/service/transfer"
)

// newKinds are the kinds of record, each in a place where what it needs comes
// before: the order in which a batch goes in and an export is written.
func newKinds() []kind {
	curve := guilds.Curve{Base: levelling.Base, Linear: levelling.Linear, Quadratic: levelling.Quadratic}
	return []kind{
		of(guilds.Records(curve)),
		of(guilds.Settings(curve)),
		of(cases.Records),
		of(economy.Wallets),
		of(economy.References),
		of(levelling.Records),
		of(tickets.Records),
		of(tickets.Transcripts),
		of(giveaways.Records),
		of(giveaways.Entrants),
		of(giveaways.Draws),
		of(network.Records),
	}
}

// kind is one kind of record with those of its rows that wait to be stored.
type kind interface {
	name() string
	// read adds a record that holds value and text. It returns what the record
	// needs and what it defines.
	read(line int64, value any, found []schema.Problem, text []byte, b *batch) (needs []transfer.Ref, defines *transfer.Ref, err error)
	// load stores the rows; finish is done once, when all are in.
	load(ctx context.Context, tx *db.Tx) error
	finish(ctx context.Context, tx *db.Tx) error
	// date gives what has come in the instant at which all was in.
	date(ctx context.Context, tx *db.Tx, at time.Time) error
	// came notes guilds whose rows came in another way, for date.
	came(guilds map[string]bool)
	// keep drops the rows from a line on.
	keep(before int64)
	// find is the statement that looks for what others need, empty if none do.
	find() string
	export(ctx context.Context, tx *db.Tx, guild string, w io.Writer) error
}

type waiting[R any] struct {
	transfer.Kind[R]
	check  func(value any, found []schema.Problem) []schema.Problem
	rows   []R
	lines  []int64
	guilds map[string]bool // whose rows came in, if they have to be finished
}

func of[R any](k transfer.Kind[R]) kind {
	return &waiting[R]{Kind: k, check: schema.Named(k.Schema), guilds: make(map[string]bool)}
}

func (w *waiting[R]) name() string { return w.Name }
func (w *waiting[R]) find() string { return w.Find }

func (w *waiting[R]) read(line int64, value any, found []schema.Problem, text []byte, b *batch) (needs []transfer.Ref, defines *transfer.Ref, err error) {
	if found = w.check(value, found); len(found) > 0 {
		return nil, nil, errors.New(describe(found))
	}
	row, err := w.Read(text, b.now)
	if err != nil {
		return nil, nil, err
	}
	if w.Settle != nil && b.made[w.Guild(&row)] {
		w.Settle(&row, wire.At(b.now))
	}
	w.rows, w.lines = append(w.rows, row), append(w.lines, line)
	if w.Guild != nil {
		guild := w.Guild(&row)
		needs = append(needs, transfer.Ref{Kind: "guild", Guild: guild, ID: guild})
	}
	if w.Needs != nil {
		needs = append(needs, w.Needs(&row)...)
	}
	if w.Defines != nil {
		ref := w.Defines(&row)
		defines = &ref
	}
	return needs, defines, nil
}

func (w *waiting[R]) load(ctx context.Context, tx *db.Tx) error {
	err := w.Load(ctx, tx, w.rows)
	if refused, ok := errors.AsType[*transfer.Refused](err); ok {
		return &LineError{Line: w.lines[refused.Row], Kind: w.Name, Reason: refused.Reason}
	}
	if err != nil {
		return fault.Wrap(err, "import")
	}
	if w.Finish != nil || w.Dated != nil {
		for i := range w.rows {
			w.guilds[w.of(&w.rows[i])] = true
		}
	}
	return nil
}

// of is the guild of a row, which may be the row itself.
func (w *waiting[R]) of(r *R) string {
	if w.Guild == nil {
		return w.Defines(r).Guild
	}
	return w.Guild(r)
}

func (w *waiting[R]) finish(ctx context.Context, tx *db.Tx) error {
	if w.Finish == nil {
		return nil
	}
	for _, guild := range sorted(w.guilds) {
		if err := w.Finish(ctx, tx, guild); err != nil {
			return fault.Wrap(err, "import")
		}
	}
	return nil
}

func (w *waiting[R]) date(ctx context.Context, tx *db.Tx, at time.Time) error {
	for _, guild := range sorted(w.guilds) {
		for _, c := range w.Dated {
			if err := c.Date(ctx, tx, guild, at); err != nil {
				return fault.Wrap(err, "import")
			}
		}
	}
	return nil
}

func (w *waiting[R]) came(guilds map[string]bool) { maps.Copy(w.guilds, guilds) }

func (w *waiting[R]) keep(before int64) {
	n := 0
	for n < len(w.lines) && w.lines[n] < before {
		n++
	}
	clear(w.rows[n:])
	w.rows, w.lines = w.rows[:n], w.lines[:n]
}

// export writes a guild's records, each with its kind before its members.
func (w *waiting[R]) export(ctx context.Context, tx *db.Tx, guild string, out io.Writer) error {
	if w.Guild == nil && w.Export == "" {
		return nil // they belong to no guild
	}
	line := lineWriter{out: out, head: []byte(`{"record":"` + w.Name + `",`)}
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	err := w.Each(ctx, tx, guild, func(row *R) error { return enc.Encode(row) })
	return fault.Wrap(err, "export each", w.Name, "of guild", guild)
}

// lineWriter puts the kind of a record in place of the brace that its object
// begins with. An encoder writes each value in one piece.
type lineWriter struct {
	out  io.Writer
	head []byte
}

func (l *lineWriter) Write(object []byte) (int, error) {
	if _, err := l.out.Write(l.head); err != nil {
		return 0, err
	}
	n, err := l.out.Write(object[1:])
	return n + 1, err
}

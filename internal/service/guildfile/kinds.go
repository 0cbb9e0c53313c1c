package guildfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/schema"
	"guildhall/internal/base/wire"
	"guildhall/internal/contract"
	"guildhall/internal/service/cases"
	"guildhall/internal/service/economy"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/guilds"
	"guildhall/internal/service/levelling"
	"guildhall/internal/service/members"
	"guildhall/internal/service/network"
	"guildhall/internal/service/tickets"
	"guildhall/internal/service/transfer"
)

// newKinds returns the kinds of record in the order of their dependencies: the order in which a
// batch is stored and an export is written.
func newKinds() []kind {
	curve := guilds.Curve{Base: levelling.Base, Linear: levelling.Linear, Quadratic: levelling.Quadratic}
	return []kind{
		of(guilds.Records(curve)),
		of(guilds.Settings(curve)),
		of(cases.Records),
		of(cases.Changes),
		of(members.Records),
		of(economy.Wallets),
		of(economy.References),
		of(levelling.Records),
		of(tickets.Records),
		of(tickets.Transcripts),
		of(giveaways.Records),
		of(giveaways.Entrants),
		of(giveaways.Disqualified),
		of(giveaways.Draws),
		of(network.Records),
	}
}

// kind buffers the parsed rows of one record kind until they are stored.
type kind interface {
	name() string
	// read checks a line and buffers its row. It returns what the row needs, and what it defines
	// for later lines.
	read(l fileLine, b *batch) (needs []transfer.Ref, defines *transfer.Ref, err error)
	// load stores the buffered rows; finish is called once, after all rows are stored.
	load(ctx context.Context, tx *db.Tx) error
	finish(ctx context.Context, tx *db.Tx) error
	// date sets the instant of imported rows to the end of the import.
	date(ctx context.Context, tx *db.Tx, at time.Time) error
	// came adds the guilds whose rows records have created or changed.
	came(guilds map[string]bool)
	// keep drops the buffered rows of a line and of all later lines.
	keep(before int64)
	// waits returns the number of buffered rows.
	waits() int64
	// leave drops buffered rows that are stored already, and rows that are part of something which
	// inserted does not contain, and returns their guilds. If a stored row
	// differs, it returns a *LineError. A dry run passes stood: it stores nothing, so what earlier
	// batches have named counts as stored.
	leave(ctx context.Context, tx *db.Tx, now time.Time, stood *transfer.Stood, inserted map[transfer.Ref]bool) (guilds []string, err error)
	// find returns the statement that looks up what others need, or "".
	find() string
	export(ctx context.Context, tx *db.Tx, guild string, w io.Writer) error
}

type waiting[R any] struct {
	transfer.Kind[R]
	check   func(value any, found []schema.Problem) []schema.Problem
	rows    []R
	from    []source
	guilds  map[string]bool // guilds with stored rows that have to be finished
	changed map[string]bool // guilds whose rows records have created or changed
}

// source is the line of a row.
type source struct {
	line int64
	text []byte // kept if the row may be stored already
}

func of[R any](k transfer.Kind[R]) kind {
	return &waiting[R]{Kind: k, check: contract.Checker(k.Schema), guilds: make(map[string]bool), changed: make(map[string]bool)}
}

func (w *waiting[R]) name() string { return w.Name }
func (w *waiting[R]) find() string { return w.Find }

func (w *waiting[R]) read(l fileLine, b *batch) (needs []transfer.Ref, defines *transfer.Ref, err error) {
	if found := w.check(l.members, l.found); len(found) > 0 {
		return nil, nil, errors.New(describe(found))
	}
	row, err := w.Read(l.text, b.now)
	if err != nil {
		return nil, nil, err
	}
	if w.SetInstant != nil && b.made[w.Guild(&row)] {
		w.SetInstant(&row, wire.At(b.now))
	}
	from := source{line: l.number}
	if w.Fixed != nil {
		from.text = append(from.text, l.text...)
	}
	w.rows, w.from = append(w.rows, row), append(w.from, from)
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
		return &LineError{Line: w.from[refused.Row].line, Kind: w.Name, Reason: refused.Reason}
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

// of returns the guild of a row, which may be the row itself.
func (w *waiting[R]) of(r *R) string {
	if w.Guild == nil {
		return w.Defines(r).Guild
	}
	return w.Guild(r)
}

func (w *waiting[R]) finish(ctx context.Context, tx *db.Tx) error {
	if err := inEach(ctx, tx, w.guilds, w.Finish); err != nil || w.Writer == nil {
		return err
	}
	return inEach(ctx, tx, w.changed, w.Writer.Finish)
}

// inEach calls do for each of the guilds, unless do is nil.
func inEach(ctx context.Context, tx *db.Tx, guilds map[string]bool, do func(ctx context.Context, tx *db.Tx, guild string) error) error {
	if do == nil {
		return nil
	}
	for _, guild := range sorted(guilds) {
		if err := do(ctx, tx, guild); err != nil {
			return fault.Wrap(err, "import")
		}
	}
	return nil
}

func (w *waiting[R]) date(ctx context.Context, tx *db.Tx, at time.Time) error {
	pending := maps.Clone(w.guilds)
	maps.Copy(pending, w.changed)
	for _, guild := range sorted(pending) {
		for _, c := range w.Dated {
			if err := c.Date(ctx, tx, guild, at); err != nil {
				return fault.Wrap(err, "import")
			}
		}
	}
	return nil
}

func (w *waiting[R]) came(guilds map[string]bool) { maps.Copy(w.changed, guilds) }

func (w *waiting[R]) keep(before int64) {
	n := 0
	for n < len(w.from) && w.from[n].line < before {
		n++
	}
	clear(w.rows[n:])
	clear(w.from[n:])
	w.rows, w.from = w.rows[:n], w.from[:n]
}

func (w *waiting[R]) waits() int64 { return int64(len(w.rows)) }

// leaveParts drops the rows that are part of something which inserted does not contain.
func (w *waiting[R]) leaveParts(inserted map[transfer.Ref]bool) (guilds []string) {
	if w.Fixed.With == nil {
		return nil
	}
	var rows []R
	var from []source
	for i := range w.rows {
		if !inserted[w.Fixed.With(&w.rows[i])] {
			guilds = append(guilds, w.of(&w.rows[i]))
			continue
		}
		rows, from = append(rows, w.rows[i]), append(from, w.from[i])
	}
	w.rows, w.from = rows, from
	return guilds
}

func (w *waiting[R]) leave(ctx context.Context, tx *db.Tx, now time.Time, stood *transfer.Stood, inserted map[transfer.Ref]bool) (guilds []string, err error) {
	if w.Fixed == nil {
		return nil, nil
	}
	if guilds = w.leaveParts(inserted); len(w.rows) == 0 {
		return guilds, nil
	}
	list, err := w.Fixed.There(ctx, tx, w.rows)
	if err != nil {
		return nil, fault.Wrap(err, "import")
	}
	there := make(map[string]*R, len(list))
	for i := range list {
		there[w.Fixed.Name(&list[i])] = &list[i]
	}
	var rows []R
	var from []source
	for i := range w.rows {
		name := w.Fixed.Name(&w.rows[i])
		was := there[name]
		if was == nil && stood.Already(transfer.Ref{Kind: w.Name, ID: name}) {
			continue
		}
		if was == nil {
			there[name] = &w.rows[i]
			rows, from = append(rows, w.rows[i]), append(from, w.from[i])
			continue
		}
		differ, err := w.Differs(*was, w.from[i].text, now)
		if err != nil {
			return nil, fault.Wrap(err, "import")
		}
		if len(differ) > 0 {
			reason := fmt.Sprintf("%s is there already and never changes, but the line differs in %s", name, strings.Join(differ, ", "))
			return nil, &LineError{Line: w.from[i].line, Kind: w.Name, Reason: reason}
		}
		if w.Guild != nil {
			guilds = append(guilds, w.Guild(was))
		}
	}
	w.rows, w.from = rows, from
	return guilds, nil
}

// export writes a guild's records, each with its kind before the other members.
func (w *waiting[R]) export(ctx context.Context, tx *db.Tx, guild string, out io.Writer) error {
	if w.Guild == nil && w.Export == "" {
		return nil // the rows belong to no guild
	}
	line := lineWriter{out: out, head: []byte(`{"record":"` + w.Name + `",`)}
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	err := w.Each(ctx, tx, guild, func(row *R) error { return enc.Encode(row) })
	return fault.Wrap(err, "export each", w.Name, "of guild", guild)
}

// lineWriter inserts a record's kind in place of the opening brace. It relies on the encoder
// writing each value at once.
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

package guildfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/service/cases"
	"guildhall/internal/service/guilds"
	"guildhall/internal/service/records"
	"guildhall/internal/service/transfer"
)

// Update holds the options of an import that updates existing data.
type Update struct {
	Balances transfer.Balances // what happens to stored wallets and levels
	DryRun   bool              // lock nothing and store nothing
}

// Outcome counts the results of the records of one kind.
type Outcome struct {
	Record    string `json:"record"`
	Created   int64  `json:"created"`
	Updated   int64  `json:"updated"`
	Unchanged int64  `json:"unchanged"`
	Kept      int64  `json:"kept"`
}

// Run imports a guild file into existing data: it changes stored things as the records say, creates
// the missing ones, and deletes nothing; all of it or nothing. The kinds must be in the order of an
// export. Rows of kinds that never change are inserted if they are missing, and refused if they
// differ.
func (u Update) Run(ctx context.Context, d *db.DB, r io.Reader, progress func(bytes, records int64)) ([]Outcome, error) {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	var outcomes []Outcome
	work := func(ctx context.Context, tx *db.Tx) error {
		if outcomes != nil {
			return errBrokenOff
		}
		outcomes = []Outcome{}
		if err := takeTime(ctx, tx); err != nil {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return fault.Wrap(err, "import")
		}
		b := &updates{batch: newBatch(tx, now), how: u, counts: make(map[string]*Outcome), byGuild: make(map[string]*guildCall), there: make(map[string]bool), changed: make(map[string]map[string]bool), inserted: make(map[transfer.Ref]bool), stood: transfer.NewStood()}
		if u.DryRun {
			b.held = guilds.Leaving
		}
		if _, err = load(ctx, b, r, progress); err != nil {
			return err
		}
		for _, k := range b.kinds {
			if o := b.counts[k.name()]; o != nil {
				outcomes = append(outcomes, *o)
			}
		}
		return nil
	}
	do := d.Do
	if u.DryRun {
		do = d.Snapshot
	}
	if err := do(ctx, work); err != nil {
		return nil, err
	}
	return outcomes, nil
}

// updates buffers records until they are written together. Records of kinds without a Writer are
// handled as in a plain import.
type updates struct {
	*batch
	how     Update
	counts  map[string]*Outcome
	there   map[string]bool            // guilds that exist
	changed map[string]map[string]bool // guilds with new rows, by kind
	stood   *transfer.Stood
	calls   []*guildCall

	inserted map[transfer.Ref]bool // cases that the file inserts: their changes come with them
	byGuild  map[string]*guildCall
	waiting  int
	size     int
}

// guildCall holds the batches of one guild.
type guildCall struct {
	guild   string
	call    *transfer.Call
	batches []transfer.Batch
	byName  map[string]transfer.Batch
	lines   []*lineRecord
	makes   bool
}

// lineRecord is a record with the number of its line in the guild file.
type lineRecord struct {
	transfer.Record
	line int64
	kind string
}

// add buffers a line with the records of its guild or, if the rows of its kind never change, as a
// plain import does.
func (u *updates) add(l fileLine) *LineError {
	c := u.of(l.guild)
	b, writes := c.byName[l.kind]
	if !writes {
		return u.batch.add(l)
	}
	wrong := func(reason string) *LineError { return &LineError{Line: l.number, Kind: l.kind, Reason: reason} }
	if found := append(l.found, b.Check(l.members)...); len(found) > 0 {
		return wrong(describe(found))
	}
	if l.guild == "" {
		return wrong("guild_id is required")
	}
	rec := &lineRecord{Record: transfer.Record{Text: bytes.Clone(l.text), Members: l.members}, line: l.number, kind: l.kind}
	again, err := b.Add(c.call, &rec.Record)
	if err != nil {
		return wrong(err.Error())
	}
	if again {
		return wrong("what it names stands in a line before already")
	}
	c.lines = append(c.lines, rec)
	c.makes = c.makes || l.kind == "guild"
	u.waiting++
	u.size += len(l.text)
	return nil
}

// of returns the guildCall of a guild.
func (u *updates) of(guild string) *guildCall {
	if c := u.byGuild[guild]; c != nil {
		return c
	}
	c := &guildCall{guild: guild}
	c.begin(u)
	u.calls = append(u.calls, c)
	u.byGuild[guild] = c
	return c
}

// begin gives the guild empty batches.
func (c *guildCall) begin(u *updates) {
	c.call = &transfer.Call{By: auth.System(c.guild), Now: u.now, Look: u.how.DryRun, Import: &transfer.Import{Balances: u.how.Balances, Stood: u.stood, Named: u.known}}
	c.batches, c.byName = records.Batches(), make(map[string]transfer.Batch)
	for _, b := range c.batches {
		c.byName[b.Name()] = b
	}
}

// again starts again with some of the lines.
func (c *guildCall) again(u *updates, lines []*lineRecord) error {
	c.begin(u)
	for _, rec := range lines {
		rec.Record = transfer.Record{Text: rec.Text, Members: rec.Members}
		if _, err := c.byName[rec.kind].Add(c.call, &rec.Record); err != nil {
			return fmt.Errorf("import: line %d: %w", rec.line, err)
		}
	}
	return nil
}

func (u *updates) count(kind string) *Outcome {
	if u.counts[kind] == nil {
		u.counts[kind] = &Outcome{Record: kind}
	}
	return u.counts[kind]
}

func (u *updates) full() bool {
	return u.waiting >= batchRecords || u.size >= batchBytes || u.batch.full()
}

// refuse returns the error for a line, unless an earlier line of the batch is wrong too: the lines
// before it are written first, alone.
func (u *updates) refuse(ctx context.Context, wrong *LineError) error {
	u.stood = nil // without Stood, since it already contains these lines
	u.keep(wrong.Line)
	for _, c := range u.calls {
		c.lines = slices.DeleteFunc(c.lines, func(rec *lineRecord) bool { return rec.line >= wrong.Line })
		c.makes = slices.ContainsFunc(c.lines, func(rec *lineRecord) bool { return rec.kind == "guild" })
		if err := c.again(u, c.lines); err != nil {
			return err
		}
	}
	if earlier, ok := errors.AsType[*LineError](u.flush(ctx)); ok {
		return earlier
	}
	return wrong
}

// pieceRecords is how many records are rewritten together: as many as a bot's call may have.
const pieceRecords = 500

// flush writes the buffered records guild by guild, and then the rows of a plain import, which may
// need them. Others write to the same guilds meanwhile: a batch that conflicts with a row of theirs
// is rewritten in pieces, each of which may be retried. A whole batch could conflict every time if
// others insert rows all the time.
func (u *updates) flush(ctx context.Context) error {
	times, made := 0, make(map[string]int64)
	err := u.tx.Part(ctx, func() error {
		times++
		for _, c := range u.calls {
			write := u.inPieces
			if times == 1 {
				write = u.write
			}
			if err := write(ctx, c); err != nil {
				return err
			}
		}
		if err := u.leave(ctx); err != nil {
			return err
		}
		for _, k := range u.kinds {
			made[k.name()] = k.waits()
		}
		if !u.how.DryRun {
			return u.batch.flush(ctx)
		}
		u.needs = slices.DeleteFunc(u.needs, func(n need) bool { return u.known[n.Ref] })
		err := u.resolve(ctx)
		u.empty()
		return err
	})
	if wrong, ok := errors.AsType[*LineError](err); ok {
		return u.refuse(ctx, wrong)
	}
	if err != nil {
		return err
	}
	for kind, n := range made {
		if n > 0 {
			u.count(kind).Created += n
		}
	}
	for _, c := range u.calls {
		u.tally(c)
	}
	u.calls, u.waiting, u.size = nil, 0, 0
	clear(u.byGuild)
	return nil
}

// leave drops the buffered rows of kinds that never change if they are stored already, or if they
// are part of something that was stored before the file.
func (u *updates) leave(ctx context.Context) error {
	for _, c := range u.calls {
		for _, rec := range c.lines {
			if rec.kind == cases.Records.Name && rec.Result == transfer.Created {
				u.inserted[transfer.Ref{Kind: rec.kind, Guild: c.guild, ID: rec.ID}] = true
			}
		}
	}
	var stood *transfer.Stood
	if u.how.DryRun {
		stood = u.stood
	}
	for _, k := range u.kinds {
		waiting := k.waits()
		guilds, err := k.leave(ctx, u.tx, u.now, stood, u.inserted)
		if err != nil {
			return err
		}
		if left := waiting - k.waits(); left > 0 {
			u.count(k.name()).Unchanged += left
		}
		for _, guild := range guilds {
			u.brought[guild]--
		}
	}
	return nil
}

// inPieces writes a guild's batches in parts of the transaction.
func (u *updates) inPieces(ctx context.Context, c *guildCall) error {
	for piece := range slices.Chunk(c.lines, pieceRecords) {
		err := u.tx.Part(ctx, func() error {
			if err := c.again(u, piece); err != nil {
				return err
			}
			return u.write(ctx, c)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// write writes a guild's batches.
func (u *updates) write(ctx context.Context, c *guildCall) error {
	if len(c.lines) == 0 {
		return nil
	}
	if guild := c.guild; !u.there[guild] {
		leaving, err := u.held(ctx, u.tx, guild)
		if err != nil {
			return fault.Wrap(err, "import")
		}
		if _, there := leaving[guild]; !there && c.makes {
			c.batches = records.MakingFirst(c.batches)
		} else if reason := unfit(leaving, guild); reason != "" {
			return &LineError{Line: c.lines[0].line, Kind: c.lines[0].kind, Reason: reason}
		}
	}
	if err := records.Write(ctx, u.tx, c.call, c.batches, c.refused); err != nil {
		if _, ok := errors.AsType[*LineError](err); ok {
			return err
		}
		return fault.Wrap(err, "import")
	}
	return nil
}

// tally counts the results of a guild's records.
func (u *updates) tally(c *guildCall) {
	u.there[c.guild] = u.there[c.guild] || len(c.lines) > 0
	for _, rec := range c.lines {
		o := u.count(rec.kind)
		switch rec.Result {
		case transfer.Created:
			o.Created++
		case transfer.Updated:
			o.Updated++
		case transfer.Kept:
			o.Kept++
		default:
			o.Unchanged++
		}
		if rec.Result != transfer.Created && rec.Result != transfer.Updated {
			continue
		}
		u.brought[c.guild]++
		if u.changed[rec.kind] == nil {
			u.changed[rec.kind] = make(map[string]bool)
		}
		u.changed[rec.kind][c.guild] = true
	}
}

// refused returns the error of the first refused line, if any.
func (c *guildCall) refused() error {
	for _, rec := range c.lines {
		if rec.Err == nil {
			continue
		}
		reason := rec.Err.Error()
		if f, ok := fault.As(rec.Err); ok {
			reason = strings.TrimPrefix(f.Message, "body ")
		}
		return &LineError{Line: rec.line, Kind: rec.kind, Reason: reason}
	}
	return nil
}

func (u *updates) finish(ctx context.Context, total int64) error {
	if u.how.DryRun {
		return nil
	}
	for _, k := range u.kinds {
		k.came(u.changed[k.name()])
	}
	return u.batch.finish(ctx, total)
}

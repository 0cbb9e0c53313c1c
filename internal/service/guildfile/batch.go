package guildfile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/schema"
	"guildhall/internal/service/guilds"
	"guildhall/internal/service/transfer"
)

// knownLimit bounds how many existing guilds, tickets and giveaways are remembered; others are
// looked up again.
const knownLimit = 50_000

// manyRecords is the number of imported records from which on a guild's tables are analysed.
const manyRecords = 10_000

// need is something that a line names and that must exist, or a guild that the line creates.
type need struct {
	transfer.Ref
	line int64
	by   string
}

// batch buffers records until they are stored together.
type batch struct {
	tx      *db.Tx
	now     time.Time
	records int
	bytes   int
	known   map[transfer.Ref]bool
	made    map[string]bool  // guilds that this file creates
	brought map[string]int64 // number of records by guild
	needs   []need
	kinds   []kind
	byName  map[string]kind
	held    func(ctx context.Context, tx *db.Tx, guilds ...string) (leaving map[string]bool, err error)
}

func newBatch(tx *db.Tx, now time.Time) *batch {
	b := &batch{tx: tx, now: now.UTC(), known: make(map[transfer.Ref]bool), made: make(map[string]bool), brought: make(map[string]int64), kinds: newKinds(), byName: make(map[string]kind)}
	b.held = guilds.Held
	for _, k := range b.kinds {
		b.byName[k.name()] = k
	}
	return b
}

// add checks one line and buffers its row.
func (b *batch) add(l fileLine) *LineError {
	k, ok := b.byName[l.kind]
	if !ok {
		return &LineError{Line: l.number, Reason: fmt.Sprintf("there is no record kind %q", schema.Printable(l.kind))}
	}
	needs, defines, err := k.read(l, b)
	if err != nil {
		return &LineError{Line: l.number, Kind: l.kind, Reason: err.Error()}
	}
	// What the line needs and no earlier line defines must exist in the database, which is checked
	// before the batch is stored.
	for _, r := range needs {
		if !b.known[r] {
			b.needs = append(b.needs, need{r, l.number, l.kind})
		}
	}
	if defines != nil {
		b.known[*defines] = true
		if defines.Kind == "guild" {
			b.made[defines.ID] = true
			b.needs = append(b.needs, need{*defines, l.number, l.kind})
		}
	}
	if l.guild != "" {
		b.brought[l.guild]++
	}
	b.records++
	b.bytes += len(l.text)
	return nil
}

func (b *batch) full() bool { return b.records >= batchRecords || b.bytes >= batchBytes }

// describe names members as paths, such as levelling.curve.base.
func describe(found []schema.Problem) string {
	return schema.Join(found, func(p schema.Problem) string {
		return strings.TrimSpace(strings.ReplaceAll(strings.TrimPrefix(p.Place, "/"), "/", ".") + " " + p.Message())
	})
}

// flush stores the buffered rows. If a line is refused, the error names the first refused line of
// the file.
func (b *batch) flush(ctx context.Context) error {
	if _, err := db.Exec(ctx, b.tx, `SAVEPOINT batch`); err != nil {
		return fault.Wrap(err, "import")
	}
	err := b.send(ctx)
	if wrong, ok := errors.AsType[*LineError](err); ok {
		if _, err := db.Exec(ctx, b.tx, `ROLLBACK TO batch`); err != nil {
			return wrong
		}
		return b.refuse(ctx, wrong)
	}
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, b.tx, `RELEASE batch`); err != nil {
		return fault.Wrap(err, "import")
	}
	b.empty()
	if len(b.known) > knownLimit {
		clear(b.known)
	}
	return nil
}

// empty clears the buffer.
func (b *batch) empty() {
	b.records, b.bytes = 0, 0
	b.keep(0)
}

// keep drops the rows of a line and of all later lines.
func (b *batch) keep(before int64) {
	b.needs = slices.DeleteFunc(b.needs, func(n need) bool { return n.line >= before })
	for _, k := range b.kinds {
		k.keep(before)
	}
}

// refuse returns the error for a line, unless an earlier line of the batch is wrong too: kinds are
// stored one after the other, and an unreadable line is noticed before lines that only the database
// refuses.
func (b *batch) refuse(ctx context.Context, wrong *LineError) error {
	b.keep(wrong.Line)
	if earlier, ok := errors.AsType[*LineError](b.flush(ctx)); ok {
		return earlier
	}
	return wrong
}

// send stores the rows in the order of their dependencies.
func (b *batch) send(ctx context.Context) error {
	if err := b.resolve(ctx); err != nil {
		return err
	}
	for _, k := range b.kinds {
		if err := k.load(ctx, b.tx); err != nil {
			return err
		}
	}
	return nil
}

// resolve looks up what the batch's records need and the file has not defined.
func (b *batch) resolve(ctx context.Context) error {
	slices.SortFunc(b.needs, func(x, y need) int { return int(x.line - y.line) })
	if err := b.hold(ctx); err != nil {
		return err
	}
	for _, k := range b.kinds {
		if k.find() == "" {
			continue
		}
		if err := b.look(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// hold locks the guilds that lines name, so that they exist until the import ends. A line that
// would create a guild that is being removed is refused too.
func (b *batch) hold(ctx context.Context) error {
	of := make(map[string]bool)
	for _, n := range b.needs {
		if n.Kind == "guild" {
			of[n.ID] = true
		}
	}
	if len(of) == 0 {
		return nil
	}
	held, err := b.held(ctx, b.tx, sorted(of)...)
	if err != nil {
		return fault.Wrap(err, "import")
	}
	for _, n := range b.needs {
		if _, there := held[n.ID]; n.Kind != "guild" || !there && n.by == "guild" {
			continue
		}
		if reason := unfit(held, n.ID); reason != "" {
			return &LineError{Line: n.line, Kind: n.by, Reason: reason}
		}
		b.known[n.Ref] = true
	}
	return nil
}

func (b *batch) look(ctx context.Context, k kind) error {
	var of, ids []string
	asked := make(map[transfer.Ref]bool)
	for _, n := range b.needs {
		if n.Kind == k.name() && !asked[n.Ref] {
			asked[n.Ref] = true
			of, ids = append(of, n.Guild), append(ids, n.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := db.Select[struct{ Guild, ID string }](ctx, b.tx, k.find(), db.Array(of), db.Array(ids))
	if err != nil {
		return fault.Wrap(err, "import: look up each", k.name(), "that the file names")
	}
	there := make(map[transfer.Ref]bool, len(found))
	for _, r := range found {
		there[transfer.Ref{Kind: k.name(), Guild: r.Guild, ID: r.ID}] = true
	}
	for _, n := range b.needs {
		if n.Kind == k.name() && !there[n.Ref] {
			return &LineError{Line: n.line, Kind: n.by, Reason: missing(n.Ref)}
		}
	}
	maps.Copy(b.known, there)
	return nil
}

// unfit returns why nothing can be imported into a guild, or "".
func unfit(leaving map[string]bool, guild string) string {
	is, there := leaving[guild]
	switch {
	case !there:
		return missing(transfer.Ref{Kind: "guild", ID: guild})
	case is:
		return fmt.Sprintf("guild %s is being removed; guildhall guild restore takes it back before its day", guild)
	}
	return ""
}

func missing(r transfer.Ref) string {
	if r.Kind == "guild" {
		return fmt.Sprintf("guild %s is neither in the lines before nor in the database", r.ID)
	}
	return fmt.Sprintf("%s %q of guild %s is neither in the lines before nor in the database", r.Kind, r.ID, r.Guild)
}

// finish is called once, after the last batch.
func (b *batch) finish(ctx context.Context, total int64) error {
	for _, k := range b.kinds {
		if err := k.finish(ctx, b.tx); err != nil {
			return err
		}
	}
	if err := b.audit(ctx); err != nil {
		return err
	}
	if err := b.date(ctx); err != nil {
		return err
	}
	if total < manyRecords {
		return nil
	}
	// Without this, the next reads of the guild would be planned with statistics of a small or
	// empty table.
	_, err := db.Exec(ctx, b.tx, `
		ANALYZE cases, case_changes, wallets, ledger_entries, levels, tickets, ticket_messages,
		        giveaways, giveaway_entries, network_listings`)
	return fault.Wrap(err, "import: look at what came in")
}

// audit adds a row about the import to the audit log of each guild.
func (b *batch) audit(ctx context.Context) error {
	maps.DeleteFunc(b.brought, func(_ string, records int64) bool { return records == 0 })
	for some := range slices.Chunk(sorted(b.brought), 1000) {
		var changes []audit.Change
		for _, g := range some {
			changes = append(changes, audit.Change{
				Guild: g, Action: audit.GuildImported, Target: g, Name: "guild file", After: map[string]any{"records": b.brought[g]},
			})
		}
		if err := audit.Record(ctx, b.tx, changes...); err != nil {
			return err
		}
	}
	return nil
}

// date sets the instant of everything imported to the end of the import. From here on it is like
// any other write: a reader of lists by instant reads again from 15 s before the newest instant, so
// the commit must follow soon.
func (b *batch) date(ctx context.Context) error {
	at, err := db.Get[time.Time](ctx, b.tx, `SELECT clock_timestamp()`)
	if err != nil {
		return fault.Wrap(err, "import")
	}
	for _, k := range b.kinds {
		if err := k.date(ctx, b.tx, at); err != nil {
			return err
		}
	}
	return nil
}

func sorted[V any](set map[string]V) []string { return slices.Sorted(maps.Keys(set)) }

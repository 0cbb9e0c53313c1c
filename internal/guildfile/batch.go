package guildfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"guildhall/internal/db"
)

// knownLimit bounds how many guilds, tickets and giveaways are remembered as
// existing; those forgotten are looked up again.
const knownLimit = 50_000

// target is a table that records are copied into.
type target struct {
	table   string
	columns []string
	// refusals explains the constraints that a well-formed record can break.
	refusals map[string]string
	rows     [][]any
	lines    []int64
	kinds    []string
}

func (t *target) put(line int64, kind string, row ...any) {
	t.rows = append(t.rows, row)
	t.lines = append(t.lines, line)
	t.kinds = append(t.kinds, kind)
}

// keep drops the rows of the lines that which is false for.
func (t *target) keep(which func(line int64) bool) {
	n := 0
	for i, line := range t.lines {
		if which(line) {
			t.rows[n], t.lines[n], t.kinds[n] = t.rows[i], line, t.kinds[i]
			n++
		}
	}
	clear(t.rows[n:])
	t.rows, t.lines, t.kinds = t.rows[:n], t.lines[:n], t.kinds[:n]
}

// ref is something that a record names and that must exist.
type ref struct {
	kind  string // guild, ticket or giveaway
	guild string
	id    string
}

type wanted struct {
	ref
	line int64
	by   string
}

// batch collects records and copies them into their tables.
type batch struct {
	tx      *db.Tx
	now     time.Time
	records int
	bytes   int
	known   map[ref]bool
	wanted  []wanted
	closing map[string]bool // guilds with giveaways whose time was over
	ranked  map[string]bool // guilds whose leaderboards have grown
	to      targets
}

func newBatch(tx *db.Tx, now time.Time) *batch {
	return &batch{tx: tx, now: now.UTC(), known: make(map[ref]bool), closing: make(map[string]bool), ranked: make(map[string]bool), to: newTargets()}
}

// add reads one line into the batch and returns its kind.
func (b *batch) add(line int64, p *parser, text []byte) (string, *LineError) {
	members, err := p.object(text)
	if err != nil {
		return "", &LineError{Line: line, Reason: err.Error()}
	}
	f := newFields(members)
	v := f.take("record", false)
	if v == nil || v.kind != isString {
		return "", &LineError{Line: line, Reason: `has no member "record" that names its kind`}
	}
	read, ok := readers[v.text]
	if !ok {
		return "", &LineError{Line: line, Reason: fmt.Sprintf("there is no record kind %q", v.text)}
	}
	kind := v.text
	read(b, &record{line: line, kind: kind, fields: f})
	if reason := f.done(); reason != "" {
		return "", &LineError{Line: line, Kind: kind, Reason: reason}
	}
	b.records++
	b.bytes += len(text)
	return kind, nil
}

// defines notes that the file has brought in r, so that later lines may name it.
func (b *batch) defines(r ref) { b.known[r] = true }

// needs notes that a line names r. What this file has not defined before that
// line must be in the database, which is asked before the batch goes in.
func (b *batch) needs(rec *record, r ref) {
	if !b.known[r] {
		b.wanted = append(b.wanted, wanted{r, rec.line, rec.kind})
	}
}

// flush copies what was collected into the tables. When a line is refused, the
// error names the first line of the file that is.
func (b *batch) flush(ctx context.Context) error {
	if _, err := b.tx.ExecContext(ctx, `SAVEPOINT batch`); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	err := b.send(ctx)
	var wrong *LineError
	if errors.As(err, &wrong) {
		if _, err := b.tx.ExecContext(ctx, `ROLLBACK TO batch`); err != nil {
			return wrong
		}
		return b.refuse(ctx, wrong)
	}
	if err != nil {
		return err
	}
	if _, err := b.tx.ExecContext(ctx, `RELEASE batch`); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	for _, t := range []*target{&b.to.wallets, &b.to.levels} {
		for _, row := range t.rows {
			b.ranked[row[0].(string)] = true
		}
	}
	b.records, b.bytes, b.wanted = 0, 0, b.wanted[:0]
	b.to.each(func(t *target) { t.keep(func(int64) bool { return false }) })
	if len(b.known) > knownLimit {
		clear(b.known)
	}
	return nil
}

// refuse returns the error for a line, unless an earlier line of the batch is
// wrong too: tables are filled one after the other, and a line that cannot be
// read is seen before those that only the database finds wrong.
func (b *batch) refuse(ctx context.Context, wrong *LineError) error {
	before := func(line int64) bool { return line < wrong.Line }
	b.wanted = slices.DeleteFunc(b.wanted, func(w wanted) bool { return !before(w.line) })
	b.to.each(func(t *target) { t.keep(before) })
	var earlier *LineError
	if errors.As(b.flush(ctx), &earlier) {
		return earlier
	}
	return wrong
}

// send fills the tables in the order in which rows refer to one another.
func (b *batch) send(ctx context.Context) error {
	if err := b.resolve(ctx); err != nil {
		return err
	}
	if err := b.copy(ctx, &b.to.guilds); err != nil {
		return err
	}
	if err := b.replaceDefaultSettings(ctx); err != nil {
		return err
	}
	if err := b.number(ctx); err != nil {
		return err
	}
	for _, t := range b.to.afterGuilds() {
		var before func(context.Context) error
		switch t {
		case &b.to.messages:
			before = b.count
		case &b.to.entries:
			before = b.room
		case &b.to.draws:
			before = b.rounds
		}
		if before != nil {
			if err := before(ctx); err != nil {
				return err
			}
		}
		if err := b.copy(ctx, t); err != nil {
			return err
		}
	}
	return b.giveDefaultSettings(ctx)
}

// resolve looks up what the batch's records name and the file did not define.
func (b *batch) resolve(ctx context.Context) error {
	slices.SortFunc(b.wanted, func(x, y wanted) int { return int(x.line - y.line) })
	for _, k := range [...]struct{ kind, query string }{
		{"guild", `SELECT id AS guild, id FROM guilds WHERE id = ANY($1) AND id = ANY($2)`},
		{"ticket", `
			SELECT guild_id AS guild, id FROM tickets
			WHERE (guild_id, id) IN (SELECT * FROM unnest($1::text[], $2::text[]))`},
		{"giveaway", `
			SELECT guild_id AS guild, id FROM giveaways
			WHERE (guild_id, id) IN (SELECT * FROM unnest($1::text[], $2::text[]))`},
	} {
		var guilds, ids []string
		asked := make(map[ref]bool)
		for _, w := range b.wanted {
			if w.kind == k.kind && !asked[w.ref] {
				asked[w.ref] = true
				guilds, ids = append(guilds, w.guild), append(ids, w.id)
			}
		}
		if len(ids) == 0 {
			continue
		}
		var found []struct{ Guild, ID string }
		if err := b.tx.SelectContext(ctx, &found, k.query, db.Array(guilds), db.Array(ids)); err != nil {
			return fmt.Errorf("import: look up each %s that the file names: %w", k.kind, err)
		}
		there := make(map[ref]bool, len(found))
		for _, r := range found {
			there[ref{k.kind, r.Guild, r.ID}] = true
		}
		for _, w := range b.wanted {
			if w.kind == k.kind && !there[w.ref] {
				return &LineError{Line: w.line, Kind: w.by, Reason: missing(w.ref)}
			}
		}
		for r := range there {
			b.known[r] = true
		}
	}
	return nil
}

func missing(r ref) string {
	if r.kind == "guild" {
		return fmt.Sprintf("guild %s is neither in the lines before nor in the database", r.id)
	}
	return fmt.Sprintf("%s %q of guild %s is neither in the lines before nor in the database", r.kind, r.id, r.guild)
}

// copy sends a target's rows.
func (b *batch) copy(ctx context.Context, t *target) error {
	if len(t.rows) == 0 {
		return nil
	}
	at := 0
	err := db.Copy(ctx, b.tx, t.table, t.columns, func() ([]any, error) {
		if at == len(t.rows) {
			return nil, io.EOF
		}
		at++
		return t.rows[at-1], nil
	})
	if err != nil {
		return t.explain(err)
	}
	return nil
}

// explain names the line of the file that Postgres refused.
func (t *target) explain(err error) error {
	n, ok := db.CopyLine(err)
	if !ok || n < 1 || n > len(t.lines) {
		return fmt.Errorf("import: %w", err)
	}
	e := &LineError{Line: t.lines[n-1], Kind: t.kinds[n-1]}
	for constraint, reason := range t.refusals {
		if db.Violates(err, constraint) {
			e.Reason = reason
			return e
		}
	}
	e.Reason = fmt.Sprintf("the database refuses it: %s", err)
	return e
}

// replaceDefaultSettings makes room for settings records: a guild that came in
// without one was given the defaults, and a row that says nothing else is no
// loss. Any other row stays, and the record that meets it is an error.
func (b *batch) replaceDefaultSettings(ctx context.Context) error {
	for _, r := range b.to.settings.rows {
		guild := r[0].(string)
		if _, err := b.tx.ExecContext(ctx, `
			DELETE FROM guild_settings
			WHERE guild_id = $1
			  AND (moderation, economy, levelling, tickets, giveaways, network)
			    = (true, true, true, true, true, true)
			  AND (currency_name, currency_symbol, require_close_reason, close_action, timezone)
			    = ('coins', '🪙', false, 'archive', 'UTC')`, guild); err != nil {
			return fmt.Errorf("import: replace the default settings of guild %s: %w", guild, err)
		}
	}
	return nil
}

// giveDefaultSettings gives settings to the batch's guilds that have none: every
// guild has settings. A record of them that comes later replaces these.
func (b *batch) giveDefaultSettings(ctx context.Context) error {
	if len(b.to.guilds.rows) == 0 {
		return nil
	}
	ids := make([]string, 0, len(b.to.guilds.rows))
	for _, r := range b.to.guilds.rows {
		ids = append(ids, r[0].(string))
	}
	if _, err := b.tx.ExecContext(ctx, `
		INSERT INTO guild_settings (guild_id)
		SELECT unnest($1::text[])
		ON CONFLICT DO NOTHING`, db.Array(ids)); err != nil {
		return fmt.Errorf("import: give guilds their settings: %w", err)
	}
	return nil
}

// Package guildfile reads and writes guild files: newline-delimited JSON with one record a line.
// They import a bot's existing data, move a guild to another installation, and create the demo
// guild. The package handles lines, their order, their references and batches; the domains
// (transfer.Kind) and the contract's schemas define what a record is. It records no events.
package guildfile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/schema"
)

const (
	// maxLine bounds the bytes of a record. The largest valid records, messages of tickets and
	// giveaways with many winners, are far smaller.
	maxLine = 1 << 20

	// The size of a batch, which is buffered in memory before it is copied into the tables. Each
	// batch costs a savepoint, and a transaction with more than 64 savepoints slows down others;
	// with this size a million wallets need fewer.
	batchRecords = 16_384
	batchBytes   = 4 << 20
)

// Summary counts what an import has stored.
type Summary struct {
	Records int64
	Bytes   int64
	Kinds   map[string]int64 // number of records by kind
}

// LineError says what is wrong with one line of a guild file.
type LineError struct {
	Line   int64
	Kind   string // the record's kind; empty if unknown
	Reason string
}

func (e *LineError) Error() string {
	if e.Kind == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Kind, e.Reason)
}

// Import imports a guild file in one transaction: all of it, or nothing. An error in a record is
// returned as a *LineError with the line's number. Memory does not grow with the file. progress may
// be nil; it is called now and then with the bytes and records read so far.
//
// After a deadlock the transaction fails and is not retried, because the reader can be read only
// once.
func Import(ctx context.Context, d *db.DB, r io.Reader, progress func(bytes, records int64)) (Summary, error) {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	var sum Summary
	started := false
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if started {
			return errBrokenOff
		}
		started = true
		if err := takeTime(ctx, tx); err != nil {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return fault.Wrap(err, "import")
		}
		sum, err = load(ctx, newBatch(tx, now), r, progress)
		return err
	})
	if err != nil {
		return Summary{}, err
	}
	return sum, nil
}

var errBrokenOff = errors.New("import: the database broke off the transaction because of other work on the same guild; run the import again")

// takeTime removes the timeouts meant for requests: the reader may be a slow pipe and the file
// long.
func takeTime(ctx context.Context, tx *db.Tx) error {
	if err := tx.TakeTime(ctx, 0); err != nil {
		return fault.Wrap(err, "import")
	}
	_, err := db.Exec(ctx, tx, `SET LOCAL lock_timeout = '30s'`)
	return fault.Wrap(err, "import")
}

// buffer holds parsed lines until they are stored together.
type buffer interface {
	// add checks one line and buffers its record.
	add(l fileLine) *LineError
	// full reports whether it is time to flush.
	full() bool
	// flush stores the buffered records.
	flush(ctx context.Context) error
	// refuse returns the error for a line, unless an earlier buffered line is wrong too.
	refuse(ctx context.Context, wrong *LineError) error
	// finish is called once, after the last flush.
	finish(ctx context.Context, total int64) error
}

// fileLine is one parsed line. Its text is valid until the next line is read.
type fileLine struct {
	number  int64
	text    []byte
	kind    string           // the record's kind, which may be unknown
	guild   string           // the guild that the record belongs to; empty if it names none
	members map[string]any   // the whole object, including the kind
	found   []schema.Problem // problems with duplicate members
}

// parse parses a line as a JSON object that names a kind.
func parse(number int64, text []byte) (fileLine, *LineError) {
	l := fileLine{number: number, text: text}
	value, found, ok := schema.Read(text, maxLine, "")
	if !ok {
		return l, &LineError{Line: number, Reason: describe(found)}
	}
	if l.members, ok = value.(map[string]any); !ok {
		return l, &LineError{Line: number, Reason: "is not a JSON object"}
	}
	if l.kind, ok = l.members["record"].(string); !ok {
		return l, &LineError{Line: number, Reason: `has no member "record" that names its kind`}
	}
	guild := "guild_id"
	if l.kind == "guild" {
		guild = "id"
	}
	l.guild, _ = l.members[guild].(string)
	l.found = found
	return l, nil
}

// load reads r to its end, batch by batch.
func load(ctx context.Context, b buffer, r io.Reader, progress func(bytes, records int64)) (Summary, error) {
	sum := Summary{Kinds: make(map[string]int64)}
	in := bufio.NewReaderSize(r, maxLine)
	for line := int64(1); ; line++ {
		text, err := in.ReadSlice('\n')
		last := errors.Is(err, io.EOF)
		if errors.Is(err, bufio.ErrBufferFull) {
			return sum, b.refuse(ctx, &LineError{Line: line, Reason: fmt.Sprintf("is longer than %d bytes", maxLine)})
		}
		if err != nil && !last {
			return sum, fmt.Errorf("line %d: read the file: %w", line, err)
		}
		sum.Bytes += int64(len(text))
		if line == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			l, wrong := parse(line, text)
			if wrong == nil {
				wrong = b.add(l)
			}
			if wrong != nil {
				return sum, b.refuse(ctx, wrong)
			}
			sum.Records++
			sum.Kinds[l.kind]++
		}
		if b.full() || last {
			if err := b.flush(ctx); err != nil {
				return sum, err
			}
			progress(sum.Bytes, sum.Records)
		}
		if last {
			return sum, b.finish(ctx, sum.Records)
		}
	}
}

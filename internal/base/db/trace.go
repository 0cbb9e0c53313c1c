package db

import (
	"context"
	"database/sql/driver"
	"regexp"
	"strings"
	"sync"

	"guildhall/internal/base/tracing"
)

// beginSpan starts the span of a statement, if ctx is traced. The span covers the time until
// Postgres returns the first row, and for a statement's first use on a connection also its
// preparation.
func beginSpan(ctx context.Context, query string) tracing.Span {
	if !tracing.Within(ctx) {
		return tracing.Span{}
	}
	s := summaryOf(query)
	span := tracing.Statement(ctx, s.text())
	span.Set("db.system.name", "postgresql")
	span.Set("db.operation.name", s.verb)
	span.Set("db.collection.name", s.table)
	return span
}

// endSpan ends a statement's span. For an error the span contains the code only, since the message
// may contain values.
func endSpan(span tracing.Span, err error) {
	if err != nil {
		span.Fail(codeOf(err))
	}
	span.End()
}

// summary is what a span says of a statement: the verb and the table.
type summary struct{ verb, table string }

func (s summary) text() string {
	if s.table == "" {
		return s.verb
	}
	return s.verb + " " + s.table
}

// Our statements write keywords in capitals, tables and columns in lower case.
var (
	wordPattern     = regexp.MustCompile(`^[\s(]*(?:--[^\n]*\n\s*)*([A-Za-z]+)`)
	changePattern   = regexp.MustCompile(`\b(INSERT INTO|UPDATE|DELETE FROM)\s+(?:[a-z_]+\.)?([a-z_][a-z_0-9]*)`)
	functionPattern = regexp.MustCompile(`^\s*SELECT\s+([a-z_]+)\(`)
	sourcePattern   = regexp.MustCompile(`\bFROM\s+(?:[a-z_]+\.)?([a-z_][a-z_0-9]*)\b(\()?`)
	ctePattern      = regexp.MustCompile(`\b([a-z_][a-z_0-9]*)(?:\s*\([a-z_, ]*\))?\s+AS\s+(?:MATERIALIZED\s+)?\(`)
)

// summaries caches summaries by the statement's text. The program's own statements are literals;
// maxPrepared bounds the cache for statements that libraries compose.
var summaries = struct {
	sync.Mutex
	of map[string]summary
}{of: make(map[string]summary)}

func summaryOf(query string) summary {
	summaries.Lock()
	defer summaries.Unlock()
	s, known := summaries.of[query]
	if !known {
		s = summarize(query)
	}
	if !known && len(summaries.of) < maxPrepared {
		summaries.of[query] = s
	}
	return s
}

// summarize returns the first table that a statement changes; if there is none, the function that
// it calls or the first table that it reads.
func summarize(query string) summary {
	if m := changePattern.FindStringSubmatch(query); m != nil {
		verb, _, _ := strings.Cut(m[1], " ")
		return summary{verb, m[2]}
	}
	first := wordPattern.FindStringSubmatch(query)
	if first == nil {
		return summary{verb: "statement"}
	}
	if verb := strings.ToUpper(first[1]); verb != "SELECT" && verb != "WITH" {
		return summary{verb: verb}
	}
	if m := functionPattern.FindStringSubmatch(query); m != nil && !sourcePattern.MatchString(query) {
		return summary{"SELECT", m[1]}
	}
	ours := map[string]bool{}
	for _, m := range ctePattern.FindAllStringSubmatch(query, -1) {
		ours[m[1]] = true
	}
	for _, m := range sourcePattern.FindAllStringSubmatch(query, -1) {
		if m[2] == "" && !ours[m[1]] {
			return summary{"SELECT", m[1]}
		}
	}
	return summary{verb: "SELECT"}
}

// tracedTx is a traced transaction: its COMMIT or ROLLBACK gets a span too.
type tracedTx struct {
	driver.Tx
	ctx context.Context
}

func (t tracedTx) Commit() error {
	span := beginSpan(t.ctx, "COMMIT")
	err := t.Tx.Commit()
	endSpan(span, err)
	return err
}

func (t tracedTx) Rollback() error {
	span := beginSpan(t.ctx, "ROLLBACK")
	err := t.Tx.Rollback()
	endSpan(span, err)
	return err
}

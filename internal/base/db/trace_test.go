package db

import (
	"context"
	"testing"

	"guildhall/internal/base/tracing"
)

// A span contains the verb and the table of a statement and none of its values.
func TestAStatementIsToldByItsKindAndItsTable(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		`SELECT balance FROM wallets WHERE user_id = 'secret'`:                                                     "SELECT wallets",
		`SELECT EXISTS (SELECT FROM public.guilds WHERE id = $1)`:                                                  "SELECT guilds",
		`INSERT INTO cases (id) VALUES ($1)`:                                                                       "INSERT cases",
		`INSERT INTO a (b) VALUES ($1) ON CONFLICT (b) DO UPDATE SET b = excluded.b`:                               "INSERT a",
		`UPDATE tickets SET subject = 'FROM elsewhere' WHERE id = $1`:                                              "UPDATE tickets",
		`DELETE FROM idempotency_keys WHERE key = $1`:                                                              "DELETE idempotency_keys",
		"\n\t\tWITH w AS (\n\t\t\tUPDATE wallets SET balance = 1 RETURNING *\n) SELECT * FROM w":                   "UPDATE wallets",
		`WITH o AS MATERIALIZED (SELECT * FROM unnest($1)) SELECT * FROM o JOIN d ON true`:                         "SELECT",
		`WITH o (a, b) AS (SELECT * FROM unnest($1)) SELECT * FROM o, x WHERE EXISTS (SELECT FROM webhook_events)`: "SELECT webhook_events",
		`SELECT * FROM webhook_schedule s FOR NO KEY UPDATE SKIP LOCKED`:                                           "SELECT webhook_schedule",
		`SELECT record_event($1, $2)`:                                                                              "SELECT record_event",
		`SELECT now()`:                                                                                             "SELECT now",
		`-- why` + "\n" + `LOCK TABLE x`:                                                                           "LOCK",
		`BEGIN`:                                                                                                    "BEGIN",
		`DO 'BEGIN END'`:                                                                                           "DO",
		`'unreadable'`:                                                                                             "statement",
	} {
		if got := summarize(query).text(); got != want {
			t.Errorf("%s: told as %q, want %q", query, got, want)
		}
	}
}

// A statement that is not traced allocates nothing for tracing.
func TestAStatementThatIsNotTracedAllocatesNothing(t *testing.T) { //nolint:paralleltest // it counts allocations
	var ctx context.Context = steady{Context: As(t.Context(), Caller{Token: "t", Guild: "g"})}
	if n := testing.AllocsPerRun(100, func() {
		endSpan(beginSpan(ctx, `SELECT 1`), nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if beginSpan(ctx, `SELECT 1`) != (tracing.Span{}) {
		t.Error("there is a span")
	}
}

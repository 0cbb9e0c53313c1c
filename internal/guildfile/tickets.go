package guildfile

import (
	"context"
	"fmt"
	"maps"
	"time"

	"guildhall/internal/db"
)

func readTicket(b *batch, r *record) {
	guild, id := b.inGuild(r), b.ownID(r)
	status := or(r.oneOf("status", false, "open", "closed"), "open")
	created := or(r.instant("created_at", false), b.now)
	closed := r.instant("closed_at", false)
	reason := r.text("close_reason", false, 0, 1000)
	closer := r.snowflake("closed_by_id", false)
	if status == "open" {
		switch {
		case closed != nil:
			r.fail("closed_at", "belongs only to a ticket with the status closed")
		case reason != nil:
			r.fail("close_reason", "belongs only to a ticket with the status closed")
		case closer != nil:
			r.fail("closed_by_id", "belongs only to a ticket with the status closed")
		}
	} else if closed == nil {
		closed = &b.now
	}
	b.to.tickets.put(r.line, r.kind,
		guild, id,
		r.integer("number", false, 1, maxInteger),
		status,
		r.text("subject", false, 1, 256),
		or(r.snowflake("opener_id", true), ""),
		r.snowflake("claimed_by_id", false),
		r.snowflake("channel_id", false),
		reason, closer, created,
		or(r.instant("updated_at", false), latest(created, closed)),
		closed,
	)
	b.defines(ref{kind: "ticket", guild: guild, id: id})
}

func readTicketMessage(b *batch, r *record) {
	guild, ticket := b.inGuild(r), or(r.id("ticket_id", true), "")
	b.needs(r, ref{kind: "ticket", guild: guild, id: ticket})
	kind := or(r.oneOf("kind", false, "message", "note", "open", "close", "claim", "assign", "reopen"), "message")
	internal := or(r.boolean("internal"), kind == "note")
	if internal != (kind == "note") {
		r.fail("internal", "must be true for notes and false for everything else")
	}
	author := "system"
	if kind == "message" || kind == "note" {
		author = "staff"
	}
	b.to.messages.put(r.line, r.kind,
		guild, ticket,
		b.ownID(r),
		kind, internal,
		r.snowflake("author_id", false),
		or(r.oneOf("author_type", false, "opener", "staff", "bot", "system"), author),
		or(r.text("content", true, 1, 4000), ""),
		r.snowflake("channel_message_id", false),
		or(r.instant("created_at", false), b.now),
	)
}

// Where messages have their ticket's id, their kind and their instant.
const (
	messageTicket  = 1
	messageKind    = 3
	messageCreated = 9
)

// count adds the batch's messages to what their tickets show of them.
func (b *batch) count(ctx context.Context) error {
	type tally struct {
		n    int64
		last time.Time
	}
	tallies := make(map[ref]tally)
	for _, row := range b.to.messages.rows {
		if row[messageKind].(string) != "message" {
			continue
		}
		r := ref{kind: "ticket", guild: row[0].(string), id: row[messageTicket].(string)}
		t, at := tallies[r], row[messageCreated].(time.Time)
		tallies[r] = tally{t.n + 1, latest(t.last, &at)}
	}
	for guild, refs := range inGuilds(maps.Keys(tallies)) {
		var ids, counts, lasts []string
		for _, r := range refs {
			ids, counts = append(ids, r.id), append(counts, fmt.Sprint(tallies[r].n))
			lasts = append(lasts, tallies[r].last.Format(time.RFC3339Nano))
		}
		if _, err := b.tx.ExecContext(ctx, `
			WITH held AS (
				SELECT t.id, added.n::bigint, added.last::timestamptz
				FROM unnest($2::text[], $3::text[], $4::text[]) AS added (id, n, last)
				JOIN tickets t ON t.guild_id = $1 AND t.id = added.id
				ORDER BY t.id
				FOR NO KEY UPDATE OF t
			)
			UPDATE tickets t
			SET message_count = t.message_count + held.n,
			    last_message_at = greatest(t.last_message_at, held.last)
			FROM held
			WHERE t.guild_id = $1
			  AND t.id = held.id`, guild, db.Array(ids), db.Array(counts), db.Array(lasts)); err != nil {
			return fmt.Errorf("import: count the messages of tickets of guild %s: %w", guild, err)
		}
	}
	return nil
}

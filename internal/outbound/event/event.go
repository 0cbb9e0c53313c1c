// Package event is the outbox. Record stores an event in the caller's
// transaction; it neither sends nor waits. Sending is internal/outbound/delivery's work.
//
// An event becomes rows only if an endpoint of the guild listens to its type at
// that moment. Where the data is complete before the statement, Record renders
// the payload; a statement that alone knows a part of the data (the balance that
// it leaves behind) records the event itself, with the same steps (economy/tell.sql).
package event

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/tracing"
)

// The event types.
const (
	CaseCreated          = "case.created"
	CaseUpdated          = "case.updated"
	BalanceChanged       = "economy.balance_changed"
	LevelUp              = "xp.level_up"
	LevelDown            = "xp.level_down"
	GuildUpdated         = "guild.updated"
	TicketOpened         = "ticket.opened"
	TicketUpdated        = "ticket.updated"
	TicketMessage        = "ticket.message"
	TicketMessageUpdated = "ticket.message_updated"
	TicketClosed         = "ticket.closed"
	TicketClaimed        = "ticket.claimed"
	TicketAssigned       = "ticket.assigned"
	TicketReopened       = "ticket.reopened"
	GiveawayCreated      = "giveaway.created"
	GiveawayStarted      = "giveaway.started"
	GiveawayPaused       = "giveaway.paused"
	GiveawayResumed      = "giveaway.resumed"
	GiveawayDrawing      = "giveaway.drawing"
	GiveawayUpdated      = "giveaway.updated"
	GiveawayEnded        = "giveaway.ended"
	GiveawayRerolled     = "giveaway.rerolled"
	MemberForgotten      = "member.forgotten"
	Ping                 = "ping"           // sent on request only; nobody subscribes to it
	WorkRequested        = "work.requested" // for the stream of work alone
)

// Types is every type an endpoint can subscribe to.
var Types = []string{
	CaseCreated, CaseUpdated, BalanceChanged, LevelUp, LevelDown, GuildUpdated,
	TicketOpened, TicketUpdated, TicketMessage, TicketMessageUpdated, TicketClosed, TicketClaimed, TicketAssigned, TicketReopened,
	GiveawayCreated, GiveawayStarted, GiveawayPaused, GiveawayResumed, GiveawayDrawing, GiveawayUpdated, GiveawayEnded, GiveawayRerolled,
	MemberForgotten,
}

// Origin says in which guild an event happened, who caused it and when.
type Origin struct {
	auth.By
	At    time.Time // the change's own instant
	Trace string    // the traceparent of who did it; empty where that is the context's in which it is recorded
}

// On is the origin with the instant of the change that it tells of: the one
// that the changed row carries, taken after the lock that orders its changes.
func (o Origin) On(at time.Time) Origin {
	o.At = at
	return o
}

// In is the origin within the trace of ctx, for what is recorded in another context.
func (o Origin) In(ctx context.Context) Origin {
	o.Trace = tracing.Traceparent(ctx)
	return o
}

// Traceparent is that of who did what is recorded in ctx; empty where nobody traces.
func (o Origin) Traceparent(ctx context.Context) string {
	return cmp.Or(o.Trace, tracing.Traceparent(ctx))
}

// From is the origin of what somebody does.
func From(by auth.By) Origin { return Origin{By: by} }

// System is the origin of what the service does on its own in guild.
func System(guild string) Origin { return From(auth.System(guild)) }

// JSON is the origin as the payload shows it.
func (o Origin) JSON() string { return o.By.Origin() }

// Change is one of several changes that are told together.
type Change struct {
	At    time.Time // its instant
	Data  any
	Trace string // as Origin's, which is taken where this one is empty
}

// Record stores an event and a delivery for each endpoint of the guild that
// listens to its type. Both become real with the caller's commit, or never. by
// has the instant of the change.
func Record(ctx context.Context, tx *db.Tx, by Origin, typ string, data any) error {
	return RecordEach(ctx, tx, by, typ, []Change{{At: by.At, Data: data}})
}

// RecordEach is Record for an event of its own per change, in one statement.
func RecordEach(ctx context.Context, tx *db.Tx, by Origin, typ string, changes []Change) error {
	n := len(changes)
	ids, instants, payloads, traces := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	around, trace := NewEnvelope(by, typ), by.Traceparent(ctx)
	for i, c := range changes {
		if c.At.IsZero() {
			return fmt.Errorf("record an event %s in guild %s: the change has no instant", typ, by.GuildID)
		}
		data, err := render(typ, c.Data)
		if err != nil {
			return err
		}
		ids[i], instants[i] = db.NewID(), c.At.UTC().Format(time.RFC3339Nano)
		payloads[i] = around.Payload(ids[i], c.At, data)
		traces[i] = cmp.Or(c.Trace, trace)
	}
	_, err := db.Exec(ctx, tx, recordEach, by.GuildID, typ, db.Array(ids), db.Array(instants), db.Array(payloads), db.Array(traces), by.JSON())
	if err != nil {
		return fmt.Errorf("record %d events %s in guild %s: %w", n, typ, by.GuildID, err)
	}
	return nil
}

// recordEach stores events (told) for which somebody listens. A delivery for a pull
// endpoint is never fresh: no worker sends it. The changes of a bot key are for those
// streams alone that want the echo.
//
// The ids are UUIDv7, and so are the deliveries', which begin with their event's time:
// they stand in the order of events. The column's default, which mints one from nothing,
// takes Postgres an eighth of an adjustment to set up, even where there is nothing to
// deliver.
const recordEach = `
		WITH told AS (
			SELECT id, at, payload, nullif(trace, '') AS trace
			FROM unnest($3::text[], $4::timestamptz[], $5::text[], $6::text[]) AS t (id, at, payload, trace)
		), event_listeners AS MATERIALIZED (
			SELECT told.id AS event_id, e.id AS endpoint_id, left(told.id, 15) || right(gen_random_uuid()::text, 21) AS delivery_id,
			       e.delivery = 'push' AS pushed, false AS streamed
			FROM told
			JOIN webhook_endpoints e ON e.guild_id = $1 AND e.enabled AND $2 = ANY (e.events)
			UNION ALL
			SELECT told.id, s.stream_id, NULL, false, true
			FROM told
			JOIN stream_listeners s ON s.guild_id = $1 AND $2 = ANY (s.events) AND (s.echo OR NOT starts_with($7, '{"type":"bot"'))
		), event_stored AS (
			INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload, trace)
			SELECT $1 /*: home.id */, told.id, $2, told.at, convert_to(told.payload, 'UTF8'), told.trace
			FROM told /*: told JOIN guilds home ON home.id = $1 */
			WHERE told.id IN (SELECT event_id FROM event_listeners)
		), event_queued AS (
			INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, event_type, event_at, fresh)
			SELECT $1 /*: home.id */, l.delivery_id, l.endpoint_id, l.event_id, $2, told.at, l.pushed
			FROM told /*: told JOIN guilds home ON home.id = $1 */
			JOIN event_listeners l ON l.event_id = told.id
			WHERE NOT l.streamed
		), event_streamed AS (
			INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at)
			SELECT $1 /*: home.id */, l.endpoint_id, l.event_id, told.at
			FROM told /*: told JOIN guilds home ON home.id = $1 */
			JOIN event_listeners l ON l.event_id = told.id
			WHERE l.streamed
		)
		SELECT`

// RecordFor stores an event for one of the bot's streams alone, whose id is given, and
// whatever that listens to. It returns the event's id.
func RecordFor(ctx context.Context, tx *db.Tx, by Origin, stream, typ string, data any) (id string, err error) {
	text, err := render(typ, data)
	if err != nil {
		return "", err
	}
	id = db.NewID()
	n, err := db.Get[int](ctx, tx, recordFor, by.GuildID, stream, typ, id, by.At, NewEnvelope(by, typ).Payload(id, by.At, text), by.Traceparent(ctx))
	if err == nil && n != 1 {
		err = errors.New("there is no such guild")
	}
	if err != nil {
		return "", fault.Wrap(err, "record an event", typ, "for stream", stream, "in guild", by.GuildID)
	}
	return id, nil
}

const recordFor = `
		WITH stored AS (
			INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload, trace)
			SELECT home.id, $4, $3, $5, convert_to($6, 'UTF8'), nullif($7, '')
			FROM guilds home
			WHERE home.id = $1
		), given AS (
			INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at)
			SELECT home.id, $2, $4, $5
			FROM guilds home
			WHERE home.id = $1
		)
		SELECT count(*) FROM guilds home WHERE home.id = $1`

// render is data without escapes for HTML, which would make a body up to six
// times as long.
func render(typ string, data any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil {
		return "", fault.Wrap(err, "render the data of event", typ)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// Package event is the transactional outbox. Record stores an event in the caller's transaction; it
// neither sends nor waits. The package internal/outbound/delivery sends the events.
//
// An event is stored only if an endpoint of the guild listens to its type at that time. If all data
// is known before the statement, Record renders the payload. A statement that alone knows a part of
// the data, such as the new balance, records the event itself with the same CTEs (EmitSQL).
package event

import (
	"cmp"
	"context"
	_ "embed" // for the SQL of EmitSQL
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	GiveawayCancelled    = "giveaway.cancelled"
	MemberForgotten      = "member.forgotten"
	WebhookFailing       = "webhook.failing"
	WebhookRecovered     = "webhook.recovered"
	WebhookDisabled      = "webhook.disabled"
	TokenExpiring        = "token.expiring"
	MemberJoined         = "member.joined"
	MemberLeft           = "member.left"
	MemberUpdated        = "member.updated"
	Ping                 = "ping"           // sent only on request; cannot be subscribed to
	WorkRequested        = "work.requested" // only in the bot's stream of work
)

// Types lists the types that an endpoint can subscribe to.
var Types = []string{
	CaseCreated, CaseUpdated, BalanceChanged, LevelUp, LevelDown, GuildUpdated,
	TicketOpened, TicketUpdated, TicketMessage, TicketMessageUpdated, TicketClosed, TicketClaimed, TicketAssigned, TicketReopened,
	GiveawayCreated, GiveawayStarted, GiveawayPaused, GiveawayResumed, GiveawayDrawing, GiveawayUpdated, GiveawayEnded, GiveawayRerolled, GiveawayCancelled,
	MemberForgotten, MemberJoined, MemberLeft, MemberUpdated,
	WebhookFailing, WebhookRecovered, WebhookDisabled, TokenExpiring,
}

// Origin says in which guild an event happened, who caused it, and when.
type Origin struct {
	auth.By
	At    time.Time // the instant that the changed row carries
	Trace string    // the traceparent of the cause; empty: that of the context in which the event is recorded
}

// On returns the origin with the instant of the change: the one that the changed row carries, taken
// after the row's lock, so that instants have the order of the changes.
func (o Origin) On(at time.Time) Origin {
	o.At = at
	return o
}

// In returns the origin with the trace of ctx, for events that are recorded in another context.
func (o Origin) In(ctx context.Context) Origin {
	o.Trace = tracing.Traceparent(ctx)
	return o
}

// Traceparent returns the origin's trace, or that of ctx; empty without tracing.
func (o Origin) Traceparent(ctx context.Context) string {
	return cmp.Or(o.Trace, tracing.Traceparent(ctx))
}

// From returns the origin of changes by an actor.
func From(by auth.By) Origin { return Origin{By: by} }

// System returns the origin of changes that Guildhall itself makes in a guild.
func System(guild string) Origin { return From(auth.System(guild)) }

// JSON returns the origin as payloads show it.
func (o Origin) JSON() string { return o.By.Origin() }

// Change is one of several changes whose events are recorded together.
type Change struct {
	At    time.Time // the instant of the change
	Data  any
	Trace string // the traceparent of the cause; empty: the Origin's
}

// Record stores an event and a delivery for each endpoint of the guild that listens to its type.
// Both exist once the caller's transaction commits. by contains the instant of the change.
func Record(ctx context.Context, tx *db.Tx, by Origin, typ string, data any) error {
	return RecordEach(ctx, tx, by, typ, []Change{{At: by.At, Data: data}})
}

// RecordTypes calls RecordEach for each type of changes, in alphabetical order.
func RecordTypes(ctx context.Context, tx *db.Tx, by Origin, changes map[string][]Change) error {
	for _, typ := range slices.Sorted(maps.Keys(changes)) {
		if err := RecordEach(ctx, tx, by, typ, changes[typ]); err != nil {
			return err
		}
	}
	return nil
}

// RecordEach is Record for an event of its own per change, in one statement. The id of an
// event begins with the millisecond of its change, which leads from the change to its event.
func RecordEach(ctx context.Context, tx *db.Tx, by Origin, typ string, changes []Change) error {
	return recordBy(ctx, tx, recordEach, by, typ, changes)
}

// RecordAbout stores an event about one endpoint, and a delivery for each other endpoint and each
// stream of the guild that listens to its type.
func RecordAbout(ctx context.Context, tx *db.Tx, by Origin, endpoint, typ string, data any) error {
	return recordBy(ctx, tx, recordAbout, by, typ, []Change{{At: by.At, Data: data}}, endpoint)
}

func recordBy(ctx context.Context, tx *db.Tx, statement string, by Origin, typ string, changes []Change, more ...any) error {
	n := len(changes)
	ats, instants, payloads, traces := make([]time.Time, n), make([]string, n), make([]string, n), make([]string, n)
	for i, c := range changes {
		ats[i] = c.At
	}
	ids := db.NewIDsAt(ats)
	around, trace := NewEnvelope(by, typ), by.Traceparent(ctx)
	for i, c := range changes {
		if c.At.IsZero() {
			return fmt.Errorf("record an event %s in guild %s: the change has no instant", typ, by.GuildID)
		}
		data, err := render(typ, c.Data)
		if err != nil {
			return err
		}
		instants[i] = c.At.UTC().Format(time.RFC3339Nano)
		payloads[i] = around.Payload(ids[i], c.At, data)
		traces[i] = cmp.Or(c.Trace, trace)
	}
	args := []any{by.GuildID, typ, db.Array(ids), db.Array(instants), db.Array(payloads), db.Array(traces), by.JSON()}
	_, err := db.Exec(ctx, tx, statement, append(args, more...)...)
	if err != nil {
		return fmt.Errorf("record %d events %s in guild %s: %w", n, typ, by.GuildID, err)
	}
	return nil
}

// EmitSQL returns CTEs that record an event for each changed row: the event, with a delivery for
// each endpoint and each of the bot's streams that listens, or nothing if none listens. moved is a
// CTE with a row for each change and the columns event_id (null: record no event), updated_at,
// origin and trace. guild, typ and payload are SQL expressions over such a row, or parameters.
// payload is evaluated only for events that are stored.
//
// A delivery for a pull endpoint is never fresh, since no worker sends it. Changes made with a bot
// key go only to those streams that want the bot's own changes (the echo).
//
// The ids are UUIDv7. A delivery's id begins with its event's time, so ids sort in the order of the
// events. Ids come from the statement, not from a column default: evaluating the default that makes
// a UUID costs an eighth of an adjustment's time, even if nothing is delivered.
func EmitSQL(moved, guild, typ, payload string) string {
	return emitSQL(moved, guild, typ, payload, "")
}

// emitSQL is EmitSQL without the endpoints e for which the condition except does not hold.
func emitSQL(moved, guild, typ, payload, except string) string {
	return db.With(emitSteps, "moved", moved, "guild", guild, "type", typ, "payload", payload, "except", except)
}

// EmitDataSQL is EmitSQL with a payload that the statement renders as Envelope does. data is an
// expression over a row of moved.
func EmitDataSQL(moved, guild, typ, data string) string {
	return EmitSQL(moved, guild, typ, db.With(`
			'{"id":"' || :moved.event_id || '","type":"' || :type || '","timestamp":"'
			|| to_char(:moved.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || '","guild_id":"' || :guild
			|| '","api_version":"v1","origin":' || :moved.origin || ',"data":' || :data || '}'`, "moved", moved, "guild", guild, "type", typ, "data", data))
}

//go:embed emit.sql
var emitSteps string

var recordEach, recordAbout = recordSQL(""), recordSQL(" AND e.id <> $8")

func recordSQL(except string) string {
	return `
		WITH moved AS (
			SELECT event_id, updated_at, payload, trace, $7::text AS origin
			FROM unnest($3::text[], $4::timestamptz[], $5::text[], $6::text[]) AS g (event_id, updated_at, payload, trace)
		), ` + emitSQL("moved", "$1", "$2", "moved.payload", except) + `
		SELECT`
}

// RecordFor stores an event for the bot's stream with the given id only, whatever the stream
// listens to. It returns the event's id.
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

// render returns data as JSON without escapes for HTML, which could make a body six times as long.
func render(typ string, data any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil {
		return "", fault.Wrap(err, "render the data of event", typ)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// Package event is the outbox. Record stores an event in the caller's
// transaction; it neither sends nor waits. Sending is internal/outbound/delivery's work.
//
// An event becomes rows only if an endpoint of the guild listens to its type at
// that moment. Where the data is complete before the statement, Record renders
// the payload; a statement that alone knows a part of the data (the balance that
// it leaves behind) records the event itself, with the same steps (EmitSQL).
package event

import (
	"cmp"
	"context"
	_ "embed" // steps of statements
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
	MemberForgotten      = "member.forgotten"
	WebhookFailing       = "webhook.failing"
	WebhookRecovered     = "webhook.recovered"
	WebhookDisabled      = "webhook.disabled"
	TokenExpiring        = "token.expiring"
	MemberJoined         = "member.joined"
	MemberLeft           = "member.left"
	MemberUpdated        = "member.updated"
	Ping                 = "ping"           // sent on request only; nobody subscribes to it
	WorkRequested        = "work.requested" // for the stream of work alone
)

// Types is every type an endpoint can subscribe to.
var Types = []string{
	CaseCreated, CaseUpdated, BalanceChanged, LevelUp, LevelDown, GuildUpdated,
	TicketOpened, TicketUpdated, TicketMessage, TicketMessageUpdated, TicketClosed, TicketClaimed, TicketAssigned, TicketReopened,
	GiveawayCreated, GiveawayStarted, GiveawayPaused, GiveawayResumed, GiveawayDrawing, GiveawayUpdated, GiveawayEnded, GiveawayRerolled,
	MemberForgotten, MemberJoined, MemberLeft, MemberUpdated,
	WebhookFailing, WebhookRecovered, WebhookDisabled, TokenExpiring,
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

// RecordTypes is RecordEach for changes by the types of their events, in the order of these.
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

// RecordAbout stores an event about one endpoint, and a delivery for each other endpoint
// and stream of the guild that listens to its type.
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

// EmitSQL are the CTEs of a statement that tell of each change: its event with a delivery
// for each endpoint and each of the bot's streams that listens, or nothing at all where
// none does. moved is a CTE of the statement with a row for each change, with the columns
// event_id, null where nothing is to be told, updated_at, origin and trace. guild, typ and
// payload are expressions over such a row, or parameters; the payload is worked out only
// for what is stored.
//
// A delivery for a pull endpoint is never fresh: no worker sends it. The changes of a bot
// key are for those streams alone that want the echo.
//
// The ids are UUIDv7, and so are the deliveries', which begin with their event's time:
// they stand in the order of events. The column's default, which mints one from nothing,
// takes Postgres an eighth of an adjustment to set up, even where there is nothing to
// deliver.
func EmitSQL(moved, guild, typ, payload string) string {
	return emitSQL(moved, guild, typ, payload, "")
}

// emitSQL is EmitSQL, leaving out the endpoints e of which except does not hold.
func emitSQL(moved, guild, typ, payload, except string) string {
	return db.With(emitSteps, "moved", moved, "guild", guild, "type", typ, "payload", payload, "except", except)
}

// EmitDataSQL is EmitSQL where the statement renders the payload, as Envelope does, around
// data: an expression over a row of moved.
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

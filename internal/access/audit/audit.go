// Package audit stores who changed what, for whom, and from where. A row is inserted in the
// transaction of the change, so neither exists without the other. Rows are never updated, and none
// is deleted before it is a year old.
package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// The types of actors.
const (
	User        = "user"         // a person who signed in to the dashboard
	Operator    = "operator"     // the holder of an operator's link
	CommandLine = "command_line" // an operator with a shell on the server
	Token       = "token"        // a token of the API
	BotKey      = "bot_key"      // the operator's bot
	System      = "system"       // the service on its own
)

// The actions. Each names what was changed, and how.
const (
	TokenCreated     = "token.created"
	TokenRevoked     = "token.revoked"
	TokenLimited     = "token.limited"
	KeyCreated       = "bot_key.created"
	KeyRevoked       = "bot_key.revoked"
	WebhookCreated   = "webhook.created"
	WebhookUpdated   = "webhook.updated"
	WebhookDeleted   = "webhook.deleted"
	WebhookRotated   = "webhook.secret_rotated"
	WebhookOldEnded  = "webhook.old_secrets_ended"
	WebhookTested    = "webhook.tested"
	WebhookRedeliver = "webhook.redelivered"
	WebhookRecovered = "webhook.recovered"
	WebhookDisabled  = "webhook.disabled"
	LinkCreated      = "dashboard.link_created"
	LinkUsed         = "dashboard.link_used"
	GuildRemoved     = "guild.removed"  // the guild's removal is scheduled; until the removal begins, it can be undone
	GuildRestored    = "guild.restored" // the guild's removal was undone
	MemberForgotten  = "member.forgotten"
	GuildErased      = "guild.erased" // all data of the guild is deleted; only this row stays, without a guild
	LinkRevoked      = "dashboard.link_revoked"
	SignedIn         = "dashboard.signed_in"
	SignedOut        = "dashboard.signed_out"
	SessionEnded     = "dashboard.session_ended"
	GuildImported    = "guild.imported"
	GuildExported    = "guild.exported"
	TranscriptRead   = "ticket.transcript_read" // on the dashboard: noted once a person, ticket and hour
)

// Actions lists all actions, in the order in which the dashboard offers them as filters.
var Actions = []string{
	TokenCreated, TokenRevoked, TokenLimited, KeyCreated, KeyRevoked, WebhookCreated, WebhookUpdated, WebhookDeleted, WebhookRotated, WebhookOldEnded,
	WebhookTested, WebhookRedeliver, WebhookRecovered, WebhookDisabled, LinkCreated, LinkUsed,
	GuildRemoved, GuildRestored, MemberForgotten,
	LinkRevoked, SignedIn, SignedOut, SessionEnded, GuildImported, GuildExported, TranscriptRead,
}

// keptFor is how long a row is kept at least.
const keptFor = "1 year"

// Actor is the author of a change.
type Actor struct {
	Type      string // one of the types above
	ID        string
	Name      string
	Address   string // the actor's IP address; empty if unknown
	RequestID string // empty outside a request
}

type actorKey struct{}

// With returns a context in which the actor a makes the changes.
func With(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// From returns the actor of the context, or System if it has none.
func From(ctx context.Context) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok {
		return a
	}
	return Actor{Type: System, Name: "Guildhall"}
}

// Change is one change. Before and After are rendered as JSON and must not contain secrets; Before
// is nil if the target is new, After if it is gone.
type Change struct {
	Guild         string
	Action        string
	Target        string // the target's id
	Name          string // the target's name
	Before, After any
}

// Record inserts changes by the context's actor in one statement.
func Record(ctx context.Context, tx *db.Tx, changes ...Change) error {
	if len(changes) == 0 {
		return nil
	}
	// One list for each column; in the last two an empty string stands for NULL.
	var guilds, ids, actions, targets, names, befores, afters []string
	for _, c := range changes {
		before, err := rendered(c.Before)
		if err != nil {
			return err
		}
		after, err := rendered(c.After)
		if err != nil {
			return err
		}
		guilds, ids, actions = append(guilds, c.Guild), append(ids, db.NewID()), append(actions, c.Action)
		targets, names = append(targets, c.Target), append(names, c.Name)
		befores, afters = append(befores, before), append(afters, after)
	}
	a := From(ctx)
	_, err := db.Exec(ctx, tx, `
		INSERT INTO audit_log (guild_id, id, actor_type, actor_id, actor_name, address, request_id, action, target_id, target_name, before, after)
		SELECT guild, id, $1, $2, $3, $4, $5, action, target, name, nullif(before, '')::jsonb, nullif(after, '')::jsonb
		FROM unnest($6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[])
		     AS c (guild, id, action, target, name, before, after)`,
		a.Type, a.ID, a.Name, a.Address, a.RequestID, db.Array(guilds), db.Array(ids), db.Array(actions),
		db.Array(targets), db.Array(names), db.Array(befores), db.Array(afters))
	if err != nil {
		return fmt.Errorf("write %d changes from %s of %s in guild %s on to the audit log: %w", len(changes), changes[0].Action, changes[0].Target, changes[0].Guild, err)
	}
	return nil
}

// rendered returns v as JSON, or "" for nil.
func rendered(v any) (string, error) {
	if v == nil {
		return "", nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", fault.Wrap(err, "render a change for the audit log")
	}
	return escapedNUL.ReplaceAllString(string(b), "$1"), nil // jsonb cannot contain NUL
}

// escapedNUL matches escaped NULs in JSON. It also matches escaped backslashes, which must stay:
// after one, "u0000" is ordinary text.
var escapedNUL = regexp.MustCompile(`(\\\\)|\\u0000`)

// Row is one row of the audit log.
type Row struct {
	ID        string    `db:"id"`
	At        time.Time `db:"at"`
	ActorType string    `db:"actor_type"`
	ActorID   string    `db:"actor_id"`
	ActorName string    `db:"actor_name"`
	Address   string    `db:"address"`
	RequestID string    `db:"request_id"`
	Action    string    `db:"action"`
	Target    string    `db:"target_id"`
	Name      string    `db:"target_name"`
	Before    *string   `db:"before"`
	After     *string   `db:"after"`
}

// Filter selects rows; empty fields select all.
type Filter struct {
	Action string
	Actor  string // the actor's id
	Target string // the target's id
	Below  string // rows older than the row with this id
	Since  time.Time
	Until  time.Time // exclusive
	// ChangesOnly leaves out sign-ins and sign-outs, unless Action names one of these actions.
	ChangesOnly bool
}

// changesOnly is the predicate of the partial index audit_log_changes, which leaves out sign-ins
// and sign-outs.
const changesOnly = " AND action NOT IN ('" + LinkUsed + "', '" + SignedIn + "', '" + SignedOut + "', '" + SessionEnded + "')"

// clocks is the largest difference that we expect between a node's clock, from which ids come, and
// the database's.
const clocks = time.Minute

// bound returns the smallest id that can have been made at the instant: ids begin with their time.
func bound(at time.Time, off time.Duration) string {
	if at.IsZero() {
		return ""
	}
	hex := fmt.Sprintf("%012x", max(0, at.Add(off).UnixMilli()))
	return hex[:8] + "-" + hex[8:]
}

func instant(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}

const rowsOfGuild = `
		SELECT id, at, actor_type, actor_id, actor_name, address, request_id, action, target_id, target_name,
		       before::text AS before, after::text AS after
		FROM audit_log
		WHERE guild_id = $1`

// List returns the guild's newest rows that match the filter.
func List(ctx context.Context, q db.Querier, guild string, f Filter, limit int) ([]Row, error) {
	query, args := listQuery(guild, f, limit)
	rows, err := db.Select[Row](ctx, q, query, args...)
	return rows, fault.Wrap(err, "list the audit log of guild", guild)
}

// listQuery builds the query with only those conditions that the filter sets: each filter has an
// index in the order of the list.
func listQuery(guild string, f Filter, limit int) (query string, args []any) {
	query, args = db.Where(rowsOfGuild, []any{guild, limit},
		db.Condition{Compare: "action =", Value: f.Action},
		db.Condition{Compare: "actor_id =", Value: f.Actor},
		db.Condition{Compare: "target_id =", Value: f.Target},
		db.Condition{Compare: "id <", Value: f.Below},
		db.Condition{Compare: "id >=", Value: bound(f.Since, -clocks)},
		db.Condition{Compare: "at >=", Value: instant(f.Since)},
		db.Condition{Compare: "id <", Value: bound(f.Until, clocks)},
		db.Condition{Compare: "at <", Value: instant(f.Until)})
	if f.ChangesOnly && f.Action == "" {
		query += changesOnly
	}
	return query + " ORDER BY id DESC LIMIT $2", args
}

// First returns the oldest row of a target, if it is one of the action. ok is false if the log has
// no such row, or no longer.
func First(ctx context.Context, q db.Querier, guild, action, target string) (Row, bool, error) {
	row, err := db.Get[Row](ctx, q, firstRow, guild, target, action)
	if db.Missing(err) {
		return Row{}, false, nil
	}
	return row, err == nil, fault.Wrap(err, "read who made", target, "in guild", guild)
}

// firstRow looks at the action after the LIMIT: a target without a row of the action would
// otherwise have all of its rows read.
const firstRow = `
		SELECT *
		FROM (` + rowsOfGuild + `
		  AND target_id = $2
		ORDER BY id
		LIMIT 1
		) AS oldest
		WHERE action = $3`

// Expired returns the expiry of the audit log's rows: one year.
func Expired() []db.Expiry {
	return []db.Expiry{{Table: "audit_log", Key: "id", Since: "at", Kept: keptFor}}
}

package webhooks

import (
	"cmp"
	"context"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/audit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/event"
)

// The functions of this file are used by the dashboard and the command line, each for one guild.
// For an endpoint or delivery of another guild they return a NotFound fault. Each change is one
// transaction and is written to the audit log.

// writeAudit writes a change of an endpoint to the audit log, without its secrets.
func writeAudit(ctx context.Context, tx *db.Tx, action string, was, is *endpoint) error {
	c := audit.Change{Action: action}
	if was != nil {
		c.Guild, c.Target, c.Name, c.Before = was.GuildID, was.ID, was.name(), auditDetails(*was)
	}
	if is != nil {
		c.Guild, c.Target, c.Name, c.After = is.GuildID, is.ID, is.name(), auditDetails(*is)
	}
	return audit.Record(ctx, tx, c)
}

// name returns the endpoint's name for people.
func (e endpoint) name() string { return cmp.Or(e.URL, e.Delivery) }

func auditDetails(e endpoint) map[string]any {
	return map[string]any{
		"delivery": e.Delivery, "url": e.URL, "description": e.Description, "events": e.Events, "enabled": e.Enabled,
		"disabled_reason": e.DisabledReason, "secret_preview": e.SecretPreview,
	}
}

// countLimit is the number up to which waiting and held deliveries are counted.
const countLimit = 1000

// Standing is an endpoint with its health and numbers.
type Standing struct {
	ID             string     `db:"id"`
	Delivery       string     `db:"delivery"` // delivery.Push or delivery.Pull
	URL            string     `db:"url"`
	Description    *string    `db:"description"`
	Events         db.Strings `db:"events"`
	Enabled        bool       `db:"enabled"`
	DisabledReason *string    `db:"disabled_reason"`
	SecretPreview  string     `db:"secret_preview"`
	// The number of replaced secrets that still sign, and when the last of them ends.
	OldSecrets      int        `db:"old_signing"`
	OldSecretsUntil *time.Time `db:"old_until"`
	CreatedAt       time.Time  `db:"created_at"`
	UpdatedAt       time.Time  `db:"updated_at"`
	FailingSince    *time.Time `db:"failing_since"`
	BlockedUntil    *time.Time `db:"blocked_until"`
	// For a pull endpoint: when its events were last fetched, to the minute, and by which token or
	// bot key; and since when the oldest event that can be fetched has waited.
	FetchedAt   *time.Time `db:"fetched_at"`
	FetchedBy   *string    `db:"fetched_by"`
	BehindSince *time.Time `db:"behind_since"`
	// Completed in this hour and the 23 hours before it.
	Delivered int `db:"delivered"`
	Failed    int `db:"failed"`
	// Failed attempts of the same hours, whatever became of their deliveries.
	FailedAttempts int `db:"attempts_failed"`
	// Waiting and held deliveries of any age. A count of 1,000 means 1,000 or more.
	Waiting int `db:"waiting"`
	Held    int `db:"held"`

	Health Health `db:"-"`
	row    healthRow
}

// standingRow is the row of a Standing.
type standingRow struct {
	Standing
	healthRow
}

func (r standingRow) standing() (s Standing, err error) {
	s = r.Standing
	s.row = r.healthRow
	s.Health, err = s.health()
	return s, err
}

// standingQuery selects the endpoints of a guild, or one of them if an id is given.
const standingQuery = `
	SELECT e.id, e.delivery, e.url, e.description, e.events, e.enabled, e.disabled_reason, e.secret_preview, e.created_at, e.updated_at,
	       ` + healthColumns + `,
	       s.failing_since, s.blocked_until, s.fetched_at, s.fetched_by,
	       (SELECT min(d.due_at) FROM webhook_deliveries d
	        WHERE e.delivery = 'pull' AND d.guild_id = $1 AND d.endpoint_id = e.id AND d.state = 'pending' AND d.due_at <= now()) AS behind_since,
	       n.delivered, n.failed, n.attempts_failed, w.waiting, b.held, o.old_signing, o.old_until
	FROM webhook_endpoints e
	CROSS JOIN LATERAL (
		SELECT count(*) AS old_signing, max(until) AS old_until
		FROM (SELECT (value ->> 'until')::timestamptz AS until FROM jsonb_array_elements(e.old_secrets)) replaced
		WHERE until > now()
	) o
	LEFT JOIN webhook_schedule s ON s.guild_id = $1 AND s.endpoint_id = e.id
	CROSS JOIN LATERAL (
		SELECT coalesce(sum(h.deliveries) FILTER (WHERE h.outcome = 'delivered'), 0)::bigint AS delivered,
		       coalesce(sum(h.deliveries) FILTER (WHERE h.outcome = 'failed'), 0)::bigint AS failed,
		       coalesce(sum(h.failed_attempts), 0)::bigint AS attempts_failed
		FROM webhook_hours h
		WHERE h.guild_id = $1 AND h.endpoint_id = e.id AND h.hour > now() - interval '24 hours'
	) n
	CROSS JOIN LATERAL (
		SELECT count(*) AS waiting, min(x.event_at) AS oldest FROM (
			SELECT d.event_at FROM webhook_deliveries d
			WHERE d.guild_id = $1 AND d.endpoint_id = e.id AND d.state = 'pending' ORDER BY d.due_at, d.id LIMIT $2) x
	) w
	CROSS JOIN LATERAL (
		SELECT count(*) AS held, min(x.event_at) AS oldest FROM (
			SELECT d.event_at FROM webhook_deliveries d
			WHERE d.guild_id = $1 AND d.endpoint_id = e.id AND d.state = 'held' ORDER BY d.id LIMIT $2) x
	) b
	WHERE e.guild_id = $1`

// Standings returns the guild's endpoints, newest first.
func Standings(ctx context.Context, q db.Querier, guild string) ([]Standing, error) {
	rows, err := db.Select[standingRow](ctx, q, standingQuery+` ORDER BY e.created_at DESC, e.id DESC`, guild, countLimit)
	if err != nil {
		return nil, fault.Wrap(err, "read how the endpoints of guild", guild, "fare")
	}
	list := make([]Standing, len(rows))
	for i, r := range rows {
		if list[i], err = r.standing(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// standings returns a page of the guild's endpoints, newest first, and one row more if there is
// one.
func standings(ctx context.Context, q db.Querier, guild string, p page.P) ([]Standing, error) {
	rows, err := Standings(ctx, q, guild)
	return rows[min(p.Offset(), len(rows)):min(p.Offset()+p.Limit(), len(rows))], err
}

// StandingOf returns one endpoint of the guild.
func StandingOf(ctx context.Context, q db.Querier, guild, id string) (Standing, error) {
	row, err := db.Get[standingRow](ctx, q, standingQuery+` AND e.id = $3`, guild, countLimit, id)
	if db.Missing(err) {
		return Standing{}, noSuchEndpoint
	}
	if err != nil {
		return Standing{}, fault.Wrap(err, "read how endpoint", id, "of guild", guild, "fares")
	}
	return row.standing()
}

// Settings is the desired configuration of an endpoint. An empty URL keeps the current URL.
type Settings struct {
	URL, Description string
	Events           []string
	Enabled          bool
	Delivery         string // delivery.Push or delivery.Pull; empty: push for a new endpoint, else the current one
	// UnchangedSince is the UpdatedAt that the settings were made from. Where it is set, Change
	// returns ErrChanged if somebody has changed the endpoint since.
	UnchangedSince time.Time
}

// ErrChanged says that an endpoint was changed between reading and changing it.
var ErrChanged = fault.New(fault.Conflict, "record_changed", "The endpoint was changed since this form was opened.")

// Create registers an endpoint. The result shows its secret, which cannot be read later. doer runs
// the transaction.
func Create(ctx context.Context, cfg Config, doer db.Doer, guild string, w Settings) (gen.WebhookEndpointWithSecret, error) {
	m, err := newManager(cfg)
	if err != nil {
		return gen.WebhookEndpointWithSecret{}, err
	}
	var e Standing
	var secret string
	err = doer.Do(m.resolveIfURL(ctx, guild, w.URL), func(ctx context.Context, tx *db.Tx) (err error) {
		e, secret, err = m.register(ctx, tx, guild, w.patch())
		return err
	})
	return e.showSecret(secret), err
}

func (w Settings) patch() patch {
	description := &w.Description
	if w.Description == "" {
		description = nil
	}
	p := patch{Events: w.Events, Description: &description, Enabled: &w.Enabled, Delivery: w.Delivery}
	if w.URL != "" {
		p.URL = &w.URL
	}
	return p
}

// resolveIfURL is resolveFor for an endpoint that may have no URL.
func (m manager) resolveIfURL(ctx context.Context, guild, url string) context.Context {
	if url == "" {
		return ctx
	}
	return m.resolveFor(ctx, guild, url)
}

// Change replaces the settings of an endpoint.
func Change(ctx context.Context, cfg Config, guild, id string, w Settings) error {
	m, err := newManager(cfg)
	if err != nil {
		return err
	}
	return m.edit(m.resolveIfURL(ctx, guild, w.URL), guild, id, w.UnchangedSince, w.patch())
}

// Switch enables or disables an endpoint.
func Switch(ctx context.Context, cfg Config, guild, id string, enabled bool) error {
	m, err := newManager(cfg)
	if err != nil {
		return err
	}
	return m.edit(ctx, guild, id, time.Time{}, patch{Enabled: &enabled})
}

// edit applies p to an endpoint in one transaction. It returns ErrChanged if the endpoint was
// updated after unchangedSince, unless that is zero.
func (m manager) edit(ctx context.Context, guild, id string, unchangedSince time.Time, p patch) error {
	if err := p.check(ctx); err != nil {
		return err
	}
	return m.cfg.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		was, err := lock(ctx, tx, guild, id)
		if err != nil {
			return err
		}
		if !unchangedSince.IsZero() && !was.UpdatedAt.Equal(unchangedSince) {
			return ErrChanged
		}
		_, err = m.change(ctx, tx, was, p)
		return err
	})
}

// Rotate gives an endpoint a new secret. The result shows it; it cannot be read later. The previous
// secret also signs for the overlap, at most MaxOverlap. doer runs the transaction.
func Rotate(ctx context.Context, cfg Config, doer db.Doer, guild, id string, overlap time.Duration) (gen.WebhookEndpointWithSecret, error) {
	m, err := newManager(cfg)
	if err != nil {
		return gen.WebhookEndpointWithSecret{}, err
	}
	if overlap < 0 || overlap > MaxOverlap {
		return gen.WebhookEndpointWithSecret{}, fault.New(fault.Invalid, "invalid_request", "An old secret can sign along for 24 hours at most.")
	}
	var e Standing
	var secret string
	err = doer.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		e, secret, err = m.rotate(ctx, tx, guild, id, overlap)
		return err
	})
	return e.showSecret(secret), err
}

// EndOldSecrets deletes all replaced secrets, so that only the newest signs.
func EndOldSecrets(ctx context.Context, d db.Doer, guild, id string) error {
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		e, err := endOldSecrets(ctx, tx, guild, id)
		if err != nil {
			return err
		}
		return writeAudit(ctx, tx, audit.WebhookOldEnded, nil, &e)
	})
}

// Delete deletes an endpoint.
func Delete(ctx context.Context, d db.Doer, guild, id string) error {
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error { return remove(ctx, tx, guild, id) })
}

// SendPing queues a test event and returns its delivery's id.
func SendPing(ctx context.Context, d db.Doer, guild, id string) (ping string, err error) {
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		ping, err = sendPing(ctx, tx, event.System(guild), id)
		return err
	})
	return ping, err
}

// SendAgain queues the event of a delivery again and returns the new delivery's id.
func SendAgain(ctx context.Context, d db.Doer, guild, id, deliveryID string) (fresh string, err error) {
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		fresh, err = sendAgain(ctx, tx, guild, id, deliveryID)
		return err
	})
	return fresh, err
}

// Requeue queues the failed deliveries since an instant again, the oldest first, and returns how
// many.
func Requeue(ctx context.Context, d db.Doer, guild, id string, since time.Time) (n int, err error) {
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err = requeue(ctx, tx, guild, id, since, maxRecovered)
		return err
	})
	return n, err
}

// CountLost returns how many deliveries Requeue would queue, at most its limit.
func CountLost(ctx context.Context, q db.Querier, guild, id string, since time.Time) (int, error) {
	return delivery.CountLost(ctx, q, guild, id, since, maxRecovered)
}

// sendPing is delivery.Ping with a row in the audit log; the same holds for the two functions
// below.
func sendPing(ctx context.Context, tx *db.Tx, by event.Origin, endpoint string) (string, error) {
	id, err := delivery.Ping(ctx, tx, by, endpoint)
	if err != nil {
		return "", err
	}
	return id, audit.Record(ctx, tx, audit.Change{Guild: by.GuildID, Action: audit.WebhookTested, Target: endpoint, After: map[string]any{"delivery": id}})
}

func sendAgain(ctx context.Context, tx *db.Tx, guild, endpoint, id string) (string, error) {
	fresh, err := delivery.Redeliver(ctx, tx, guild, endpoint, id)
	if err != nil {
		return "", err
	}
	return fresh, audit.Record(ctx, tx, audit.Change{Guild: guild, Action: audit.WebhookRedeliver, Target: endpoint, After: map[string]any{"delivery": id, "new_delivery": fresh}})
}

func requeue(ctx context.Context, tx *db.Tx, guild, endpoint string, since time.Time, limit int) (int, error) {
	n, err := delivery.Recover(ctx, tx, guild, endpoint, since, limit)
	if err != nil {
		return 0, err
	}
	return n, audit.Record(ctx, tx, audit.Change{Guild: guild, Action: audit.WebhookRecovered, Target: endpoint, After: map[string]any{"since": since, "queued": n}})
}

package webhooks

import (
	"context"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/delivery"
)

// endpoint is a stored endpoint.
type endpoint struct {
	GuildID        string     `db:"guild_id"`
	ID             string     `db:"id"`
	Delivery       string     `db:"delivery"` // delivery.Push or delivery.Pull
	URL            string     `db:"url"`      // empty for pull
	Description    *string    `db:"description"`
	Events         db.Strings `db:"events"`
	Enabled        bool       `db:"enabled"`
	DisabledReason *string    `db:"disabled_reason"`
	Secret         []byte     `db:"secret"`
	SecretPreview  string     `db:"secret_preview"`
	CreatedAt      time.Time  `db:"created_at"`
	UpdatedAt      time.Time  `db:"updated_at"`
}

// MaxEndpoints is how many endpoints a guild may have. It bounds the deliveries of one event.
const MaxEndpoints = 10

var noSuchEndpoint = fault.New(fault.NotFound, "not_found", "No such webhook endpoint.")

// columns lists the columns of an endpoint.
const columns = `guild_id, id, delivery, url, description, events, enabled, disabled_reason, secret, secret_preview, created_at, updated_at`

// lockGuild locks the guild, so that its registrations run one after the other. It returns a
// NotFound fault for a guild that is being removed.
func lockGuild(ctx context.Context, tx *db.Tx, guild string) error {
	_, err := db.Get[string](ctx, tx, `SELECT id FROM guilds WHERE id = $1 AND removed_at IS NULL FOR NO KEY UPDATE`, guild)
	if db.Missing(err) {
		return fault.New(fault.NotFound, "not_found", "No such guild.")
	}
	return fault.Wrap(err, "lock guild", guild)
}

// checkLimit returns a Refused fault if the guild has MaxEndpoints.
func checkLimit(ctx context.Context, q db.Querier, guild string) error {
	have, err := db.Get[int](ctx, q, `SELECT count(*) FROM webhook_endpoints WHERE guild_id = $1`, guild)
	if err != nil {
		return fault.Wrap(err, "count endpoints of guild", guild)
	}
	if have >= MaxEndpoints {
		return fault.New(fault.Refused, "webhook_limit_reached", "A guild can have %d webhook endpoints.", MaxEndpoints)
	}
	return nil
}

// insert stores a new endpoint and its schedule.
func insert(ctx context.Context, tx *db.Tx, e endpoint) (endpoint, error) {
	stored, err := db.Get[endpoint](ctx, tx, `
		WITH e AS (
			INSERT INTO webhook_endpoints (guild_id, id, url, description, events, enabled, secret, secret_preview, delivery)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
			RETURNING *
		)
		SELECT `+columns+`
		FROM e`,
		e.GuildID, e.ID, e.URL, e.Description, e.Events, e.Enabled, e.Secret, e.SecretPreview, e.Delivery)
	return stored, fault.Wrap(err, "insert endpoint in guild", e.GuildID)
}

const oneEndpoint = `
	SELECT ` + columns + `
	FROM webhook_endpoints
	WHERE guild_id = $1 AND id = $2`

// get returns an endpoint of the guild, or a NotFound fault.
func get(ctx context.Context, q db.Querier, guild, id string) (endpoint, error) {
	return read(ctx, q, oneEndpoint, guild, id)
}

func read(ctx context.Context, q db.Querier, query, guild, id string) (endpoint, error) {
	e, err := db.Get[endpoint](ctx, q, query, guild, id)
	if db.Missing(err) {
		return endpoint{}, noSuchEndpoint
	}
	return e, fault.Wrap(err, "read endpoint", id, "of guild", guild)
}

// update stores a changed endpoint, which is locked.
func update(ctx context.Context, tx *db.Tx, e endpoint) (endpoint, error) {
	stored, err := db.Get[endpoint](ctx, tx, `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE webhook_endpoints
		SET url = $3, description = $4, events = $5, enabled = $6, disabled_reason = $7,
		    updated_at = `+db.Next("instant.at", "updated_at")+`
		FROM instant
		WHERE guild_id = $1 AND id = $2
		RETURNING `+columns,
		e.GuildID, e.ID, e.URL, e.Description, e.Events, e.Enabled, e.DisabledReason)
	return stored, fault.Wrap(err, "update endpoint", e.ID, "of guild", e.GuildID)
}

// endOldSecrets deletes all replaced secrets.
func endOldSecrets(ctx context.Context, tx *db.Tx, guild, id string) (endpoint, error) {
	e, err := db.Get[endpoint](ctx, tx, `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE webhook_endpoints
		SET old_secrets = '[]', updated_at = `+db.Next("instant.at", "updated_at")+`
		FROM instant
		WHERE guild_id = $1 AND id = $2
		RETURNING `+columns, guild, id)
	if db.Missing(err) {
		return endpoint{}, noSuchEndpoint
	}
	return e, fault.Wrap(err, "end the old secrets of endpoint", id, "of guild", guild)
}

// replaceSecret stores a new secret. The previous one also signs for the overlap; secrets that were
// replaced earlier end no later than that.
func replaceSecret(ctx context.Context, tx *db.Tx, guild, id string, sealed []byte, preview string, overlap time.Duration) (endpoint, error) {
	e, err := db.Get[endpoint](ctx, tx, `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE webhook_endpoints
		SET secret = $3, secret_preview = $4, updated_at = `+db.Next("instant.at", "updated_at")+`,
		    old_secrets = (
		        SELECT coalesce(jsonb_agg(jsonb_build_object('sealed', kept.sealed, 'until', kept.until) ORDER BY kept.place), '[]')
		        FROM (
		            SELECT s.place, s.sealed, least(s.until, now() + $5 * interval '1 second') AS until
		            FROM (
		                SELECT 0 AS place, translate(encode(secret, 'base64'), E'\n', '') AS sealed, timestamptz 'infinity' AS until
		                UNION ALL
		                SELECT o.ordinality, o.value ->> 'sealed', (o.value ->> 'until')::timestamptz
		                FROM jsonb_array_elements(old_secrets) WITH ORDINALITY o
		            ) s
		            WHERE s.until > now() AND $5 > 0
		            ORDER BY s.place
		            LIMIT $6
		        ) kept)
		FROM instant
		WHERE guild_id = $1 AND id = $2
		RETURNING `+columns,
		guild, id, sealed, preview, overlap.Seconds(), delivery.MaxOldSecrets)
	if db.Missing(err) {
		return endpoint{}, noSuchEndpoint
	}
	return e, fault.Wrap(err, "rotate the secret of endpoint", id, "of guild", guild)
}

// remove deletes the endpoint and gives up its waiting deliveries.
func remove(ctx context.Context, tx *db.Tx, guild, id string) error {
	was, err := lock(ctx, tx, guild, id)
	if err != nil {
		return err
	}
	if err := writeAudit(ctx, tx, audit.WebhookDeleted, &was, nil); err != nil {
		return err
	}
	if _, err = db.Exec(ctx, tx, `DELETE FROM webhook_endpoints WHERE guild_id = $1 AND id = $2`, guild, id); err != nil {
		return fault.Wrap(err, "delete endpoint", id, "of guild", guild)
	}
	return delivery.Forget(ctx, tx, guild, id)
}

// lock is get with a lock on the endpoint until the transaction ends.
func lock(ctx context.Context, tx *db.Tx, guild, id string) (endpoint, error) {
	return read(ctx, tx, oneEndpoint+` FOR NO KEY UPDATE`, guild, id)
}

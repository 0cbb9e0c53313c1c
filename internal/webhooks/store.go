package webhooks

import (
	"context"
	"fmt"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/fault"
	"guildhall/internal/page"
)

// endpoint is a registered receiver as it is stored.
type endpoint struct {
	GuildID        string     `db:"guild_id"`
	ID             string     `db:"id"`
	URL            string     `db:"url"`
	Description    *string    `db:"description"`
	Events         db.Strings `db:"events"`
	Enabled        bool       `db:"enabled"`
	DisabledReason *string    `db:"disabled_reason"`
	Secret         []byte     `db:"secret"`
	SecretPreview  string     `db:"secret_preview"`
	CreatedAt      time.Time  `db:"created_at"`
	UpdatedAt      time.Time  `db:"updated_at"`
}

// maxEndpoints is how many a guild may have. It bounds the fan-out of a write.
const maxEndpoints = 10

var noSuchEndpoint = fault.New(fault.NotFound, "not_found", "No such webhook endpoint.")

// insert stores a new endpoint, healthy. A guild that has maxEndpoints already
// is Refused; the lock on the guild makes two registrations take turns.
func insert(ctx context.Context, tx *db.Tx, e endpoint) (endpoint, error) {
	var guild string
	if err := tx.GetContext(ctx, &guild, `SELECT id FROM guilds WHERE id = $1 FOR NO KEY UPDATE`, e.GuildID); err != nil {
		if db.Missing(err) {
			return endpoint{}, fault.New(fault.NotFound, "not_found", "No such guild.")
		}
		return endpoint{}, fmt.Errorf("lock guild %s: %w", e.GuildID, err)
	}
	var have int
	if err := tx.GetContext(ctx, &have, `SELECT count(*) FROM webhook_endpoints WHERE guild_id = $1`, e.GuildID); err != nil {
		return endpoint{}, fmt.Errorf("count endpoints of guild %s: %w", e.GuildID, err)
	}
	if have >= maxEndpoints {
		return endpoint{}, fault.New(fault.Refused, "webhook_limit_reached", "A guild can have %d webhook endpoints.", maxEndpoints)
	}
	err := tx.GetContext(ctx, &e, `
		WITH e AS (
			INSERT INTO webhook_endpoints (guild_id, id, url, description, events, enabled, secret, secret_preview)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
			RETURNING *
		), h AS (
			INSERT INTO webhook_health (guild_id, endpoint_id)
			SELECT guild_id, id FROM e
		)
		SELECT guild_id, id, url, description, events, enabled, disabled_reason, secret, secret_preview, created_at, updated_at
		FROM e`,
		e.GuildID, e.ID, e.URL, e.Description, e.Events, e.Enabled, e.Secret, e.SecretPreview)
	if err != nil {
		return endpoint{}, fmt.Errorf("insert endpoint in guild %s: %w", e.GuildID, err)
	}
	return e, nil
}

// get returns one endpoint of the guild, or NotFound.
func get(ctx context.Context, q db.Querier, guild, id string) (endpoint, error) {
	var e endpoint
	err := q.GetContext(ctx, &e, `
		SELECT guild_id, id, url, description, events, enabled, disabled_reason, secret, secret_preview, created_at, updated_at
		FROM webhook_endpoints
		WHERE guild_id = $1 AND id = $2`, guild, id)
	if db.Missing(err) {
		return endpoint{}, noSuchEndpoint
	}
	if err != nil {
		return endpoint{}, fmt.Errorf("read endpoint %s of guild %s: %w", id, guild, err)
	}
	return e, nil
}

// lock is get, and keeps other changes of the endpoint waiting until the unit ends.
func lock(ctx context.Context, tx *db.Tx, guild, id string) (endpoint, error) {
	var e endpoint
	err := tx.GetContext(ctx, &e, `
		SELECT guild_id, id, url, description, events, enabled, disabled_reason, secret, secret_preview, created_at, updated_at
		FROM webhook_endpoints
		WHERE guild_id = $1 AND id = $2
		FOR NO KEY UPDATE`, guild, id)
	if db.Missing(err) {
		return endpoint{}, noSuchEndpoint
	}
	if err != nil {
		return endpoint{}, fmt.Errorf("lock endpoint %s of guild %s: %w", id, guild, err)
	}
	return e, nil
}

// list returns a page of the guild's endpoints, newest first, and one row more.
func list(ctx context.Context, q db.Querier, guild string, p page.P) ([]endpoint, error) {
	var rows []endpoint
	err := q.SelectContext(ctx, &rows, `
		SELECT guild_id, id, url, description, events, enabled, disabled_reason, secret, secret_preview, created_at, updated_at
		FROM webhook_endpoints
		WHERE guild_id = $1
		ORDER BY created_at DESC, id DESC
		LIMIT $2 OFFSET $3`, guild, p.Limit(), p.Offset())
	if err != nil {
		return nil, fmt.Errorf("list endpoints of guild %s: %w", guild, err)
	}
	return rows, nil
}

// update stores what a change made of a locked endpoint.
func update(ctx context.Context, tx *db.Tx, e endpoint) (endpoint, error) {
	err := tx.GetContext(ctx, &e, `
		UPDATE webhook_endpoints
		SET url = $3, description = $4, events = $5, enabled = $6, disabled_reason = $7, updated_at = now()
		WHERE guild_id = $1 AND id = $2
		RETURNING guild_id, id, url, description, events, enabled, disabled_reason, secret, secret_preview, created_at, updated_at`,
		e.GuildID, e.ID, e.URL, e.Description, e.Events, e.Enabled, e.DisabledReason)
	if err != nil {
		return endpoint{}, fmt.Errorf("update endpoint %s of guild %s: %w", e.ID, e.GuildID, err)
	}
	return e, nil
}

// replaceSecret stores a new secret. The one before signs along for the overlap,
// as do those replaced earlier whose time has not run out.
func replaceSecret(ctx context.Context, tx *db.Tx, guild, id string, sealed []byte, preview string) (endpoint, error) {
	var e endpoint
	err := tx.GetContext(ctx, &e, `
		UPDATE webhook_endpoints
		SET secret = $3, secret_preview = $4, updated_at = now(),
		    old_secrets = jsonb_build_array(jsonb_build_object(
		        'sealed', translate(encode(secret, 'base64'), E'\n', ''), 'until', now() + $5 * interval '1 second'))
		      || coalesce((
		        SELECT jsonb_agg(kept.value ORDER BY kept.place)
		        FROM (
		            SELECT s.value, s.ordinality AS place
		            FROM jsonb_array_elements(old_secrets) WITH ORDINALITY s
		            WHERE (s.value ->> 'until')::timestamptz > now()
		            ORDER BY s.ordinality
		            LIMIT $6
		        ) kept), '[]')
		WHERE guild_id = $1 AND id = $2
		RETURNING guild_id, id, url, description, events, enabled, disabled_reason, secret, secret_preview, created_at, updated_at`,
		guild, id, sealed, preview, overlap.Seconds(), maxSecrets-2)
	if db.Missing(err) {
		return endpoint{}, noSuchEndpoint
	}
	if err != nil {
		return endpoint{}, fmt.Errorf("rotate the secret of endpoint %s of guild %s: %w", id, guild, err)
	}
	return e, nil
}

// remove deletes the endpoint and gives up what is on its way to it. What a
// worker is sending right now, or a transaction is recording, the worker finds
// without its endpoint and gives up then.
func remove(ctx context.Context, tx *db.Tx, guild, id string) error {
	var gone string
	err := tx.GetContext(ctx, &gone, `DELETE FROM webhook_endpoints WHERE guild_id = $1 AND id = $2 RETURNING id`, guild, id)
	if db.Missing(err) {
		return noSuchEndpoint
	}
	if err != nil {
		return fmt.Errorf("delete endpoint %s of guild %s: %w", id, guild, err)
	}
	_, err = tx.ExecContext(ctx, `
		UPDATE webhook_deliveries
		SET state = 'failed', completed_at = now()
		WHERE guild_id = $1 AND endpoint_id = $2
		  AND (state = 'held' OR state = 'pending' AND lease_until IS NULL)`, guild, id)
	if err != nil {
		return fmt.Errorf("give up the deliveries of endpoint %s of guild %s: %w", id, guild, err)
	}
	return nil
}

// hold keeps everything that waits for a disabled endpoint until it is enabled
// again. What a worker is sending right now it settles by itself.
func hold(ctx context.Context, tx *db.Tx, guild, id string) error {
	_, err := tx.ExecContext(ctx, `
		UPDATE webhook_deliveries
		SET state = 'held'
		WHERE guild_id = $1 AND endpoint_id = $2 AND state = 'pending' AND lease_until IS NULL`, guild, id)
	if err != nil {
		return fmt.Errorf("hold the deliveries of endpoint %s of guild %s: %w", id, guild, err)
	}
	return nil
}

// release makes everything held for an endpoint due now, in the order of its
// making and with the whole schedule before it.
func release(ctx context.Context, tx *db.Tx, guild, id string) error {
	_, err := tx.ExecContext(ctx, `
		UPDATE webhook_deliveries
		SET state = 'pending', due_at = now(), step = 0
		WHERE guild_id = $1 AND endpoint_id = $2 AND state = 'held'`, guild, id)
	if err != nil {
		return fmt.Errorf("release the deliveries of endpoint %s of guild %s: %w", id, guild, err)
	}
	return nil
}

// forgive forgets the endpoint's failures, so that the next attempt is not put off.
func forgive(ctx context.Context, tx *db.Tx, guild, id string) error {
	_, err := tx.ExecContext(ctx, `
		UPDATE webhook_health
		SET failures = 0, refusals = 0, blocks = 0, blocked_until = NULL, quiet_until = NULL, failing_since = NULL, warned = 0
		WHERE guild_id = $1 AND endpoint_id = $2`, guild, id)
	if err != nil {
		return fmt.Errorf("forgive endpoint %s of guild %s: %w", id, guild, err)
	}
	return nil
}

// disable switches an endpoint off for the given reason and holds what waits
// for it. One that is off already keeps its reason.
func disable(ctx context.Context, tx *db.Tx, guild, id, reason string) error {
	_, err := tx.ExecContext(ctx, `
		UPDATE webhook_endpoints
		SET enabled = false, disabled_reason = $3, updated_at = now()
		WHERE guild_id = $1 AND id = $2 AND enabled`, guild, id, reason)
	if err != nil {
		return fmt.Errorf("disable endpoint %s of guild %s: %w", id, guild, err)
	}
	return hold(ctx, tx, guild, id)
}

package webhooks

import (
	"context"
	"net/url"
	"time"

	"guildhall/gen"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/event"
)

// notice is the data of an event about an endpoint.
type notice struct {
	WebhookID   string            `json:"webhook_id"`
	Description *string           `json:"description"`
	Host        string            `json:"host"`
	Health      gen.WebhookHealth `json:"health"`
}

// ShowNotice returns the data of an event about an endpoint. A URL may hold a secret, so it
// names the host alone.
func ShowNotice(ctx context.Context, tx *db.Tx, guild, endpoint string) (any, error) {
	s, err := StandingOf(ctx, tx, guild, endpoint)
	if err != nil {
		return nil, err
	}
	host := ""
	if u, err := url.Parse(s.URL); err == nil {
		if host = u.Host; u.Port() == "443" {
			host = u.Hostname()
		}
	}
	return notice{WebhookID: s.ID, Description: s.Description, Host: host, Health: s.Health.Show()}, nil
}

// findExpiring selects the tokens that expire within a lead time and for which no event was
// recorded. A lead time longer than the token's life is skipped.
const findExpiring = `
	SELECT t.guild_id, t.id || ' ' || l.days AS id
	FROM (VALUES (14), (2)) AS l (days)
	JOIN api_tokens t ON t.expires_at > now() AND t.expires_at <= now() + l.days * interval '1 day'
	 AND t.expires_at - t.created_at > l.days * interval '1 day'
	WHERE t.revoked_at IS NULL
	  AND NOT EXISTS (SELECT FROM token_notices n WHERE n.token_id = t.id AND n.days <= l.days)
	ORDER BY t.guild_id, t.id
	LIMIT $1`

// EmitExpiringTokens records an event for each token that expires within 14 or 2 days, once for each,
// whichever nodes run it.
func EmitExpiringTokens(ctx context.Context, d *db.DB) error {
	return db.Sweep{
		What: "tokens that expire soon", Due: findExpiring, Look: 500, Chunk: 100, AtOnce: 1,
		Do: func(ctx context.Context, tx *db.Tx, guild string, ids []string) (int, error) {
			at, err := tx.Now(ctx)
			if err != nil {
				return 0, err
			}
			tokens, err := db.Select[expiring](ctx, tx, noteExpiring, guild, db.Array(ids))
			if err != nil {
				return 0, fault.Wrap(err, "note tokens that expire soon in guild", guild)
			}
			for _, t := range tokens {
				data := map[string]any{"token": map[string]any{
					"id": t.ID, "name": t.Name, "preview": t.Preview, "scopes": t.Scopes, "expires_at": wire.At(t.ExpiresAt),
				}}
				if err := event.Record(ctx, tx, event.System(guild).On(at), event.TokenExpiring, data); err != nil {
					return 0, err
				}
			}
			return len(tokens), nil
		},
	}.Run(ctx, d)
}

// expiring is a token for which an event is about to be recorded.
type expiring struct {
	ID        string     `db:"id"`
	Name      string     `db:"name"`
	Preview   string     `db:"preview"`
	Scopes    db.Strings `db:"scopes"`
	ExpiresAt time.Time  `db:"expires_at"`
}

// noteExpiring stores that events are recorded for tokens, each with its lead time, and returns the
// tokens for which that was not stored before. If both lead times of a token are due, it stores the
// shorter.
const noteExpiring = `
	WITH due AS (
		SELECT split_part(named.id, ' ', 1) AS token_id, min(split_part(named.id, ' ', 2)::int) AS days
		FROM unnest($2::text[]) AS named (id)
		GROUP BY 1
	), noted AS (
		INSERT INTO token_notices (token_id, days)
		SELECT t.id, due.days
		FROM due
		JOIN api_tokens t ON t.id = due.token_id
		WHERE t.guild_id = $1
		ON CONFLICT DO NOTHING
		RETURNING token_id
	)
	SELECT t.id, t.name, t.preview, t.scopes, t.expires_at
	FROM api_tokens t
	JOIN noted ON noted.token_id = t.id
	WHERE t.guild_id = $1
	ORDER BY t.expires_at, t.id`

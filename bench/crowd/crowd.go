// Package crowd makes many webhook endpoints, with deliveries that wait for them,
// faster than anybody could register them.
package crowd

import (
	"context"
	"fmt"

	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/event"
)

// Of says what the endpoints of a crowd are.
type Of struct {
	URL  string
	Each int // deliveries that wait for each
	Wait Wait
}

// Wait is what deliveries wait for.
type Wait string

// Deliveries wait for one of three: nothing, they are due; the next attempt, in an
// hour; the end of their endpoint's block, in an hour.
const (
	Due     Wait = ""
	Retry   Wait = "retry"
	Blocked Wait = "blocked"
)

// Make makes one endpoint for each entry of guilds, which may name one guild
// several times, and returns their ids. Guilds that are missing are made.
func Make(ctx context.Context, d *db.DB, box *seal.Box, guilds []string, of Of) (ids []string, err error) {
	const step = 1000
	for len(guilds) > 0 {
		part := guilds[:min(step, len(guilds))]
		guilds = guilds[len(part):]
		made, secrets := make([]string, len(part)), make([]string, len(part))
		for i, guild := range part {
			made[i] = db.NewID()
			secrets[i] = fmt.Sprintf("%x", box.Seal([]byte("whsec_c2VjcmV0c2VjcmV0c2VjcmV0"), delivery.BoundTo(guild, made[i])))
		}
		if err := insert(ctx, d, part, made, secrets, of); err != nil {
			return nil, err
		}
		ids = append(ids, made...)
	}
	return ids, nil
}

func insert(ctx context.Context, d *db.DB, guilds, ids, secrets []string, of Of) error {
	const endpoints = `unnest($1::text[], $2::text[]) AS n (g, id)`
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, s := range []struct {
			query string
			args  []any
		}{
			{`SET LOCAL statement_timeout = 0`, nil},
			{`INSERT INTO guilds (id, name, owner_id) SELECT DISTINCT g, g, g FROM unnest($1::text[]) AS g ON CONFLICT DO NOTHING`, []any{db.Array(guilds)}},
			{
				`INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
			  SELECT g, id, $4, $5, decode(s, 'hex'), '' FROM unnest($1::text[], $2::text[], $3::text[]) AS n (g, id, s)`,
				[]any{db.Array(guilds), db.Array(ids), db.Array(secrets), of.URL, db.Array(event.Types)},
			},
			{
				`INSERT INTO webhook_events (guild_id, id, type, payload)
			  SELECT g, 'crowd-' || id, $3, convert_to('{"id":"' || id || '"}', 'UTF8') FROM ` + endpoints,
				[]any{db.Array(guilds), db.Array(ids), event.BalanceChanged},
			},
			{
				`INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, fresh, due_at)
			  SELECT g, id, 'crowd-' || id, $3, false, now() + CASE WHEN $4 = 'retry' THEN interval '1 hour' ELSE '0' END
			  FROM ` + endpoints + `, generate_series(1, $5)`,
				[]any{db.Array(guilds), db.Array(ids), event.BalanceChanged, string(of.Wait), of.Each},
			},
			{
				`INSERT INTO webhook_schedule (guild_id, endpoint_id, next_due, failures, blocks, failing_since, blocked_until)
			  SELECT g, id, CASE WHEN $4 > 0 THEN now() + CASE WHEN $3 = '' THEN '0' ELSE interval '1 hour' END END,
			         CASE $3 WHEN 'retry' THEN 1 WHEN 'blocked' THEN 5 ELSE 0 END, CASE $3 WHEN 'blocked' THEN 1 ELSE 0 END,
			         CASE WHEN $3 <> '' THEN now() END, CASE WHEN $3 = 'blocked' THEN now() + interval '1 hour' END
			  FROM ` + endpoints,
				[]any{db.Array(guilds), db.Array(ids), string(of.Wait), of.Each},
			},
		} {
			if _, err := tx.ExecContext(ctx, s.query, s.args...); err != nil {
				return err
			}
		}
		return nil
	})
}

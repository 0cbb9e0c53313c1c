// Package restore finds what restoring a backup has undone: tokens and bot keys that were revoked
// after the backup and work again, and endpoints that were deleted or changed. The restored
// database does not know of these changes. The database that it replaces does, as long as it can be
// read.
package restore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// The kinds of things that are compared.
const (
	Token    = "token"
	BotKey   = "bot_key"
	Endpoint = "endpoint"
)

// States of a changed resource in the restored database.
const (
	Same     = "same"     // unchanged
	Revived  = "revived"  // was revoked or deleted, and works again
	Lost     = "lost"     // does not exist any more
	Reverted = "reverted" // the resource is as it was before the change
)

// Before is how much earlier than the backup a change's instant may be although the backup does not
// contain the change: the instant is taken during the transaction, and the backup contains what was
// committed. No write takes longer than 12 s, and no command that revokes everything takes longer
// than Before.
const Before = time.Minute

// Limit bounds the changes that are reported.
const Limit = 10_000

// Change is one change of a thing.
type Change struct {
	Change string    `json:"change"` // created, changed, revoked or deleted
	At     time.Time `json:"at"`
}

// Thing is a token, a bot key or an endpoint that has changed.
type Thing struct {
	Kind    string   `json:"kind"`
	ID      string   `json:"id"`
	GuildID *string  `json:"guild_id"` // null: does not belong to one guild
	Changes []Change `json:"changes"`  // oldest first
	// State is the thing's state in the restored database; empty if none was compared.
	State string `json:"state,omitempty"`
}

// Since returns the tokens, bot keys and endpoints that, by this database, have changed since the
// instant or up to a minute before it, in the order of their first change, and whether there are
// more than Limit changes. It reads the audit log, which also contains deletions, and the rows,
// which also show changes that were made without the program.
func Since(ctx context.Context, q db.Querier, since time.Time) (things []Thing, more bool, err error) {
	type change struct {
		Kind   string    `db:"kind"`
		Guild  *string   `db:"guild_id"`
		ID     string    `db:"id"`
		Change string    `db:"change"`
		At     time.Time `db:"at"`
	}
	rows, err := db.Select[change](ctx, q, `
		SELECT kind, guild_id, id, change, max(at) AS at
		FROM (
			SELECT CASE WHEN action LIKE 'token.%' THEN 'token' WHEN action LIKE 'bot_key.%' THEN 'bot_key' ELSE 'endpoint' END AS kind,
			       CASE WHEN action NOT LIKE 'bot_key.%' THEN guild_id END AS guild_id, target_id AS id,
			       CASE action WHEN 'token.created' THEN 'created' WHEN 'token.revoked' THEN 'revoked'
			                   WHEN 'bot_key.created' THEN 'created' WHEN 'bot_key.revoked' THEN 'revoked'
			                   WHEN 'webhook.created' THEN 'created' WHEN 'webhook.deleted' THEN 'deleted' ELSE 'changed' END AS change, at
			FROM audit_log
			WHERE at >= $1 AND action IN ('token.created', 'token.revoked', 'bot_key.created', 'bot_key.revoked', 'webhook.created',
			                              'webhook.updated', 'webhook.deleted', 'webhook.secret_rotated', 'webhook.disabled')
			UNION ALL
			SELECT 'token', guild_id, id, 'created', created_at FROM api_tokens WHERE created_at >= $1
			UNION ALL
			SELECT 'token', guild_id, id, 'revoked', revoked_at FROM api_tokens WHERE revoked_at >= $1
			UNION ALL
			SELECT 'bot_key', NULL, id, 'created', created_at FROM bot_keys WHERE created_at >= $1
			UNION ALL
			SELECT 'bot_key', NULL, id, 'revoked', revoked_at FROM bot_keys WHERE revoked_at >= $1
			UNION ALL
			SELECT 'endpoint', guild_id, id, 'created', created_at FROM webhook_endpoints WHERE created_at >= $1
			UNION ALL
			SELECT 'endpoint', guild_id, id, 'changed', updated_at FROM webhook_endpoints WHERE updated_at >= $1 AND updated_at > created_at
		) AS recorded
		GROUP BY kind, guild_id, id, change
		ORDER BY max(at), kind, id, change
		LIMIT $2`, since.Add(-Before), Limit+1)
	if err != nil {
		return nil, false, fault.Wrap(err, "look for what has changed")
	}
	at := map[[2]string]int{}
	for _, r := range rows[:min(len(rows), Limit)] {
		key := [2]string{r.Kind, r.ID}
		i, known := at[key]
		if !known {
			i, at[key] = len(things), len(things)
			things = append(things, Thing{Kind: r.Kind, ID: r.ID, GuildID: r.Guild})
		}
		things[i].Changes = append(things[i].Changes, Change{r.Change, r.At})
	}
	return things, len(rows) > Limit, nil
}

// Itself reports whether both are the same database of the same server.
func Itself(ctx context.Context, old, restored db.Querier) (bool, error) {
	const name = `SELECT pg_postmaster_start_time() || ' ' || current_database()`
	was, err := db.Get[string](ctx, old, name)
	if err != nil {
		return false, fault.Wrap(err, "--old-database-url")
	}
	is, err := db.Get[string](ctx, restored, name)
	return was == is, fault.Wrap(err, "ask the restored database for its name")
}

// Differing returns the tokens and endpoints that are not the same in the old and the restored
// database, whatever the audit log says: up to Limit, and whether there are more. Their Changes are
// empty.
func Differing(ctx context.Context, old, restored db.Querier) (things []Thing, more bool, err error) {
	for _, kind := range []string{Token, BotKey, Endpoint} {
		was, err := statesOf(ctx, old, kind, nil)
		if err != nil {
			return nil, false, fault.Wrap(err, "the old database")
		}
		is, err := statesOf(ctx, restored, kind, nil)
		if err != nil {
			return nil, false, err
		}
		for id, s := range is {
			if was[id] == s {
				delete(was, id)
			} else {
				was[id] = cmp.Or(was[id], state{GuildID: s.GuildID})
			}
		}
		for _, id := range slices.Sorted(maps.Keys(was)) {
			if was[id] != is[id] {
				thing := Thing{Kind: kind, ID: id, Changes: []Change{}}
				if guild := was[id].GuildID; guild != "" {
					thing.GuildID = &guild
				}
				things = append(things, thing)
			}
		}
	}
	return things[:min(len(things), Limit)], len(things) > Limit, nil
}

// Compare sets the State of things that have changed in the old database.
func Compare(ctx context.Context, old, restored db.Querier, things []Thing) error {
	for chunk := range slices.Chunk(things, 500) {
		for _, kind := range []string{Token, BotKey, Endpoint} {
			was, err := statesOf(ctx, old, kind, chunk)
			if err != nil {
				return fault.Wrap(err, "the old database")
			}
			is, err := statesOf(ctx, restored, kind, chunk)
			if err != nil {
				return err
			}
			for i := range chunk {
				if chunk[i].Kind == kind {
					chunk[i].State = judge(was[chunk[i].ID], is[chunk[i].ID])
				}
			}
		}
	}
	return nil
}

// state is the state of a thing in a database. The zero value means that it does not exist.
type state struct {
	ID      string `db:"id"`
	GuildID string `db:"guild_id"`
	Ended   bool   `db:"ended"` // revoked
	Form    string `db:"form"`  // all other properties
}

// judge returns the State of a thing that is `was` in the old database and `is` in the restored
// one.
func judge(was, is state) string {
	works := func(s state) bool { return s.ID != "" && !s.Ended }
	switch {
	case was == is, !works(was) && !works(is):
		return Same
	case works(is) && !works(was):
		return Revived
	case is.ID == "":
		return Lost
	}
	return Reverted
}

// statesOf reads the states of things, or of all things of the kind if none are given.
func statesOf(ctx context.Context, q db.Querier, kind string, things []Thing) (map[string]state, error) {
	var ids []string
	for _, t := range things {
		if t.Kind == kind {
			ids = append(ids, t.ID)
		}
	}
	query := `
		SELECT id, guild_id, revoked_at IS NOT NULL AS ended, encode(hash, 'hex') || scopes::text || ip_allowlist::text || coalesce(expires_at::text, '') AS form
		FROM api_tokens WHERE $2 OR id = ANY ($1)`
	switch kind {
	case BotKey:
		query = `
			SELECT id, '' AS guild_id, revoked_at IS NOT NULL AS ended,
			       encode(hash, 'hex') || coalesce(guild_ids::text, '') || ip_allowlist::text || coalesce(expires_at::text, '') AS form
			FROM bot_keys WHERE $2 OR id = ANY ($1)`
	case Endpoint:
		query = `
			SELECT id, guild_id, false AS ended, url || ' ' || enabled || events::text || secret_preview || coalesce(description, '') AS form
			FROM webhook_endpoints WHERE $2 OR id = ANY ($1)`
	}
	rows, err := db.Select[state](ctx, q, query, db.Array(ids), things == nil)
	if err != nil {
		return nil, fmt.Errorf("read %d of kind %s: %w", len(ids), kind, err)
	}
	found := make(map[string]state, len(rows))
	for _, r := range rows {
		found[r.ID] = r
	}
	return found, nil
}

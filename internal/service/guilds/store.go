package guilds

import (
	"context"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/base/wire"
)

// get returns the guild. It exists, since tokens are deleted with their guild.
func get(ctx context.Context, q db.Querier, guild string) (row, error) {
	g, err := db.Get[row](ctx, q, `
		SELECT `+columns+`
		FROM guilds
		WHERE id = $1`, guild)
	return g, fault.Wrap(err, "read guild", guild)
}

// served is a guild in the list of a bot key's guilds.
type served struct {
	ID        string    `db:"id"`
	Name      string    `db:"name"`
	Status    string    `db:"status"`
	UpdatedAt wire.Time `db:"updated_at"`
}

const status = `CASE WHEN removed_at IS NULL THEN 'active' ELSE 'leaving' END AS status`

var (
	servedTable = page.Table{Name: "guilds", Columns: "id, name, " + status + ", updated_at"}

	every = page.ChangedAcross(servedTable, `updated_at >= coalesce($1::timestamptz, '-infinity')`)
)

// namedGuilds looks up at most a thousand guilds by id and sorts them afterwards: the index on
// their changes would lead through all other guilds.
const namedGuilds = `
		WITH named AS MATERIALIZED (
			SELECT id, name, ` + status + `, updated_at
			FROM guilds
			WHERE id = ANY ($4)
			  AND updated_at >= coalesce($1::timestamptz, '-infinity')
		)
		SELECT id, name, status, updated_at
		FROM named
		ORDER BY updated_at, id
		LIMIT $2 OFFSET $3`

// list returns a page of the guilds that a bot key may act in, in the order of their last change,
// and one row more if there is one. A key that names no guilds may act in every guild.
func list(ctx context.Context, q db.Querier, names []string, since *time.Time, p page.P) ([]served, error) {
	args := []any{since, p.Limit(), p.Offset()}
	query := every.For(p)
	if len(names) > 0 {
		query, args = namedGuilds, append(args, db.Array(names))
	}
	rows, err := db.Select[served](ctx, q, query, args...)
	return rows, fault.Wrap(err, "list the guilds of a bot key")
}

// Leaving returns, for each of the guilds that exist, whether its removal is scheduled.
func Leaving(ctx context.Context, tx *db.Tx, ids ...string) (map[string]bool, error) {
	return areLeaving(ctx, tx, ids, "")
}

// Held is Leaving with locks, for a transaction that may take long: a guild whose removal is due is
// not deleted before the transaction ends.
func Held(ctx context.Context, tx *db.Tx, ids ...string) (map[string]bool, error) {
	return areLeaving(ctx, tx, ids, "FOR KEY SHARE")
}

func areLeaving(ctx context.Context, tx *db.Tx, ids []string, lock string) (map[string]bool, error) {
	is := make(map[string]bool)
	look := func(args ...any) error {
		rows, err := db.Select[struct {
			ID      string
			Leaving bool
		}](ctx, tx, `
			SELECT g.id, home.leaving
			FROM unnest($1::text[]) AS g (id)
			CROSS JOIN LATERAL (
				SELECT removed_at IS NOT NULL AS leaving
				FROM guilds
				WHERE id = g.id /*: $2 */
				`+lock+`
			) home`, args...)
		for _, r := range rows {
			is[r.ID] = r.Leaving
		}
		return fault.Wrap(err, "look whether guilds are leaving")
	}
	if !tx.Distributed {
		return is, look(db.Array(ids))
	}
	for _, id := range ids {
		if err := look(db.Array([]string{id}), id); err != nil {
			return nil, err
		}
	}
	return is, nil
}

// getSettings returns the guild's settings. Every guild has a row.
func getSettings(ctx context.Context, q db.Querier, guild string) (settings, error) {
	s, err := db.Get[settings](ctx, q, `
		SELECT `+settingsColumns+`
		FROM guild_settings
		WHERE guild_id = $1`, guild)
	return s, fault.Wrap(err, "read the settings of guild", guild)
}

package db

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Outlived says which rows of a table of guilds nobody needs any more. All of it
// is constant text.
type Outlived struct {
	Table string
	Key   string // the primary key's columns but for guild_id: "token_id, key"
	Since string // the column that says how old a row is; an index begins with it
	Kept  string // an interval: for how long after that it stays
	And   string // what must hold besides, of the row t; empty: nothing
}

// outlived is the condition, for the row t and the parameter that says what time
// it is.
func (o Outlived) outlived(now string) string {
	text := `t.` + o.Since + ` < coalesce(` + now + `::timestamptz, now()) - interval '` + o.Kept + `'`
	if o.And != "" {
		text += ` AND ` + o.And
	}
	return text
}

// each writes the key's columns, each as the pattern says.
func (o Outlived) each(pattern, between string) string {
	columns := strings.Split(o.Key, ", ")
	for i, c := range columns {
		columns[i] = strings.ReplaceAll(pattern, "?", c)
	}
	return strings.Join(columns, between)
}

// Prune deletes up to limit rows that are outlived at an instant, nil for the
// database's now, the oldest first, and returns how many. It finds them without
// locks and deletes them guild by guild, those that are still outlived and that
// nobody holds.
func Prune(ctx context.Context, tx *Tx, o Outlived, now *time.Time, limit int) (int, error) {
	var guilds []struct {
		GuildID string `db:"guild_id"`
		Keys    string `db:"keys"`
	}
	err := tx.SelectContext(ctx, &guilds, `
		SELECT guild_id, jsonb_agg(to_jsonb(old) - 'guild_id') AS keys
		FROM (
			SELECT t.guild_id, `+o.each("t.?", ", ")+`
			FROM `+o.Table+` t
			WHERE `+o.outlived("$2")+`
			ORDER BY t.`+o.Since+`
			LIMIT $1
		) old
		WHERE guild_id IS NOT NULL
		GROUP BY guild_id
		ORDER BY guild_id`, limit, now)
	if err != nil {
		return 0, fmt.Errorf("look for what is outlived in %s: %w", o.Table, err)
	}
	deleted := 0
	for _, g := range guilds {
		n, err := Exec(ctx, tx, `
			WITH free AS MATERIALIZED (
				SELECT `+o.each("t.?", ", ")+`
				FROM jsonb_populate_recordset(NULL::`+o.Table+`, $2::jsonb) AS old
				JOIN `+o.Table+` t ON t.guild_id = $1 AND `+o.each("t.? = old.?", " AND ")+`
				WHERE `+o.outlived("$3")+`
				FOR UPDATE OF t SKIP LOCKED
			)
			DELETE FROM `+o.Table+` t
			USING free
			WHERE t.guild_id = $1 AND `+o.each("t.? = free.?", " AND "), g.GuildID, g.Keys, now)
		if err != nil {
			return 0, fmt.Errorf("delete what is outlived in %s of guild %s: %w", o.Table, g.GuildID, err)
		}
		deleted += n
	}
	return deleted, nil
}

// PruneOf is Prune in a unit of its own.
func PruneOf(ctx context.Context, d Doer, o Outlived, limit int) (deleted int, err error) {
	err = d.Do(ctx, func(ctx context.Context, tx *Tx) error {
		deleted, err = Prune(ctx, tx, o, nil, limit)
		return err
	})
	return deleted, err
}

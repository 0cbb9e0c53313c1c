package db

import (
	"context"
	"strconv"
	"strings"
	"time"

	"guildhall/internal/base/fault"
)

// Expiry describes when the rows of a table expire. Its fields become SQL and must be constant
// text.
type Expiry struct {
	Table  string
	Key    string // the columns of the primary key without guild_id, such as "token_id, key"
	Since  string // the column with the instant from which a row's age counts; an index must begin with it
	Kept   string // the age at which a row expires, as an interval
	And    string // a further condition on the row t; empty: none
	Shared bool   // the table has no guild_id
}

// expired returns the condition that the row t has expired at the instant now, which is a
// parameter or NULL for the database's now().
func (o Expiry) expired(now string) string {
	text := `t.` + o.Since + ` < coalesce(` + now + `::timestamptz, now()) - interval '` + o.Kept + `'`
	if o.And != "" {
		text += ` AND ` + o.And
	}
	return text
}

// each formats each column of the key by replacing "?" in pattern, and joins the results.
func (o Expiry) each(pattern, between string) string {
	columns := strings.Split(o.Key, ", ")
	for i, c := range columns {
		columns[i] = strings.ReplaceAll(pattern, "?", c)
	}
	return strings.Join(columns, between)
}

// Prune deletes up to limit rows that have expired at the instant now (nil: the database's
// now()), the oldest first, and returns how many. It skips locked rows. Distributed tables
// are pruned guild by guild, others in one statement: 1,000 keys of as many guilds take
// 11 ms instead of 139.
func Prune(ctx context.Context, tx *Tx, o Expiry, now *time.Time, limit int) (int, error) {
	if tx.Distributed && !o.Shared {
		return o.pruneByGuild(ctx, tx, now, limit)
	}
	n, err := Exec(ctx, tx, o.together(limit), now)
	return n, fault.Wrap(err, "delete expired rows of", o.Table)
}

// together returns the statement that deletes the oldest expired rows of all guilds. The
// limit is part of the text: for a parameter Postgres plans with a tenth of the table.
func (o Expiry) together(limit int) string {
	if !o.Shared {
		o.Key = "guild_id, " + o.Key
	}
	return `
		WITH expired AS MATERIALIZED (
			SELECT ` + o.each("t.?", ", ") + `
			FROM ` + o.Table + ` t
			WHERE ` + o.expired("$1") + `
			ORDER BY t.` + o.Since + `
			LIMIT ` + strconv.Itoa(limit) + `
			FOR UPDATE OF t SKIP LOCKED
		)
		DELETE FROM ` + o.Table + ` t
		USING expired
		WHERE ` + o.each("t.? = expired.?", " AND ")
}

// pruneByGuild finds expired rows without locks, then deletes guild by guild those that are still
// expired.
func (o Expiry) pruneByGuild(ctx context.Context, tx *Tx, now *time.Time, limit int) (int, error) {
	var guilds []struct {
		GuildID string `db:"guild_id"`
		Keys    string `db:"keys"`
	}
	err := tx.SelectContext(ctx, &guilds, `
		SELECT guild_id, jsonb_agg(to_jsonb(old) - 'guild_id') AS keys
		FROM (
			SELECT t.guild_id, `+o.each("t.?", ", ")+`
			FROM `+o.Table+` t
			WHERE `+o.expired("$2")+`
			ORDER BY t.`+o.Since+`
			LIMIT $1
		) old
		WHERE guild_id IS NOT NULL
		GROUP BY guild_id
		ORDER BY guild_id`, limit, now)
	if err != nil {
		return 0, fault.Wrap(err, "look for expired rows of", o.Table)
	}
	deleted := 0
	for _, g := range guilds {
		n, err := Exec(ctx, tx, `
			WITH free AS MATERIALIZED (
				SELECT `+o.each("t.?", ", ")+`
				FROM jsonb_populate_recordset(NULL::`+o.Table+`, $2::jsonb) AS old
				JOIN `+o.Table+` t ON t.guild_id = $1 AND `+o.each("t.? = old.?", " AND ")+`
				WHERE `+o.expired("$3")+`
				FOR UPDATE OF t SKIP LOCKED
			)
			DELETE FROM `+o.Table+` t
			USING free
			WHERE t.guild_id = $1 AND `+o.each("t.? = free.?", " AND "), g.GuildID, g.Keys, now)
		if err != nil {
			return 0, fault.Wrap(err, "delete expired rows of", o.Table, "of guild", g.GuildID)
		}
		deleted += n
	}
	return deleted, nil
}

// PruneOf is Prune in a transaction of its own.
func PruneOf(ctx context.Context, d Doer, o Expiry, limit int) (deleted int, err error) {
	err = d.Do(ctx, func(ctx context.Context, tx *Tx) error {
		deleted, err = Prune(ctx, tx, o, nil, limit)
		return err
	})
	return deleted, err
}

// OldestExpired returns how long ago the oldest expired row of a table expired, and 0 when
// no row has.
func OldestExpired(ctx context.Context, q Querier, o Expiry) (time.Duration, error) {
	ages, err := Select[float64](ctx, q, `
		SELECT extract(epoch FROM now() - interval '`+o.Kept+`' - t.`+o.Since+`)::float8
		FROM `+o.Table+` t
		WHERE `+o.expired("NULL")+`
		ORDER BY t.`+o.Since+`
		LIMIT 1`)
	if err != nil {
		return 0, fault.Wrap(err, "look how old the oldest expired row of", o.Table, "is")
	}
	if len(ages) == 0 {
		return 0, nil
	}
	return time.Duration(ages[0] * float64(time.Second)), nil
}

package guilds

import (
	"context"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/delivery"
)

const (
	// DefaultDays is how long a guild can be restored after its removal was requested, unless the
	// request says otherwise.
	DefaultDays = 7
	// MaxDays is the longest time that a request can choose.
	MaxDays = 30
)

// RemoveGuild schedules the removal of a guild. From now on the guild's tokens and endpoints do not
// work, and at the scheduled time its data is deleted.
func (s *Service) RemoveGuild(ctx context.Context, r gen.RemoveGuildRequestObject) (gen.RemoveGuildResponseObject, error) {
	days, guild := DefaultDays, auth.Acting(ctx).GuildID
	if r.Body != nil && r.Body.AfterDays != nil {
		days = *r.Body.AfterDays
	}
	after, err := Remove(ctx, db.Write(ctx), guild, days)
	if err != nil {
		return nil, err
	}
	return gen.RemoveGuild202JSONResponse{Data: gen.GuildRemoval{GuildID: guild, RemovedAfter: wire.At(after)}}, nil
}

// Remove schedules the removal of a guild after that many days and returns the time. From the
// commit on, requests do not find the guild: its tokens are revoked, its endpoints are disabled,
// and every node drops it from its cache (auth.Await waits for that). Until the scheduled time
// Restore undoes the removal; then a worker deletes the guild's data. Calling Remove again sets a
// new time. It returns a NotFound fault for a guild that does not exist, and a Conflict if the
// deletion has begun.
func Remove(ctx context.Context, tx *db.Tx, guild string, days int) (after time.Time, err error) {
	if _, err := hold(ctx, tx, guild); err != nil {
		return time.Time{}, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	after = now.AddDate(0, 0, days)
	if _, err := db.Exec(ctx, tx, leave, guild, now, after); err != nil {
		return time.Time{}, fault.Wrap(err, "remove guild", guild)
	}
	if _, _, err := auth.RevokeWithin(ctx, tx, guild); err != nil {
		return time.Time{}, err
	}
	if err := disableEndpoints(ctx, tx, guild); err != nil {
		return time.Time{}, err
	}
	if _, err := db.Exec(ctx, tx, `DELETE FROM dashboard_links WHERE guild_id = $1`, guild); err != nil {
		return time.Time{}, fault.Wrap(err, "end the dashboard's links of guild", guild)
	}
	if err := auth.Announce(ctx, tx); err != nil {
		return time.Time{}, err
	}
	return after, audit.Record(ctx, tx, audit.Change{Guild: guild, Action: audit.GuildRemoved, Target: guild, After: map[string]any{"removed_after": after}})
}

// disableEndpoints disables the enabled endpoints of a guild. It also locks the others, one of
// which may be about to be enabled.
func disableEndpoints(ctx context.Context, tx *db.Tx, guild string) error {
	endpoints, err := db.Select[struct {
		ID      string `db:"id"`
		Enabled bool   `db:"enabled"`
	}](ctx, tx, `SELECT id, enabled FROM webhook_endpoints WHERE guild_id = $1 ORDER BY id FOR UPDATE`, guild)
	if err != nil {
		return fault.Wrap(err, "list the endpoints of guild", guild)
	}
	for _, e := range endpoints {
		if !e.Enabled {
			continue
		}
		if err := delivery.Disable(ctx, tx, guild, e.ID, delivery.ReasonRemoved); err != nil {
			return err
		}
	}
	return nil
}

// Restore undoes the removal of a guild. Its tokens stay revoked and its endpoints disabled. It
// returns false if the guild was not being removed, a NotFound fault for a guild that does not
// exist, and a Conflict if the deletion has begun.
func Restore(ctx context.Context, tx *db.Tx, guild string) (taken bool, err error) {
	leaving, err := hold(ctx, tx, guild)
	if err != nil || !leaving {
		return false, err
	}
	if _, err := db.Exec(ctx, tx, leave, guild, nil, nil); err != nil {
		return false, fault.Wrap(err, "restore guild", guild)
	}
	return true, audit.Record(ctx, tx, audit.Change{Guild: guild, Action: audit.GuildRestored, Target: guild})
}

// leave sets since when and until when a guild leaves ($2 and $3), or clears both.
var leave = `
	WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
	UPDATE guilds
	SET removed_at = $2, removed_after = $3, updated_at = ` + db.Next("instant.at", "updated_at") + `
	FROM instant
	WHERE id = $1`

// hold locks a guild that exists and reports whether its removal is scheduled.
func hold(ctx context.Context, tx *db.Tx, guild string) (leaving bool, err error) {
	g, err := db.Get[struct {
		Leaving bool `db:"leaving"`
		Going   bool `db:"going"`
	}](ctx, tx, `
		SELECT removed_at IS NOT NULL AS leaving, coalesce(removed_after <= now(), false) AS going
		FROM guilds
		WHERE id = $1
		FOR NO KEY UPDATE`, guild)
	switch {
	case db.Missing(err):
		return false, auth.NoGuild(guild)
	case err == nil && g.Going:
		return false, BeingRemoved(guild)
	}
	return g.Leaving, fault.Wrap(err, "lock guild", guild)
}

// BeingRemoved returns the refusal to create or restore a guild whose deletion has begun.
func BeingRemoved(guild string) error {
	return fault.New(fault.Conflict, "guild_being_removed",
		"Guild %s is being removed, and what it had is being deleted. It can be made again when that is done, within minutes.", guild).After(time.Minute)
}

// Listed is a guild in the output of `guildhall guild list`.
type Listed struct {
	ID           string     `db:"id"`
	Name         string     `db:"name"`
	Status       string     `db:"status"` // active, leaving, or going once the deletion has begun
	CreatedAt    time.Time  `db:"created_at"`
	RemovedAfter *time.Time `db:"removed_after"` // nil: no removal is scheduled
}

const listAfter = `
	SELECT id, name, created_at, removed_after,
	       CASE WHEN removed_after IS NULL THEN 'active' WHEN removed_after > now() THEN 'leaving' ELSE 'going' END AS status
	FROM guilds
	WHERE id > $1
	ORDER BY id
	LIMIT $2`

// List returns guilds in the order of their ids, starting after `after`, including those that are
// being removed.
func List(ctx context.Context, q db.Querier, after string, limit int) ([]Listed, error) {
	rows, err := db.Select[Listed](ctx, q, listAfter, after, limit)
	return rows, fault.Wrap(err, "list the guilds")
}

package delivery

import (
	"context"
	"log/slog"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// A new, changed or deleted stream is added to (or removed from) the guilds in the order of their
// ids, a few guilds in each unit of work: a backfill. A guild that is created meanwhile adds the
// streams itself (SubscribeNew), and its unit of work holds the lock streamsLock from before the
// read of the streams until the commit. When the backfill has visited every guild, the backfill
// waits until nobody holds the lock, so that every unit of work that created a guild without the
// change has committed. Then the backfill visits all guilds once more. After that, no event is
// lost: complete_since.

const (
	// streamsLock is the key of the advisory lock.
	streamsLock = `hashtext('guildhall: streams are known')`

	// guildsPerUnit is how many guilds one unit of work visits. dropsPerUnit is how many events of
	// a deleted stream one unit of work deletes.
	guildsPerUnit, dropsPerUnit = 100, 1000
)

// SubscribeNew subscribes every stream to the guilds that the unit of work has just created.
func SubscribeNew(ctx context.Context, tx *db.Tx, guilds []string) error {
	if _, err := db.Exec(ctx, tx, `SELECT pg_advisory_xact_lock_shared(`+streamsLock+`)`); err != nil {
		return fault.Wrap(err, "lock which streams there are")
	}
	streams, err := db.Select[backfill](ctx, tx, `SELECT id, events, echo FROM bot_streams WHERE ended_at IS NULL AND id <> '`+StreamWork+`' ORDER BY id`)
	if err != nil {
		return fault.Wrap(err, "list the streams")
	}
	for _, s := range streams {
		if err := s.subscribe(ctx, tx, guilds); err != nil {
			return err
		}
	}
	return nil
}

// backfill is a stream with a backfill in progress.
type backfill struct {
	ID         string     `db:"id"`
	Events     db.Strings `db:"events"`
	Echo       bool       `db:"echo"`
	Backfilled string     `db:"backfilled"`
	InSync     bool       `db:"in_sync"`
	Ended      bool       `db:"ended"`
}

// subscribe creates or changes the stream's listeners in some guilds, except guilds whose removal
// is due: the removal would not delete a row that is added after its step for this table.
func (s backfill) subscribe(ctx context.Context, tx *db.Tx, guilds []string) error {
	for _, guild := range guilds {
		_, err := db.Exec(ctx, tx, `
			INSERT INTO stream_listeners AS l (guild_id, stream_id, events, echo)
			SELECT home.id, $2, $3, $4
			FROM guilds home
			WHERE home.id = $1 AND (home.removed_after IS NULL OR home.removed_after > now())
			ON CONFLICT (guild_id, stream_id) DO UPDATE
			SET events = excluded.events, echo = excluded.echo
			WHERE (l.events, l.echo) IS DISTINCT FROM (excluded.events, excluded.echo)`, guild, s.ID, s.Events, s.Echo)
		if err != nil {
			return fault.Wrap(err, "subscribe stream", s.ID, "in guild", guild)
		}
	}
	return nil
}

// BackfillStreams deletes the streams that nobody has fetched from for too long, and continues the
// backfills of the others. Several nodes may run BackfillStreams at once.
func BackfillStreams(ctx context.Context, d *db.DB, log *slog.Logger) error {
	return backfillStreams(ctx, d, log, nil)
}

func backfillStreams(ctx context.Context, d *db.DB, log *slog.Logger, at *time.Time) error {
	// If no backfill is due, a second costs only this one query without a transaction.
	due, err := db.Select[struct {
		ID   string `db:"id"`
		Over bool   `db:"over"`
	}](ctx, d.Reader(), `
		SELECT id, ended_at IS NULL AND `+longUnfetched("$1", "$2")+` AS over
		FROM bot_streams
		WHERE backfilled IS NOT NULL OR ended_at IS NOT NULL OR `+longUnfetched("$1", "$2")+`
		ORDER BY id`, at, streamEnds.Seconds())
	if err != nil {
		return fault.Wrap(err, "look for streams to backfill")
	}
	for _, s := range due {
		if s.Over {
			if err := endUnfetched(ctx, d, log, at, s.ID); err != nil {
				return err
			}
		}
		for more := true; more && ctx.Err() == nil; {
			err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
				more, err = continueBackfill(ctx, tx, at, s.ID)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// longUnfetched returns the SQL condition for a stream that nobody has fetched from for the given
// number of seconds.
func longUnfetched(at, seconds string) string {
	return `id <> '` + StreamWork + `' AND coalesce(fetched_at, created_at) < coalesce(` + at + `::timestamptz, now()) - ` + seconds + ` * interval '1 second'`
}

// endUnfetched ends a stream unless a caller has fetched from it meanwhile.
func endUnfetched(ctx context.Context, d *db.DB, log *slog.Logger, at *time.Time, id string) error {
	var names []string
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		names, err = db.Select[string](ctx, tx, `
			UPDATE bot_streams
			SET ended_at = coalesce($1::timestamptz, now())
			WHERE id = $3 AND ended_at IS NULL AND `+longUnfetched("$1", "$2")+`
			RETURNING name`, at, streamEnds.Seconds(), id)
		return fault.Wrap(err, "end stream", id, "that nobody fetches from")
	})
	for _, name := range names {
		log.Warn("a stream of the bot's has ended: nobody has fetched from it for 7 days", "stream", name)
	}
	return err
}

// continueBackfill visits some more guilds for a stream, unless another node does, and reports
// whether there is more to do now.
func continueBackfill(ctx context.Context, tx *db.Tx, at *time.Time, id string) (more bool, err error) {
	s, err := db.Get[backfill](ctx, tx, `
		SELECT id, events, echo, coalesce(backfilled, '') AS backfilled, in_sync, ended_at IS NOT NULL AS ended
		FROM bot_streams
		WHERE id = $1 AND (backfilled IS NOT NULL OR ended_at IS NOT NULL)
		FOR NO KEY UPDATE SKIP LOCKED`, id)
	switch {
	case db.Missing(err):
		return false, nil
	case err != nil:
		return false, fault.Wrap(err, "lock stream", id)
	case s.Ended:
		return s.end(ctx, tx)
	}
	guilds, err := db.Select[string](ctx, tx, `SELECT id FROM guilds WHERE id > $1 ORDER BY id LIMIT $2`, s.Backfilled, guildsPerUnit)
	if err != nil {
		return false, fault.Wrap(err, "list guilds")
	}
	if err := s.subscribe(ctx, tx, guilds); err != nil {
		return false, err
	}
	if len(guilds) > 0 {
		_, err := db.Exec(ctx, tx, `UPDATE bot_streams SET backfilled = $2 WHERE id = $1`, id, guilds[len(guilds)-1])
		return true, fault.Wrap(err, "note which guilds know of stream", id)
	}
	return s.finishPass(ctx, tx, at)
}

// finishPass is the step after a backfill has visited every guild.
func (s backfill) finishPass(ctx context.Context, tx *db.Tx, at *time.Time) (more bool, err error) {
	if s.InSync {
		_, err := db.Exec(ctx, tx, `
			UPDATE bot_streams
			SET backfilled = NULL, complete_since = coalesce(complete_since, $2, now())
			WHERE id = $1`, s.ID, at)
		return false, fault.Wrap(err, "note that all guilds know of stream", s.ID)
	}
	if all, err := lockStreams(ctx, tx); err != nil || !all {
		return false, err
	}
	_, err = db.Exec(ctx, tx, `UPDATE bot_streams SET backfilled = '', in_sync = true WHERE id = $1`, s.ID)
	return true, fault.Wrap(err, "begin the second walk of stream", s.ID)
}

// lockStreams takes the lock exclusively and reports whether it was free: then no unit of work is
// creating a guild with an old list of streams, and none can start until this unit of work ends.
func lockStreams(ctx context.Context, tx *db.Tx) (all bool, err error) {
	all, err = db.Get[bool](ctx, tx, `SELECT pg_try_advisory_xact_lock(`+streamsLock+`)`)
	return all, fault.Wrap(err, "look whether guilds are being made")
}

// end deletes some listeners of a stream that has ended; then its waiting events; then the stream.
func (s backfill) end(ctx context.Context, tx *db.Tx) (more bool, err error) {
	guilds, err := db.Select[string](ctx, tx, `SELECT guild_id FROM stream_listeners WHERE stream_id = $1 ORDER BY guild_id LIMIT $2`, s.ID, guildsPerUnit)
	if err != nil {
		return false, fault.Wrap(err, "list the listeners of stream", s.ID)
	}
	for _, guild := range guilds {
		if _, err := db.Exec(ctx, tx, `DELETE FROM stream_listeners WHERE guild_id = $1 AND stream_id = $2`, guild, s.ID); err != nil {
			return false, fault.Wrap(err, "end stream", s.ID, "in guild", guild)
		}
	}
	if len(guilds) > 0 {
		return true, nil
	}
	waiting, err := db.Select[db.Found](ctx, tx, `
		SELECT guild_id, event_id AS id
		FROM stream_deliveries
		WHERE stream_id = $1
		ORDER BY due_at
		LIMIT $2`, s.ID, dropsPerUnit)
	if err != nil {
		return false, fault.Wrap(err, "list what waits for stream", s.ID)
	}
	for guild, part := range db.ByGuild(waiting, func(f db.Found) string { return f.GuildID }) {
		ids := make([]string, len(part))
		for i, f := range part {
			ids[i] = f.ID
		}
		_, err := db.Exec(ctx, tx, `DELETE FROM stream_deliveries WHERE guild_id = $1 AND stream_id = $2 AND event_id = ANY ($3)`, guild, s.ID, db.Array(ids))
		if err != nil {
			return false, fault.Wrap(err, "give up what waits for stream", s.ID, "in guild", guild)
		}
	}
	if len(waiting) > 0 {
		return true, nil
	}
	if all, err := lockStreams(ctx, tx); err != nil || !all {
		return false, err
	}
	// A guild that was created with an old list of streams may have added a listener since this
	// unit of work started.
	guilds, err = db.Select[string](ctx, tx, `SELECT guild_id FROM stream_listeners WHERE stream_id = $1 LIMIT 1`, s.ID)
	if err != nil || len(guilds) > 0 {
		return len(guilds) > 0, fault.Wrap(err, "look for listeners of stream", s.ID)
	}
	_, err = db.Exec(ctx, tx, `DELETE FROM bot_streams WHERE id = $1`, s.ID)
	return false, fault.Wrap(err, "remove stream", s.ID)
}

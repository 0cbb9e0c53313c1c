package streams

import (
	"context"
	"slices"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/outbound/delivery"
)

// row is a stored stream.
type row struct {
	ID        string     `db:"id"`
	Name      string     `db:"name"`
	Events    db.Strings `db:"events"`
	Echo      bool       `db:"echo"`
	CreatedAt time.Time  `db:"created_at"`
	FetchedAt *time.Time `db:"fetched_at"`
}

// maxStreams is how many streams an installation may have besides the stream of work. It bounds the
// cost of each event.
const maxStreams = 4

const columns = `id, name, events, echo, created_at, fetched_at`

// list returns a page of the streams, by name, and one row more.
func list(ctx context.Context, q db.Querier, p page.P) ([]row, error) {
	rows, err := db.Select[row](ctx, q, `
		SELECT `+columns+`
		FROM bot_streams
		WHERE ended_at IS NULL
		ORDER BY name
		LIMIT $1 OFFSET $2`, p.Limit(), p.Offset())
	return rows, fault.Wrap(err, "list the streams")
}

// put creates or changes a stream. Guilds are updated in the background; until that is done, some
// events of newly added types may be missing.
func put(ctx context.Context, tx *db.Tx, name string, events []string, echo bool) (row, error) {
	if _, err := db.Exec(ctx, tx, `SELECT pg_advisory_xact_lock(hashtext('guildhall: streams begin'))`); err != nil {
		return row{}, fault.Wrap(err, "lock the list of streams")
	}
	was, err := db.Get[row](ctx, tx, `SELECT `+columns+` FROM bot_streams WHERE name = $1 AND ended_at IS NULL FOR NO KEY UPDATE`, name)
	switch {
	case db.Missing(err):
		return begin(ctx, tx, name, events, echo)
	case err != nil:
		return row{}, fault.Wrap(err, "lock stream", name)
	case same(was, events, echo):
		return was, nil
	}
	is, err := db.Get[row](ctx, tx, `
		UPDATE bot_streams
		SET events = $2, echo = $3, backfilled = '', in_sync = false, complete_since = CASE WHEN $4 THEN complete_since END
		WHERE id = $1
		RETURNING `+columns, was.ID, db.Array(events), echo, narrows(was, events, echo))
	return is, fault.Wrap(err, "change stream", name)
}

func begin(ctx context.Context, tx *db.Tx, name string, events []string, echo bool) (row, error) {
	have, err := db.Get[int](ctx, tx, `SELECT count(*) FROM bot_streams WHERE ended_at IS NULL AND id <> '`+delivery.StreamWork+`'`)
	if err != nil {
		return row{}, fault.Wrap(err, "count the streams")
	}
	if have >= maxStreams {
		return row{}, fault.New(fault.Refused, "stream_limit_reached", "There can be %d streams beside that of work.", maxStreams)
	}
	is, err := db.Get[row](ctx, tx, `
		INSERT INTO bot_streams (id, name, events, echo, backfilled)
		VALUES ($1, $2, $3, $4, '')
		RETURNING `+columns, db.NewID(), name, db.Array(events), echo)
	return is, fault.Wrap(err, "begin stream", name)
}

// same reports whether a stream already has the desired properties.
func same(was row, events []string, echo bool) bool {
	return was.Echo == echo && slices.Equal(slices.Sorted(slices.Values(was.Events)), slices.Sorted(slices.Values(events)))
}

// narrows reports whether the change adds no events to the stream.
func narrows(was row, events []string, echo bool) bool {
	return (was.Echo || !echo) && !slices.ContainsFunc(events, func(e string) bool { return !slices.Contains(was.Events, e) })
}

// end deletes a stream with the events that wait for it, or returns a NotFound fault.
func end(ctx context.Context, tx *db.Tx, name string) error {
	n, err := db.Exec(ctx, tx, `UPDATE bot_streams SET ended_at = now() WHERE name = $1 AND ended_at IS NULL`, name)
	if err == nil && n == 0 {
		return fault.New(fault.NotFound, "not_found", "There is no such stream.")
	}
	return fault.Wrap(err, "end stream", name)
}

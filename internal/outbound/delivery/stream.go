package delivery

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// The operator's bot fetches the events of all guilds from a stream. The stream's row in
// stream_listeners for a guild says which of the guild's events the stream gets; the events wait in
// stream_deliveries until they are acknowledged or 30 days old. The code that sends events reads
// neither table. A fetch leases a row by its due_at, as for a pull endpoint.

// StreamWork is the name and the id of the stream of work for the bot. The stream always exists,
// and holds what event.RecordFor records for it.
const StreamWork = "work"

// streamEnds is the time without a fetch after which a stream is deleted.
const streamEnds = unfetchedFor

// Part is the part of a stream that a caller fetches: the guilds of one shard, limited to the
// guilds of the caller's key.
type Part struct {
	Stream        string // name of the stream
	Shard, Shards int
	Guilds        []string // guilds of the key, in order; nil means every guild
}

var noSuchStream = fault.New(fault.NotFound, "not_found", "There is no such stream; it may have ended, since nobody fetched from it for 7 days.")

// stream is what a fetch needs to know of a stream.
type stream struct {
	ID       string    `db:"id"`
	Now      time.Time `db:"now"`
	Oldest   time.Time `db:"oldest"`   // older events are past their retention
	Complete time.Time `db:"complete"` // no event since then is lost
	Note     bool      `db:"note"`     // the fetch must be stored
	Overdue  bool      `db:"overdue"`  // and should have been stored before
}

// openStream finds a stream by its name. While the stream is still being added to the guilds,
// events may be lost until this instant.
func openStream(ctx context.Context, tx *db.Tx, at *time.Time, name string) (stream, error) {
	s, err := db.Get[stream](ctx, tx, `
		SELECT id, n.now, n.now - $3 * interval '1 second' AS oldest,
		       CASE WHEN complete_since IS NULL THEN n.now ELSE greatest(complete_since, n.now - $3 * interval '1 second') END AS complete,
		       fetched_at IS NULL OR fetched_at < n.now - $4 * interval '1 second' AS note,
		       coalesce(fetched_at, created_at) < n.now - $4 * interval '2 seconds' AS overdue
		FROM (SELECT coalesce($2::timestamptz, statement_timestamp()) AS now, `+byIndexOrder+` AS done) n
		CROSS JOIN bot_streams
		WHERE name = $1 AND ended_at IS NULL AND n.done <> ''`, name, at, keep.Seconds(), fetchNoted.Seconds())
	if db.Missing(err) {
		return s, noSuchStream
	}
	return s, fault.Wrap(err, "open stream", name)
}

// leaseStreamed leases events until $5, if they are due and no other caller is fetching them. The
// statement leases the oldest events that fit into $6 bytes; the others come back without a
// payload. The first event always fits if $7 is set.
//
// This statement and the statements that acknowledge and return events find an event by its id
// alone. The rest of its key is inside a CASE, which the planner cannot use: with statistics from a
// time with few waiting events, the planner would assume one row for the guild, and read all rows
// of the guild for each event.
var leaseStreamed = newStatement(`
	WITH due AS MATERIALIZED (
		SELECT w.guild_id, w.event_id, w.due_at
		FROM jsonb_to_recordset($1::jsonb) AS p (guild_id text, event_id text)
		CROSS JOIN LATERAL (
			SELECT w.guild_id, w.event_id, w.due_at
			FROM stream_deliveries w
			WHERE w.event_id = p.event_id /*: p.event_id AND w.guild_id = $8 */
			  AND CASE WHEN w.guild_id = p.guild_id /*: $8 */ AND w.stream_id = $2 AND w.due_at <= $3 THEN w.event_at >= $4 END
			FOR NO KEY UPDATE SKIP LOCKED
		) w
	), sized AS MATERIALIZED (
		SELECT v.guild_id, v.id, v.occurred_at, v.payload, sum(octet_length(v.payload) + 1) OVER w <= $6 OR $7 AND row_number() OVER w = 1 AS fits
		FROM due
		CROSS JOIN LATERAL (
			SELECT guild_id, id, occurred_at, payload FROM webhook_events WHERE guild_id = due.guild_id /*: $8 */ AND id = due.event_id OFFSET 0
		) v
		WINDOW w AS (ORDER BY due.due_at, v.guild_id, v.occurred_at, v.id)
	), leased AS (
		UPDATE stream_deliveries d
		SET due_at = $5, fetched = true
		FROM sized s
		WHERE s.fits AND d.event_id = s.id /*: s.id AND d.guild_id = $8 */
		  AND CASE WHEN d.guild_id = s.guild_id /*: $8 */ THEN d.stream_id = $2 END
	)
	SELECT CASE WHEN s.fits THEN s.payload END
	FROM sized s
	ORDER BY s.guild_id, s.occurred_at, s.id`)

// fetchRounds is how many times a fetch searches again when other callers have leased the events
// that the fetch has found.
const fetchRounds = 5

// FetchStream leases the oldest events of a part of a stream that nobody has leased, at most limit,
// and stores who has fetched. The cost depends on the number of waiting events, not on the number
// of guilds.
func FetchStream(ctx context.Context, tx *db.Tx, p Part, by string, limit int, lease time.Duration) (Fetched, error) {
	return fetchStream(ctx, tx, nil, p, by, limit, lease)
}

func fetchStream(ctx context.Context, tx *db.Tx, at *time.Time, p Part, by string, limit int, lease time.Duration) (out Fetched, err error) {
	s, err := openStream(ctx, tx, at, p.Stream)
	if err != nil {
		return out, err
	}
	out.Complete, out.Stream = s.Complete, s.ID
	if s.Note {
		if err := noteFetch(ctx, tx, s, by); err != nil {
			return out, err
		}
	}
	look := search{part: p, stream: s, after: streamed{DueAt: time.Unix(0, 0)}}
	for range fetchRounds {
		found, more, err := look.next(ctx, tx, limit-len(out.Events))
		if err != nil {
			return out, fault.Wrap(err, "find what waits for stream", p.Stream)
		}
		full, err := out.take(ctx, tx, s, found, s.Now.Add(lease))
		if out.More = more || full; err != nil || full || !more || look.over || len(out.Events) == limit {
			return out, err
		}
	}
	return out, nil
}

// take leases the found events, and reports whether there were more than fit into one response.
func (f *Fetched) take(ctx context.Context, tx *db.Tx, s stream, found []streamed, until time.Time) (full bool, err error) {
	err = inOrder(tx, leaseStreamed, found, func(query, rows string, guild ...any) error {
		if full {
			return nil
		}
		args := append([]any{rows, s.ID, s.Now, s.Oldest, until, pullBytes - f.bytes, len(f.Events) == 0}, guild...)
		payloads, err := db.Select[[]byte](ctx, tx, query, args...)
		for _, payload := range payloads {
			if full = full || payload == nil; payload != nil {
				f.Events, f.bytes = append(f.Events, payload), f.bytes+len(payload)+1
			}
		}
		return err
	})
	return full, fault.Wrap(err, "lease what waits for stream", s.ID)
}

// inOrder runs a statement on events of a stream, ordered by guild and id. Acknowledgements lock
// several events in the same order.
func inOrder(tx *db.Tx, s statement, events []streamed, do func(query, rows string, guild ...any) error) error {
	slices.SortFunc(events, func(a, b streamed) int {
		return cmp.Or(cmp.Compare(a.GuildID, b.GuildID), cmp.Compare(a.EventID, b.EventID))
	})
	return run(s, tx.Distributed, events, func(e streamed) string { return e.GuildID }, do)
}

// noteWhenFree stores who fetches from a stream, unless another unit of work has locked the stream:
// a later fetch can store it, and no fetch waits for another. noteInTurn waits for the lock; the
// other unit of work may roll back, or delete the stream.
const (
	noteWhenFree = `
	UPDATE bot_streams
	SET fetched_at = $2, fetched_by = $3
	WHERE id = ANY (ARRAY(SELECT id FROM bot_streams WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED))`
	noteInTurn = `
	UPDATE bot_streams
	SET fetched_at = $2, fetched_by = $3
	WHERE id = $1 AND ended_at IS NULL`
)

// noteFetch stores who fetches from a stream, so that the stream is not deleted. If the stream was
// deleted first, the error is noSuchStream.
func noteFetch(ctx context.Context, tx *db.Tx, s stream, by string) error {
	statement := noteWhenFree
	if s.Overdue {
		statement = noteInTurn
	}
	n, err := db.Exec(ctx, tx, statement, s.ID, s.Now, by)
	if err == nil && n == 0 && s.Overdue {
		return noSuchStream
	}
	return fault.Wrap(err, "note who fetches from stream", s.ID)
}

// findLeased finds the guilds of events that were fetched from a stream.
const findLeased = `
	SELECT w.guild_id, w.event_id
	FROM stream_deliveries w
	WHERE w.event_id = ANY ($2)
	  AND CASE WHEN w.stream_id = $1 AND w.fetched THEN cardinality($3::text[]) = 0 OR w.guild_id = ANY ($3::text[]) END`

// settleStreamed marks events as delivered and deletes their rows; returnStreamed returns events.
// If an event waits for no other receiver and was sent to none, settleStreamed deletes the event,
// too: a stream has no log. If two streams acknowledge an event at the same moment, the event stays
// until its retention ends.
var (
	settleStreamed = newStatement(`
	WITH held AS MATERIALIZED (
		SELECT w.guild_id, w.event_id
		FROM jsonb_to_recordset($1::jsonb) AS p (guild_id text, event_id text)
		CROSS JOIN LATERAL (
			SELECT w.guild_id, w.event_id
			FROM stream_deliveries w
			WHERE w.event_id = p.event_id /*: p.event_id AND w.guild_id = $3 */
			  AND CASE WHEN w.guild_id = p.guild_id /*: $3 */ AND w.stream_id = $2 THEN w.fetched END
			FOR UPDATE
		) w
	), gone AS (
		DELETE FROM stream_deliveries d
		USING held
		WHERE d.event_id = held.event_id /*: held.event_id AND d.guild_id = $3 */
		  AND CASE WHEN d.guild_id = held.guild_id /*: $3 */ THEN d.stream_id = $2 END
		RETURNING d.guild_id, d.event_id
	), forgotten AS (
		DELETE FROM webhook_events v
		USING gone
		WHERE v.guild_id = gone.guild_id /*: $3 */ AND v.id = gone.event_id
		  AND NOT EXISTS (SELECT FROM webhook_deliveries d WHERE d.guild_id = v.guild_id /*: $3 */ AND d.event_id = v.id)
		  AND NOT EXISTS (
			SELECT FROM stream_deliveries w
			WHERE w.event_id = v.id /*: v.id AND w.guild_id = $3 */ AND CASE WHEN w.guild_id = v.guild_id /*: $3 */ THEN w.stream_id <> $2 END
		  )
	)
	SELECT count(*) FROM gone`)
	returnStreamed = newStatement(`
	WITH held AS MATERIALIZED (
		SELECT w.guild_id, w.event_id
		FROM jsonb_to_recordset($1::jsonb) AS p (guild_id text, event_id text)
		CROSS JOIN LATERAL (
			SELECT w.guild_id, w.event_id
			FROM stream_deliveries w
			WHERE w.event_id = p.event_id /*: p.event_id AND w.guild_id = $4 */
			  AND CASE WHEN w.guild_id = p.guild_id /*: $4 */ AND w.stream_id = $2 AND w.due_at > $3 THEN w.fetched END
			FOR NO KEY UPDATE
		) w
	), back AS (
		UPDATE stream_deliveries d
		SET due_at = $3
		FROM held
		WHERE d.event_id = held.event_id /*: held.event_id AND d.guild_id = $4 */
		  AND CASE WHEN d.guild_id = held.guild_id /*: $4 */ THEN d.stream_id = $2 END
		RETURNING d.event_id
	)
	SELECT count(*) FROM back`)
)

// AcknowledgeStream is Acknowledge for events that were fetched from a stream, limited to the
// guilds of the key.
func AcknowledgeStream(ctx context.Context, tx *db.Tx, p Part, events, back []string) (settled, returned int, err error) {
	return acknowledgeStream(ctx, tx, nil, p, events, back)
}

func acknowledgeStream(ctx context.Context, tx *db.Tx, at *time.Time, p Part, events, back []string) (settled, returned int, err error) {
	s, err := openStream(ctx, tx, at, p.Stream)
	if err != nil {
		return 0, 0, err
	}
	settled, err = withFetched(ctx, tx, s, p.Guilds, events, settleStreamed)
	if err != nil {
		return 0, 0, fmt.Errorf("settle %d events of stream %s: %w", len(events), p.Stream, err)
	}
	returned, err = withFetched(ctx, tx, s, p.Guilds, back, returnStreamed, s.Now)
	if err != nil {
		return 0, 0, fmt.Errorf("give back %d events of stream %s: %w", len(back), p.Stream, err)
	}
	return settled, returned, nil
}

// withFetched runs a statement on events that were fetched, and returns the number of changed
// events.
func withFetched(ctx context.Context, tx *db.Tx, s stream, serves, events []string, do statement, args ...any) (done int, err error) {
	if len(events) == 0 {
		return 0, nil
	}
	found, err := db.Select[streamed](ctx, tx, findLeased, s.ID, db.Array(events), db.Array(serves))
	if err != nil {
		return 0, err
	}
	err = inOrder(tx, do, found, func(query, rows string, guild ...any) error {
		n, err := db.Get[int](ctx, tx, query, slices.Concat([]any{rows, s.ID}, args, guild)...)
		done += n
		return err
	})
	return done, err
}

// StreamStatus is the state of a stream in one guild.
type StreamStatus struct {
	Name        string     `db:"name"`
	FetchedAt   *time.Time `db:"fetched_at"`   // time of the last fetch, to the minute
	FetchedBy   *string    `db:"fetched_by"`   // bot key of the last fetch
	Waiting     int        `db:"waiting"`      // number of the guild's events that are not acknowledged
	BehindSince *time.Time `db:"behind_since"` // when the oldest of these events happened
}

// StreamsOf returns the states of all streams in a guild, by name. Waiting events are counted up to
// upto.
func StreamsOf(ctx context.Context, q db.Querier, guild string, upto int) ([]StreamStatus, error) {
	list, err := db.Select[StreamStatus](ctx, q, `
		SELECT s.name, s.fetched_at, s.fetched_by, w.waiting, w.behind_since
		FROM bot_streams s
		CROSS JOIN LATERAL (
			SELECT count(*) AS waiting, min(oldest.event_at) AS behind_since
			FROM (SELECT event_at FROM stream_deliveries WHERE guild_id = $1 AND stream_id = s.id ORDER BY event_id LIMIT $2) oldest
		) w
		WHERE s.ended_at IS NULL
		ORDER BY s.name`, guild, upto)
	return list, fault.Wrap(err, "read how the streams fare in guild", guild)
}

// shifted returns a guild's number without its last 22 bits; Discord divides guilds into shards by
// this number. For text that is not a number, shifted returns 0.
func shifted(guild string) uint64 {
	n, ok := new(big.Int).SetString(guild, 10)
	if !ok {
		return 0
	}
	return n.Rsh(n, 22).Uint64()
}

// has reports whether a guild belongs to the part.
func (p Part) has(guild string) bool {
	if len(p.Guilds) > 0 {
		if _, serves := slices.BinarySearch(p.Guilds, guild); !serves {
			return false
		}
	}
	return p.Shards == 1 || shifted(guild)%uint64(p.Shards) == uint64(p.Shard)
}

// SettleStreamed marks an event of a stream as delivered, whether or not the event was fetched.
func SettleStreamed(ctx context.Context, tx *db.Tx, guild, stream, event string) error {
	_, err := db.Exec(ctx, tx, `DELETE FROM stream_deliveries WHERE guild_id = $1 AND stream_id = $2 AND event_id = $3`, guild, stream, event)
	return fault.Wrap(err, "settle event", event, "of stream", stream, "in guild", guild)
}

// TakeBackStreamed removes an event of a stream that nobody has fetched yet, and reports whether
// there was one.
func TakeBackStreamed(ctx context.Context, tx *db.Tx, guild, stream, event string) (bool, error) {
	n, err := db.Exec(ctx, tx, `
		DELETE FROM stream_deliveries
		WHERE guild_id = $1 AND stream_id = $2 AND event_id = $3 AND NOT fetched`, guild, stream, event)
	return n == 1, fault.Wrap(err, "take back event", event, "of stream", stream, "in guild", guild)
}

package delivery

import (
	"context"
	"slices"
	"time"

	"guildhall/internal/base/db"
)

// search searches for the waiting events of a part of a stream. The search first goes through the
// waiting events of the whole stream in the order of time: if every part is fetched, there are few.
// Behind a backlog of other parts, the search continues guild by guild.
type search struct {
	part    Part
	stream  stream
	after   streamed // last event that was read in the order of time
	byGuild bool     // there may be more events that the order of time would reach too slowly
	over    bool     // the search guild by guild is complete
}

// streamed is an event that can be fetched from a stream.
type streamed struct {
	GuildID string    `db:"guild_id" json:"guild_id"`
	EventID string    `db:"event_id" json:"event_id"`
	DueAt   time.Time `db:"due_at" json:"-"`
	Mine    bool      `db:"mine" json:"-"` // belongs to the part
	Last    bool      `db:"last" json:"-"` // last event that the query in the order of time has read
}

// inPart is the SQL condition that a guild belongs to the part.
const inPart = `($6::int = 1 OR mod(div(w.guild_id::numeric, 4194304), $6::int) = $7::int)
	  AND (cardinality($8::text[]) = 0 OR w.guild_id = ANY ($8::text[]))`

// findInTime finds the events of a part that can be fetched, in the order of time, after a given
// event; the statement takes no locks. The statement reads $10 plus a thousand events of the
// stream, and also returns the last of them, whatever part it belongs to. On a coordinator, the
// statement reads all events, and none is marked as the last.
const findInTime = `
	WITH near AS MATERIALIZED (
		SELECT w.*, row_number() OVER (ORDER BY w.due_at, w.guild_id, w.event_id) AS place
		FROM stream_deliveries w
		WHERE w.stream_id = $1 AND w.due_at <= $2 AND (w.due_at, w.guild_id, w.event_id) > ($3, $4, $5)
		ORDER BY w.due_at, w.guild_id, w.event_id
		LIMIT $10::int + 1000
	)
	SELECT w.guild_id, w.event_id, w.due_at, ` + inPart + ` AND w.event_at >= $9 AS mine, w.place /*: 0 */ = $10::int + 1000 AS last
	FROM near /*: stream_deliveries */ w
	WHERE w.stream_id = $1 AND w.due_at <= $2 AND (w.due_at, w.guild_id, w.event_id) > ($3, $4, $5)
	  AND (` + inPart + ` AND w.event_at >= $9 OR w.place /*: 0 */ = $10::int + 1000)
	ORDER BY w.due_at, w.guild_id, w.event_id
	LIMIT $10::int`

// findByGuild finds the same events guild by guild, beginning with the guild whose oldest event has
// waited longest.
const findByGuild = `
	WITH RECURSIVE guild AS (
		(SELECT guild_id FROM stream_deliveries WHERE stream_id = $1 ORDER BY guild_id LIMIT 1)
		UNION ALL
		SELECT n.guild_id
		FROM guild g
		CROSS JOIN LATERAL (
			SELECT guild_id FROM stream_deliveries WHERE stream_id = $1 AND guild_id > g.guild_id ORDER BY guild_id LIMIT 1
		) n
	), head AS MATERIALIZED (
		SELECT w.guild_id, f.due_at
		FROM guild w
		CROSS JOIN LATERAL (
			SELECT d.due_at
			FROM stream_deliveries d
			WHERE d.stream_id = $1 AND d.guild_id = w.guild_id AND d.due_at BETWEEN $3 AND $2 AND (d.due_at, d.guild_id, d.event_id) > ($3, $4, $5)
			  AND d.event_at >= $9
			ORDER BY d.due_at, d.event_id
			LIMIT 1
		) f
		WHERE ` + inPart + `
		ORDER BY f.due_at, w.guild_id
		LIMIT $10::int
	)
	SELECT f.guild_id, f.event_id, f.due_at, true AS mine, false AS last
	FROM head
	CROSS JOIN LATERAL (
		SELECT d.guild_id, d.event_id, d.due_at
		FROM stream_deliveries d
		WHERE d.stream_id = $1 AND d.guild_id = head.guild_id AND d.due_at BETWEEN $3 AND $2 AND (d.due_at, d.guild_id, d.event_id) > ($3, $4, $5)
		  AND d.event_at >= $9
		ORDER BY d.due_at, d.event_id
		LIMIT $10::int
	) f
	LIMIT $10::int`

// next returns some events that can be fetched, at most want, and whether there may be more.
func (s *search) next(ctx context.Context, tx *db.Tx, want int) (found []streamed, more bool, err error) {
	statement := findInTime
	if s.byGuild {
		statement, s.over = findByGuild, true
	}
	found, err = db.Select[streamed](ctx, tx, statement, s.stream.ID, s.stream.Now, s.after.DueAt, s.after.GuildID, s.after.EventID,
		s.part.Shards, s.part.Shard, db.Array(s.part.Guilds), s.stream.Oldest, want+1)
	if err != nil || len(found) == 0 || s.over {
		return found[:min(len(found), want)], len(found) > want, err
	}
	s.after = found[len(found)-1]
	s.byGuild = s.after.Last
	found = slices.DeleteFunc(found, func(e streamed) bool { return !e.Mine })
	if len(found) > want {
		found = found[:want]
		s.after, s.byGuild = found[want-1], false
		return found, true, nil
	}
	return found, s.byGuild, nil
}

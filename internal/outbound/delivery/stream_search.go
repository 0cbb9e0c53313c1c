package delivery

import (
	"context"
	"slices"
	"time"

	"guildhall/internal/base/db"
)

// search looks for what waits for a part of a stream. It begins in order of time, among
// what waits for the whole stream: where every part is fetched, that is little more.
// Behind a backlog of others it goes on from guild to guild.
type search struct {
	part    Part
	stream  stream
	after   streamed // the last that was looked at in order of time
	byGuild bool     // there may be more behind it, which that order would take long to find
	over    bool     // it has been from guild to guild
}

// streamed is an event that can be fetched from a stream.
type streamed struct {
	GuildID string    `db:"guild_id" json:"guild_id"`
	EventID string    `db:"event_id" json:"event_id"`
	DueAt   time.Time `db:"due_at" json:"-"`
	Mine    bool      `db:"mine" json:"-"` // it is of the part
	Last    bool      `db:"last" json:"-"` // the look in order of time ends with it
}

// inPart says of a guild that it is of the part.
const inPart = `($6::int = 1 OR mod(div(w.guild_id::numeric, 4194304), $6::int) = $7::int)
	  AND (cardinality($8::text[]) = 0 OR w.guild_id = ANY ($8::text[]))`

// findInTime finds what of a part can be fetched, in order of time, after one; it locks
// nothing. It looks at $10 and a thousand of the stream's, and the last of those comes
// too, whosever it is. A coordinator looks at all, and none of them is the last.
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

// findByGuild finds the same from guild to guild, beginning with the guild for which
// something has been waiting for longest.
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

// next returns some of what can be fetched, want at most, and whether there may be more.
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

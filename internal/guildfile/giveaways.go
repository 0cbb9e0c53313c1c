package guildfile

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"guildhall/internal/db"
)

func readGiveaway(b *batch, r *record) {
	guild, id := b.inGuild(r), b.ownID(r)
	status := or(r.oneOf("status", false, "scheduled", "active", "paused", "drawing", "ended"), "active")
	created := or(r.instant("created_at", false), b.now)
	starts := or(r.instant("starts_at", false), created)
	ends := or(r.instant("ends_at", false), starts.AddDate(0, 0, 7))
	ended, paused := r.instant("ended_at", false), r.instant("paused_at", false)
	winners := r.snowflakes("winners", 100)
	over := status == "drawing" || status == "ended"
	switch {
	case !over && !ends.After(starts):
		r.fail("ends_at", "must lie after starts_at")
	case status != "ended" && len(winners) > 0:
		r.fail("winners", "belong only to a giveaway with the status ended")
	case status != "ended" && ended != nil:
		r.fail("ended_at", "belongs only to a giveaway with the status ended")
	case status != "paused" && paused != nil:
		r.fail("paused_at", "belongs only to a giveaway with the status paused")
	}
	if status == "paused" && paused == nil {
		paused = &b.now
	}
	b.to.giveaways.put(r.line, r.kind,
		guild, id, status,
		or(r.text("prize", true, 1, 200), ""),
		r.text("description", false, 0, 1000),
		or(r.integer("winner_count", false, 1, 100), 1),
		db.Array(winners),
		r.snowflake("host_id", false),
		or(r.snowflake("channel_id", true), ""),
		r.snowflake("message_id", false),
		starts, ends, paused, ended, created,
		or(r.instant("updated_at", false), latest(created, ended)),
		or(r.oneOf("source", false, "api", "bot"), "bot"),
	)
	b.defines(ref{kind: "giveaway", guild: guild, id: id})
}

func readGiveawayEntry(b *batch, r *record) {
	guild, id := b.inGuild(r), or(r.id("giveaway_id", true), "")
	b.needs(r, ref{kind: "giveaway", guild: guild, id: id})
	b.to.entries.put(r.line, r.kind,
		guild, id,
		or(r.snowflake("user_id", true), ""),
		or(r.integer("entries", false, 1, maxInteger), 1),
		or(r.instant("entered_at", false), b.now),
	)
}

// readGiveawayDraw takes over the record of a draw. It is what a draw can be
// repeated from, and by which a reroll knows who has won before.
func readGiveawayDraw(b *batch, r *record) {
	guild, id := b.inGuild(r), or(r.id("giveaway_id", true), "")
	b.needs(r, ref{kind: "giveaway", guild: guild, id: id})
	b.to.draws.put(r.line, r.kind,
		guild, id,
		or(r.integer("round", true, 1, 1<<31-1), 1),
		r.hash("seed"),
		r.hash("entries_hash"),
		db.Array(r.snowflakes("past_winners", manyWinners)),
		db.Array(r.snowflakes("excluded", manyWinners)),
		db.Array(r.snowflakes("drawn", manyWinners)),
		db.Array(r.snowflakes("replaced", manyWinners)),
		db.Array(r.snowflakes("winners", manyWinners)),
		r.id("token_id", false),
		r.text("reason", false, 0, 1000),
		or(r.instant("drawn_at", false), b.now),
		r.integer("entry_count", false, 0, maxInteger),
	)
}

// manyWinners bounds the lists of a draw; the length of a line does so sooner.
const manyWinners = 100_000

// Where draws and entries have what is asked of them below.
const (
	giveawayID = 1
	drawRound  = 2
	entryCount = 3
)

// rounds raises the giveaways' rounds over those of the batch's draws.
func (b *batch) rounds(ctx context.Context) error {
	last := make(map[ref]int64)
	for _, row := range b.to.draws.rows {
		r := ref{kind: "giveaway", guild: row[0].(string), id: row[giveawayID].(string)}
		last[r] = max(last[r], row[drawRound].(int64))
	}
	if len(last) == 0 {
		return nil
	}
	var guilds, ids, rounds []string
	for r, n := range last {
		guilds, ids, rounds = append(guilds, r.guild), append(ids, r.id), append(rounds, strconv.FormatInt(n, 10))
	}
	if _, err := b.tx.ExecContext(ctx, `
		WITH drawn AS (
			SELECT guild_id, id, n::integer
			FROM unnest($1::text[], $2::text[], $3::text[]) AS d (guild_id, id, n)
		), held AS (
			SELECT guild_id, id, n
			FROM giveaways JOIN drawn USING (guild_id, id)
			ORDER BY guild_id, id
			FOR NO KEY UPDATE OF giveaways
		)
		UPDATE giveaways g
		SET rounds = greatest(g.rounds, held.n)
		FROM held
		WHERE g.guild_id = held.guild_id
		  AND g.id = held.id`, db.Array(guilds), db.Array(ids), db.Array(rounds)); err != nil {
		return fmt.Errorf("import: count the giveaways' draws: %w", err)
	}
	return nil
}

// room refuses entries of a giveaway whose entries are frozen, because it is
// being drawn or has been, and those whose weights add up to more than a giveaway
// can count. The tables would refuse both too, but without saying which line it
// was. A giveaway that this import has brought in is frozen when the import ends.
func (b *batch) room(ctx context.Context) error {
	t := &b.to.entries
	if len(t.rows) == 0 {
		return nil
	}
	sums, frozen := make(map[ref]int64), make(map[ref]bool)
	var guilds, ids []string
	for _, row := range t.rows {
		r := ref{kind: "giveaway", guild: row[0].(string), id: row[giveawayID].(string)}
		if _, ok := sums[r]; !ok {
			sums[r] = 0
			guilds, ids = append(guilds, r.guild), append(ids, r.id)
		}
	}
	var have []struct {
		Guild   string `db:"guild_id"`
		ID      string `db:"id"`
		Entries int64  `db:"entry_count"`
		Frozen  bool   `db:"frozen"`
	}
	if err := b.tx.SelectContext(ctx, &have, `
		SELECT guild_id, id, entry_count, pot <> 'open' AS frozen
		FROM giveaways
		WHERE (guild_id, id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
		ORDER BY guild_id, id
		FOR NO KEY UPDATE`, db.Array(guilds), db.Array(ids)); err != nil {
		return fmt.Errorf("import: read the giveaways' entries: %w", err)
	}
	for _, h := range have {
		r := ref{kind: "giveaway", guild: h.Guild, id: h.ID}
		sums[r], frozen[r] = h.Entries, h.Frozen
	}
	for i, row := range t.rows {
		r := ref{kind: "giveaway", guild: row[0].(string), id: row[giveawayID].(string)}
		if frozen[r] {
			return &LineError{Line: t.lines[i], Kind: t.kinds[i], Reason: fmt.Sprintf("giveaway %q of guild %s is being drawn or has been: its entries do not change any more", r.id, r.guild)}
		}
		n := row[entryCount].(int64)
		if n > maxInteger-sums[r] {
			return &LineError{Line: t.lines[i], Kind: t.kinds[i], Reason: fmt.Sprintf("entries bring the giveaway over %d in all", int64(maxInteger))}
		}
		sums[r] += n
	}
	return nil
}

// freeze closes the entries of the giveaways that came in after their time was
// over; those that run go on taking entries. A giveaway of the API that is still
// to be drawn has its reactions read first.
func (b *batch) freeze(ctx context.Context) error {
	if _, err := b.tx.ExecContext(ctx, `
		UPDATE giveaways
		SET pot = CASE WHEN status = 'drawing' AND source = 'api' THEN 'gathering' ELSE 'frozen' END, drawing_at = now()
		WHERE status IN ('drawing', 'ended')
		  AND pot = 'open'`); err != nil {
		return fmt.Errorf("import: freeze the entries of giveaways: %w", err)
	}
	return nil
}

// latest is the later of t and u, if there is a u.
func latest(t time.Time, u *time.Time) time.Time {
	if u != nil && u.After(t) {
		return *u
	}
	return t
}

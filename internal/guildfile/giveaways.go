package guildfile

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
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
	if over {
		b.closing[guild] = true
	}
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
	for guild, refs := range inGuilds(maps.Keys(last)) {
		var ids, rounds []string
		for _, r := range refs {
			ids, rounds = append(ids, r.id), append(rounds, strconv.FormatInt(last[r], 10))
		}
		if _, err := b.tx.ExecContext(ctx, `
			WITH held AS (
				SELECT g.id, drawn.n::integer
				FROM unnest($2::text[], $3::text[]) AS drawn (id, n)
				JOIN giveaways g ON g.guild_id = $1 AND g.id = drawn.id
				ORDER BY g.id
				FOR NO KEY UPDATE OF g
			)
			UPDATE giveaways g
			SET rounds = greatest(g.rounds, held.n)
			FROM held
			WHERE g.guild_id = $1
			  AND g.id = held.id`, guild, db.Array(ids), db.Array(rounds)); err != nil {
			return fmt.Errorf("import: count the draws of giveaways of guild %s: %w", guild, err)
		}
	}
	return nil
}

// inGuilds goes through what records have named, guild by guild and in the order
// of the ids, which is the order of locks.
func inGuilds(refs iter.Seq[ref]) iter.Seq2[string, []ref] {
	sorted := slices.SortedFunc(refs, func(a, b ref) int { return strings.Compare(a.id, b.id) })
	return db.ByGuild(sorted, func(r ref) string { return r.guild })
}

// entrants is what a batch adds to a giveaway.
type entrants struct {
	have, entrants, entries int64
	frozen                  bool
}

// room refuses entries of a giveaway whose entries are frozen, because it is
// being drawn or has been, and those whose weights add up to more than a giveaway
// can count, and counts the rest. A giveaway that this import has brought in is
// frozen when the import ends.
func (b *batch) room(ctx context.Context) error {
	t := &b.to.entries
	sums := make(map[ref]*entrants)
	for _, row := range t.rows {
		sums[ref{kind: "giveaway", guild: row[0].(string), id: row[giveawayID].(string)}] = new(entrants)
	}
	for guild, refs := range inGuilds(maps.Keys(sums)) {
		if err := b.holdGiveaways(ctx, guild, refs, sums); err != nil {
			return err
		}
	}
	for i, row := range t.rows {
		r := ref{kind: "giveaway", guild: row[0].(string), id: row[giveawayID].(string)}
		sum, n := sums[r], row[entryCount].(int64)
		if sum.frozen {
			return &LineError{Line: t.lines[i], Kind: t.kinds[i], Reason: fmt.Sprintf("giveaway %q of guild %s is being drawn or has been: its entries do not change any more", r.id, r.guild)}
		}
		if n > maxInteger-sum.have-sum.entries {
			return &LineError{Line: t.lines[i], Kind: t.kinds[i], Reason: fmt.Sprintf("entries bring the giveaway over %d in all", int64(maxInteger))}
		}
		sum.entrants++
		sum.entries += n
	}
	for guild, refs := range inGuilds(maps.Keys(sums)) {
		if err := b.countEntries(ctx, guild, refs, sums); err != nil {
			return err
		}
	}
	return nil
}

// holdGiveaways locks giveaways of a guild and reads what entries they have.
func (b *batch) holdGiveaways(ctx context.Context, guild string, refs []ref, sums map[ref]*entrants) error {
	ids := make([]string, 0, len(refs))
	for _, r := range refs {
		ids = append(ids, r.id)
	}
	var have []struct {
		ID      string `db:"id"`
		Entries int64  `db:"entry_count"`
		Frozen  bool   `db:"frozen"`
	}
	if err := b.tx.SelectContext(ctx, &have, `
		SELECT id, entry_count, pot <> 'open' AS frozen
		FROM giveaways
		WHERE guild_id = $1
		  AND id = ANY ($2)
		ORDER BY id
		FOR NO KEY UPDATE`, guild, db.Array(ids)); err != nil {
		return fmt.Errorf("import: read the entries of giveaways of guild %s: %w", guild, err)
	}
	for _, h := range have {
		sum := sums[ref{kind: "giveaway", guild: guild, id: h.ID}]
		sum.have, sum.frozen = h.Entries, h.Frozen
	}
	return nil
}

// countEntries adds the batch's entries to the counters of a guild's giveaways,
// which are held.
func (b *batch) countEntries(ctx context.Context, guild string, refs []ref, sums map[ref]*entrants) error {
	var ids, users, entries []string
	for _, r := range refs {
		sum := sums[r]
		ids, users, entries = append(ids, r.id), append(users, strconv.FormatInt(sum.entrants, 10)), append(entries, strconv.FormatInt(sum.entries, 10))
	}
	res, err := b.tx.ExecContext(ctx, `
		UPDATE giveaways g
		SET entrant_count = g.entrant_count + added.users::bigint, entry_count = g.entry_count + added.entries::bigint
		FROM unnest($2::text[], $3::text[], $4::text[]) AS added (id, users, entries)
		WHERE g.guild_id = $1
		  AND g.id = added.id
		  AND g.pot = 'open'`, guild, db.Array(ids), db.Array(users), db.Array(entries))
	if err != nil {
		return fmt.Errorf("import: count the entries of giveaways of guild %s: %w", guild, err)
	}
	if n, err := res.RowsAffected(); err != nil || n != int64(len(ids)) {
		return errors.Join(fmt.Errorf("import: %d of %d giveaways of guild %s take entries", n, len(ids), guild), err)
	}
	return nil
}

// freeze closes the entries of a guild's giveaways that came in after their time
// was over; those that run go on taking entries. A giveaway of the API that is
// still to be drawn has its reactions read first.
func (b *batch) freeze(ctx context.Context, guild string) error {
	if _, err := b.tx.ExecContext(ctx, `
		UPDATE giveaways
		SET pot = CASE WHEN status = 'drawing' AND source = 'api' THEN 'gathering' ELSE 'frozen' END, drawing_at = now()
		WHERE guild_id = $1
		  AND status IN ('drawing', 'ended')
		  AND pot = 'open'`, guild); err != nil {
		return fmt.Errorf("import: freeze the entries of giveaways of guild %s: %w", guild, err)
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

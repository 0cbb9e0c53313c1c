package giveaways

import (
	"context"
	"maps"
	"slices"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/service/transfer"
)

// entryWriter creates, changes and deletes entries by records.
var entryWriter = transfer.Writer[entry]{
	Schema: "RecordGiveawayEntry",
	Key:    keyOf,
	Hold:   holdEntries,
	Revise: reviseEntry,
	Shown:  func(e *entry) transfer.Shown { return transfer.Shown{ID: e.UserID} },
	Store:  storeEntries,
}

func keyOf(e *entry) string { return e.GiveawayID + "/" + e.UserID }

// holdEntries locks the giveaways of entries, and thereby the entries. It refuses new entries if a
// giveaway's entries are frozen.
func holdEntries(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[entry]) error {
	of := make(map[string]*row)
	var giveaways, users []string // for each row
	for _, r := range rows {
		of[r.Is.GiveawayID] = nil
		giveaways, users = append(giveaways, r.Is.GiveawayID), append(users, r.Is.UserID)
	}
	ids := slices.Sorted(maps.Keys(of))
	query := heldGiveaways
	if !c.Look {
		query += `
		FOR NO KEY UPDATE`
	}
	held, err := db.Select[row](ctx, tx, query, c.By.GuildID, db.Array(ids))
	if err != nil {
		return fault.Wrap(err, "hold giveaways of guild", c.By.GuildID)
	}
	var named []string
	for i, g := range held {
		of[g.ID] = &held[i]
		if g.Source != fromAPI && !g.BotRun && c.Import == nil {
			named = append(named, g.ID)
		}
	}
	if err := takeOver(ctx, tx, c.By.GuildID, named); err != nil {
		return err
	}
	there, err := db.Select[entry](ctx, tx, entriesToUpdate, c.By.GuildID, db.Array(giveaways), db.Array(users))
	if err != nil {
		return fault.Wrap(err, "read entries of giveaways of guild", c.By.GuildID)
	}
	byKey := make(map[string]*entry, len(there))
	for i := range there {
		byKey[keyOf(&there[i])] = &there[i]
	}
	collecting, err := collected(ctx, tx, c.By.GuildID, held)
	if err != nil {
		return err
	}
	out, err := disqualifiedOf(ctx, tx, c.By.GuildID, giveaways, users)
	if err != nil {
		return err
	}
	for _, r := range rows {
		r.Was, r.Ignored = byKey[keyOf(&r.Is)], out[keyOf(&r.Is)]
		switch g := of[r.Is.GiveawayID]; {
		case g != nil && g.Source == fromAPI && r.Gives("entries") && r.Is.Entries == 0:
			r.Err = transfer.Wrong("entries", "must be at least 1: disqualifyFromGiveaway takes a member out of a giveaway that the API made")
		case r.Ignored:
		case g == nil && c.Expects(refOf(c.By.GuildID, r.Is.GiveawayID)):
		case g == nil:
			r.Err = fault.New(fault.NotFound, "not_found", "No such giveaway.")
		case stays(c, r):
		case g.Pot != open && !c.Noted[refOf(c.By.GuildID, g.ID)] && !slices.Contains(collecting, g.ID):
			r.Err = errDrawn(g)
		}
	}
	return nil
}

// stays reports whether a record describes an entry as it is stored: then it changes nothing,
// however late it arrives. An instant in the future is ignored.
func stays(c *transfer.Call, r *transfer.Row[entry]) bool {
	if r.Was == nil {
		return r.Gives("entries") && r.Is.Entries == 0
	}
	at := func(e *entry) int64 { return e.EnteredAt.Time.UnixMilli() }
	return (!r.Gives("entries") || r.Is.Entries == r.Was.Entries) && (!r.Gives("entered_at") || at(&r.Is) == at(r.Was) || r.Is.EnteredAt.Time.After(c.Now))
}

// collected returns those giveaways in status drawing whose entries the bot was asked for.
func collected(ctx context.Context, tx *db.Tx, guild string, held []row) ([]string, error) {
	var ids []string
	for _, g := range held {
		if g.Pot == gathering {
			ids = append(ids, g.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return chat.Collecting(ctx, tx, guild, ids)
}

// entriesToUpdate looks up each entry by its key. If it asked for the entries of several giveaways
// at once, Postgres 17 and later might read all entries of those giveaways.
var entriesToUpdate = `
		SELECT e.*
		FROM unnest($2::text[], $3::text[]) AS named (giveaway_id, user_id)
		CROSS JOIN LATERAL (
			SELECT ` + entryMembers.Moved() + `
			FROM giveaway_entries
			WHERE guild_id = $1 AND giveaway_id = named.giveaway_id AND user_id = named.user_id
			OFFSET 0
		) e`

// reviseEntry completes an entry. Deleting an entry that does not exist changes nothing.
func reviseEntry(c *transfer.Call, r *transfer.Row[entry]) error {
	switch {
	case r.Was == nil && r.Is.Entries == 0:
		return transfer.ErrNothing
	case r.Was != nil && (r.Is.Entries == 0 || r.Is.EnteredAt.Alike(r.Was.EnteredAt) || r.Is.EnteredAt.Time.After(c.Now)):
		r.Is.EnteredAt = r.Was.EnteredAt
	default:
		r.Is.EnteredAt = transfer.Past(r.Is.EnteredAt, c.Now)
	}
	return nil
}

// storeEntries inserts, updates and deletes entries and updates the counters. It refuses an entry
// with which a giveaway would exceed the largest count.
func storeEntries(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[entry]) error {
	counts, err := countsOf(ctx, tx, c, rows)
	if err != nil {
		return err
	}
	var stored []*transfer.Row[entry]
	var giveaways, users []string // giveaway ids and user ids of the entries to delete
	for _, r := range rows {
		n := counts[r.Is.GiveawayID]
		var was int64
		if r.Was != nil {
			was = r.Was.Entries
		}
		if r.Is.Entries > maxEntries-n.entries+was {
			r.Err = transfer.Wrong("entries", "bring the giveaway over %d in all", int64(maxEntries))
			continue
		}
		n.entries += r.Is.Entries - was
		n.entrants += weightless(was) - weightless(r.Is.Entries)
		stored = append(stored, r)
		if r.Is.Entries == 0 {
			giveaways, users = append(giveaways, r.Is.GiveawayID), append(users, r.Is.UserID)
		}
	}
	list, _, err := transfer.Recordset(stored, keyOf)
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, tx, storingEntries, c.By.GuildID, list, db.Array(giveaways), db.Array(users)); err != nil {
		return fault.Wrap(err, "store entries of giveaways of guild", c.By.GuildID)
	}
	return storeCounts(ctx, tx, c, counts)
}

// weightless returns 1 for a record without entries, which deletes an entrant, and 0 otherwise.
func weightless(entries int64) int64 {
	if entries == 0 {
		return 1
	}
	return 0
}

var storingEntries = `
		WITH given AS MATERIALIZED (
			SELECT ` + entryMembers.Moved() + `
			FROM jsonb_populate_recordset(NULL::giveaway_entries, $2)
		), gone AS (
			DELETE FROM giveaway_entries e
			USING given g
			WHERE e.guild_id = $1 AND e.giveaway_id = ANY ($3) AND e.user_id = ANY ($4)
			  AND e.giveaway_id = g.giveaway_id AND e.user_id = g.user_id AND g.entries = 0
		), stored AS (
			INSERT INTO giveaway_entries (` + entryMembers.Moved() + `)
			SELECT ` + entryMembers.From("g", nil) + `
			FROM given g JOIN guilds home ON home.id = $1
			WHERE g.entries > 0
			ON CONFLICT (guild_id, giveaway_id, user_id) DO UPDATE SET ` + entryMembers.Set("excluded", nil) + `
		)
		SELECT`

// counted are the counters of a giveaway's entries.
type counted struct{ entrants, entries int64 }

// countsOf returns the counters of the giveaways, which are locked.
func countsOf(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[entry]) (map[string]*counted, error) {
	counts := make(map[string]*counted)
	for _, r := range rows {
		counts[r.Is.GiveawayID] = new(counted)
	}
	held, err := db.Select[row](ctx, tx, heldGiveaways, c.By.GuildID, db.Array(slices.Sorted(maps.Keys(counts))))
	for _, g := range held {
		*counts[g.ID] = counted{g.EntrantCount, g.EntryCount}
	}
	return counts, fault.Wrap(err, "count the entries of giveaways of guild", c.By.GuildID)
}

// storeCounts stores the counters of giveaways.
func storeCounts(ctx context.Context, tx *db.Tx, c *transfer.Call, counts map[string]*counted) error {
	ids := slices.Sorted(maps.Keys(counts))
	var entrants, entries []int64
	for _, id := range ids {
		entrants, entries = append(entrants, counts[id].entrants), append(entries, counts[id].entries)
	}
	touched, err := db.Select[struct {
		ID        string    `db:"id"`
		UpdatedAt wire.Time `db:"updated_at"`
	}](ctx, tx, storingCounts, c.By.GuildID, db.Array(ids), db.Integers(entrants), db.Integers(entries), c.Import != nil, transfer.Pending)
	for _, g := range touched {
		c.Touches(refOf(c.By.GuildID, g.ID), g.UpdatedAt)
	}
	return fault.Wrap(err, "count the entries of giveaways of guild", c.By.GuildID)
}

var storingCounts = `
		WITH instant AS MATERIALIZED (
			SELECT clock_timestamp() AS at
		)
		UPDATE giveaways
		SET entrant_count = n.entrants, entry_count = n.entries,
		    updated_at = CASE WHEN $5 THEN $6 ELSE ` + next + ` END
		FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS n (id, entrants, entries), instant
		WHERE guild_id = $1
		  AND giveaways.id = ANY ($2)
		  AND giveaways.id = n.id
		RETURNING giveaways.id, updated_at`

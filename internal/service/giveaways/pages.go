package giveaways

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"guildhall/gen"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
)

// The functions of this file read giveaways for people, in the dashboard, each bound to a
// guild.

// Giveaway is a giveaway as the API shows it.
type Giveaway = gen.Giveaway

// Find returns a giveaway. It is NotFound when the guild has no such giveaway.
func Find(ctx context.Context, q db.Querier, guild, id string) (Giveaway, error) {
	g, err := get(ctx, q, guild, id)
	return show(g), err
}

// Entered is a giveaway that a member has entered or won.
type Entered struct {
	Giveaway
	Entries int64 // of the member; 0 for a winner of whom no entry is stored
	Won     bool
}

// Recent is how many of a guild's newest giveaways OfMember looks at.
const Recent = 100

// OfMember returns the newest limit of the guild's Recent newest giveaways that a member has
// entered or won.
func OfMember(ctx context.Context, q db.Querier, guild, user string, limit int) ([]Entered, error) {
	rows, err := db.Select[struct {
		row
		Own int64 `db:"own"`
		Won bool  `db:"won"`
	}](ctx, q, entered, guild, user, limit, Recent)
	list := make([]Entered, len(rows))
	for i, r := range rows {
		list[i] = Entered{show(r.row), r.Own, r.Won}
	}
	return list, fault.Wrap(err, "read the giveaways of", user, "in guild", guild)
}

// entered looks the member's entry up in each of the newest giveaways: no index leads from a
// member to entries.
var entered = `
		WITH newest AS MATERIALIZED (
			SELECT ` + columns + `
			FROM giveaways
			WHERE guild_id = $1
			ORDER BY created_at DESC, id DESC
			LIMIT $4
		)
		SELECT n.*, coalesce(e.entries, 0) AS own, $2 = ANY (n.winners) AS won
		FROM newest n
		LEFT JOIN LATERAL (
			SELECT entries
			FROM giveaway_entries
			WHERE guild_id = $1 AND giveaway_id = n.id AND user_id = $2
			OFFSET 0
		) e ON true
		WHERE e.entries IS NOT NULL OR $2 = ANY (n.winners)
		ORDER BY n.created_at DESC, n.id DESC
		LIMIT $3`

// Entrant is a member's entries as the API shows them.
type Entrant = gen.GiveawayEntry

// Drawn is a draw as the API shows it. If the draw was repeated, Problem is the first
// difference; it is empty when the same winners come out.
type Drawn struct {
	gen.GiveawayDraw
	Problem string
}

// States are the states of a giveaway.
var States = []string{scheduled, active, paused, drawing, ended, cancelled}

// List returns a page of the guild's giveaways, newest first, and whether more follow. An empty
// status lets all through.
func List(ctx context.Context, q db.Querier, guild, status string, p page.P) ([]Giveaway, bool, error) {
	rows, err := list(ctx, q, guild, status, nil, nil, p)
	rows, more := page.Cut(rows, p)
	return page.Each(rows, show), more, err
}

// rowOf returns of the row of a giveaway what its entries and draws are read by.
func rowOf(guild string, g Giveaway) row {
	return row{GuildID: guild, ID: g.ID, EntrantCount: g.EntrantCount, WinnerCount: g.WinnerCount, Winners: g.Winners}
}

// EntrantsOf returns a page of a giveaway's entrants in the order in which they entered, and
// whether more follow.
func EntrantsOf(ctx context.Context, q db.Querier, guild string, g Giveaway, p page.P) ([]Entrant, bool, error) {
	rows, err := entries(ctx, q, rowOf(guild, g), nil, p)
	rows, more := page.Cut(rows, p)
	return page.Each(rows, showEntry), more, err
}

// DrawsOf returns a page of a giveaway's draws by round, and whether more follow. With verify,
// it repeats each of them from its seed and the giveaway's entries.
func DrawsOf(ctx context.Context, q db.Querier, guild string, shown Giveaway, p page.P, verify bool) ([]Drawn, bool, error) {
	g := rowOf(guild, shown)
	rows, err := records(ctx, q, g, p)
	rows, more := page.Cut(rows, p)
	list := page.Each(rows, func(r record) Drawn { return Drawn{GiveawayDraw: showDraw(r)} })
	if err != nil || !verify || len(rows) == 0 {
		return list, more, err
	}
	won, err := wonBefore(ctx, q, g, rows[0].Round)
	if err != nil {
		return nil, false, err
	}
	all, err := pot(ctx, q, g)
	if err != nil {
		return nil, false, err
	}
	hash := potHash(all)
	for i, r := range rows {
		list[i].Problem = r.difference(g, won, all, hash)
		won = append(won, r.Drawn...)
	}
	return list, more, nil
}

// wonBefore returns who had won a giveaway before a round: the winners of now and all who were
// replaced, without those drawn in the round or later.
func wonBefore(ctx context.Context, q db.Querier, g row, round int) ([]string, error) {
	if round == 1 {
		return nil, nil
	}
	won, err := pastWinners(ctx, q, g)
	if err != nil {
		return nil, err
	}
	drawn, err := db.Select[string](ctx, q, `
		SELECT unnest(drawn)
		FROM giveaway_draws
		WHERE guild_id = $1
		  AND giveaway_id = $2
		  AND round >= $3`, g.GuildID, g.ID, round)
	later := make(map[string]bool, len(drawn))
	for _, id := range drawn {
		later[id] = true
	}
	return slices.DeleteFunc(won, func(id string) bool { return later[id] }), fault.Wrap(err, "read who was drawn in giveaway", g.ID)
}

// difference repeats a draw from the entries of its giveaway, sorted by user id, without those who
// had won before, and returns the first difference to the record; empty where there is none.
func (r record) difference(g row, won []string, all []entrant, hash []byte) string {
	if !bytes.Equal(hash, r.EntriesHash) {
		return "the entries are not those that were drawn from: their fingerprint is " + hex.EncodeToString(hash)
	}
	count := len(r.Drawn)
	if r.Round == 1 {
		count = max(count, g.WinnerCount) // fewer were drawn only where fewer had entered
	}
	drawn, err := pick(r.Seed, all, barred(won, r.Excluded), count)
	if err != nil {
		return err.Error()
	}
	for i := range max(len(drawn), len(r.Drawn)) {
		if was, is := at(r.Drawn, i), at(drawn, i); was != is {
			return fmt.Sprintf("place %d went to %s, and the repetition gives it to %s", i+1, was, is)
		}
	}
	return ""
}

// at returns the winner of a place.
func at(winners []string, i int) string {
	if i < len(winners) {
		return winners[i]
	}
	return "nobody"
}

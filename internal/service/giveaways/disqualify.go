package giveaways

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/transfer"
)

// maxDisqualified is how many members can be disqualified from a giveaway.
const maxDisqualified = 1000

// disqualified is a member who may not take part in a giveaway, as stored and in a guild file.
type disqualified struct {
	GuildID        string    `db:"guild_id" json:"guild_id"`
	GiveawayID     string    `db:"giveaway_id" json:"giveaway_id"`
	UserID         string    `db:"user_id" json:"user_id"`
	DisqualifiedAt wire.Time `db:"disqualified_at" json:"disqualified_at"`
}

var disqualifiedColumns = transfer.ColumnsOf[disqualified]().All()

var disqualifications = `
		SELECT ` + disqualifiedColumns + `
		FROM giveaway_disqualified
		WHERE guild_id = $1
		  AND giveaway_id = $2
		ORDER BY disqualified_at, length(user_id), user_id
		LIMIT $3 OFFSET $4`

// ListDisqualifications lists the members who are disqualified from a giveaway, oldest first.
func (*Service) ListDisqualifications(ctx context.Context, r gen.ListDisqualificationsRequestObject) (gen.ListDisqualificationsResponseObject, error) {
	p := page.Of(r.Params.Page, r.Params.PerPage)
	g, err := get(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	rows, err := db.Select[disqualified](ctx, db.Read(ctx), disqualifications, g.GuildID, g.ID, p.Limit(), p.Offset())
	if err != nil {
		return nil, fault.Wrap(err, "list who is disqualified from giveaway", g.ID, "in guild", g.GuildID)
	}
	rows, more := page.Cut(rows, p)
	return gen.ListDisqualifications200JSONResponse{Data: page.Each(rows, showDisqualified), Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

func showDisqualified(d disqualified) gen.Disqualification {
	return gen.Disqualification{UserID: d.UserID, DisqualifiedAt: d.DisqualifiedAt}
}

// DisqualifyFromGiveaway disqualifies members from a giveaway, or takes that back. It is Refused
// once drawing has begun. A call that changes nothing emits nothing.
func (*Service) DisqualifyFromGiveaway(ctx context.Context, r gen.DisqualifyFromGiveawayRequestObject) (gen.DisqualifyFromGiveawayResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	g, err := lock(ctx, tx, by.GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	if !g.running() {
		return nil, refusedIn(g, errNotRunning("changed"))
	}
	statement := disqualifying
	if r.Body.Undo != nil && *r.Body.Undo {
		statement = qualifying
	}
	n, err := db.Exec(ctx, tx, statement, g.GuildID, g.ID, db.Array(distinct(r.Body.UserIds)))
	if err != nil {
		return nil, fault.Wrap(err, "change who is disqualified from giveaway", g.ID, "in guild", g.GuildID)
	}
	if n == 0 {
		return gen.DisqualifyFromGiveaway200JSONResponse{Data: show(g)}, nil
	}
	if err := fewEnough(ctx, tx, g); err != nil {
		return nil, err
	}
	if g, err = db.Get[row](ctx, tx, dropEntries, g.GuildID, g.ID); err != nil {
		return nil, fault.Wrap(err, "take entries from giveaway", r.ID, "in guild", by.GuildID)
	}
	data := showChange(g, []string{"disqualified"}, r.Body.AuthorID)
	if err := event.Record(ctx, tx, event.From(by).On(g.UpdatedAt.Time), event.GiveawayUpdated, data); err != nil {
		return nil, err
	}
	return gen.DisqualifyFromGiveaway200JSONResponse{Data: show(g)}, nil
}

// fewEnough refuses more disqualified members than a giveaway can have.
func fewEnough(ctx context.Context, tx *db.Tx, g row) error {
	n, err := db.Get[int](ctx, tx, `
		SELECT count(*)
		FROM giveaway_disqualified
		WHERE guild_id = $1
		  AND giveaway_id = $2`, g.GuildID, g.ID)
	if err == nil && n > maxDisqualified {
		err = fault.New(fault.Refused, "too_many_disqualified", "With these %d members would be disqualified, %d more than there can be.", n, n-maxDisqualified)
	}
	return fault.Wrap(err, "count who is disqualified from giveaway", g.ID, "in guild", g.GuildID)
}

const (
	disqualifying = `
		INSERT INTO giveaway_disqualified (guild_id, giveaway_id, user_id)
		SELECT home.id, $2, u
		FROM unnest($3::text[]) u JOIN guilds home ON home.id = $1
		ON CONFLICT DO NOTHING`

	qualifying = `
		DELETE FROM giveaway_disqualified
		WHERE guild_id = $1
		  AND giveaway_id = $2
		  AND user_id = ANY ($3)`
)

// dropEntries takes the entries of those who are disqualified from a giveaway, which must be
// locked and whose entries still come and go, and counts them.
var dropEntries = `
		WITH gone AS (
			DELETE FROM giveaway_entries e
			USING giveaway_disqualified d
			WHERE d.guild_id = $1 AND d.giveaway_id = $2
			  AND e.guild_id = $1 AND e.giveaway_id = $2 AND e.user_id = d.user_id
			RETURNING e.entries
		), counted AS (
			SELECT count(*) AS entrants, coalesce(sum(entries), 0) AS entries FROM gone
		), instant AS MATERIALIZED (
			SELECT clock_timestamp() AS at
		)
		UPDATE giveaways
		SET entrant_count = entrant_count - counted.entrants, entry_count = entry_count - counted.entries,
		    updated_at = ` + next + `
		FROM counted, instant
		WHERE guild_id = $1
		  AND id = $2
		RETURNING ` + columns

// disqualifiedOf returns those of a guild's members who are disqualified from the giveaways that
// stand beside them, as keyOf names their entries.
func disqualifiedOf(ctx context.Context, q db.Querier, guild string, giveaways, users []string) (map[string]bool, error) {
	list, err := db.Select[entry](ctx, q, `
		SELECT d.giveaway_id, d.user_id
		FROM unnest($2::text[], $3::text[]) AS named (giveaway_id, user_id)
		CROSS JOIN LATERAL (
			SELECT giveaway_id, user_id
			FROM giveaway_disqualified
			WHERE guild_id = $1 AND giveaway_id = named.giveaway_id AND user_id = named.user_id
			OFFSET 0
		) d`, guild, db.Array(giveaways), db.Array(users))
	out := make(map[string]bool, len(list))
	for i := range list {
		out[keyOf(&list[i])] = true
	}
	return out, fault.Wrap(err, "read who is disqualified in guild", guild)
}

// disqualifiedRows reports which of the entries belong to disqualified members.
func disqualifiedRows(ctx context.Context, tx *db.Tx, rows []entry) (map[int]bool, error) {
	places := make(map[string][]int) // by guild
	for i, e := range rows {
		places[e.GuildID] = append(places[e.GuildID], i)
	}
	list := make(map[int]bool)
	for guild, at := range places {
		var giveaways, users []string
		for _, i := range at {
			giveaways, users = append(giveaways, rows[i].GiveawayID), append(users, rows[i].UserID)
		}
		out, err := disqualifiedOf(ctx, tx, guild, giveaways, users)
		if err != nil {
			return nil, err
		}
		for _, i := range at {
			list[i] = out[keyOf(&rows[i])]
		}
	}
	return list, nil
}

// without returns those of members who are not disqualified from the giveaway.
func without(ctx context.Context, tx *db.Tx, g row, members []string) ([]string, error) {
	giveaways := slices.Repeat([]string{g.ID}, len(members))
	out, err := disqualifiedOf(ctx, tx, g.GuildID, giveaways, members)
	return slices.DeleteFunc(members, func(user string) bool { return out[g.ID+"/"+user] }), err
}

// Disqualified are the disqualified members of giveaways as they move.
var Disqualified = transfer.Kind[disqualified]{
	Name: "disqualification", Schema: "GuildFileDisqualification", Table: "giveaway_disqualified", Columns: disqualifiedColumns,
	Order:    "giveaway_id, user_id",
	Refusals: map[string]string{"giveaway_disqualified_pkey": "this user is disqualified from this giveaway already"},
	Guild:    func(d *disqualified) string { return d.GuildID },
	Needs:    func(d *disqualified) []transfer.Ref { return []transfer.Ref{refOf(d.GuildID, d.GiveawayID)} },
	New:      func(now time.Time) disqualified { return disqualified{DisqualifiedAt: wire.At(now)} },
	Complete: func(d *disqualified, now time.Time) error {
		d.DisqualifiedAt = transfer.Past(d.DisqualifiedAt, now)
		return nil
	},
	Before: refuseEntrants,
	Fixed: &transfer.Fixed[disqualified]{
		Name: func(d *disqualified) string {
			return fmt.Sprintf("the disqualification of user %s from giveaway %q of guild %s", d.UserID, d.GiveawayID, d.GuildID)
		},
		There: transfer.StoredUnder("who is disqualified from giveaways", disqualifiedFrom, func(d *disqualified) transfer.Ref {
			return refOf(d.GuildID, d.GiveawayID)
		}),
	},
}

var disqualifiedFrom = `
		SELECT ` + disqualifiedColumns + `
		FROM giveaway_disqualified
		WHERE guild_id = $1
		  AND giveaway_id = ANY ($2)`

// refuseEntrants refuses a disqualified member of a file who has entries in the giveaway, and
// more of them than a giveaway can have. It holds the giveaways.
func refuseEntrants(ctx context.Context, tx *db.Tx, rows []disqualified) error {
	named := make(map[transfer.Ref]bool)
	for _, d := range rows {
		named[refOf(d.GuildID, d.GiveawayID)] = true
	}
	for guild, refs := range transfer.InGuilds(maps.Keys(named)) {
		if err := refuseEntrantsOf(ctx, tx, guild, transfer.IDs(refs), rows); err != nil {
			return err
		}
	}
	return nil
}

// refuseEntrantsOf is refuseEntrants for those of the rows that belong to giveaways of a guild.
func refuseEntrantsOf(ctx context.Context, tx *db.Tx, guild string, named []string, rows []disqualified) error {
	held, err := db.Select[struct {
		ID string `db:"id"`
		N  int    `db:"n"`
	}](ctx, tx, `
		SELECT id, (SELECT count(*) FROM giveaway_disqualified d WHERE d.guild_id = $1 AND d.giveaway_id = g.id) AS n
		FROM giveaways g
		WHERE guild_id = $1
		  AND id = ANY ($2)
		ORDER BY id
		FOR NO KEY UPDATE`, guild, db.Array(named))
	if err != nil {
		return fault.Wrap(err, "count who is disqualified in guild", guild)
	}
	count := make(map[string]int)
	for _, g := range held {
		count[g.ID] = g.N
	}
	var giveaways, users []string
	for _, d := range rows {
		if d.GuildID == guild {
			giveaways, users = append(giveaways, d.GiveawayID), append(users, d.UserID)
		}
	}
	entered, err := db.Select[entry](ctx, tx, entriesToUpdate, guild, db.Array(giveaways), db.Array(users))
	if err != nil {
		return fault.Wrap(err, "look for entries of who is disqualified in guild", guild)
	}
	out := make(map[string]bool)
	for i := range entered {
		out[keyOf(&entered[i])] = true
	}
	for i, d := range rows {
		if d.GuildID != guild {
			continue
		}
		if out[d.GiveawayID+"/"+d.UserID] {
			return &transfer.Refused{Row: i, Reason: fmt.Sprintf("user %s has entries in giveaway %q of guild %s", d.UserID, d.GiveawayID, guild)}
		}
		if count[d.GiveawayID]++; count[d.GiveawayID] > maxDisqualified {
			return &transfer.Refused{Row: i, Reason: fmt.Sprintf("giveaway %q of guild %s has over %d disqualified members", d.GiveawayID, guild, maxDisqualified)}
		}
	}
	return nil
}

package giveaways

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/wire"
	"guildhall/internal/service/transfer"
)

// row is a stored giveaway. Its JSON is the giveaway's record in guild files.
type row struct {
	GuildID     string          `db:"guild_id" json:"guild_id"`
	ID          string          `db:"id" json:"id"`
	Status      string          `db:"status" json:"status"`
	Prize       string          `db:"prize" json:"prize"`
	Description *string         `db:"description" json:"description"`
	WinnerCount int             `db:"winner_count" json:"winner_count"`
	Winners     db.Strings      `db:"winners" json:"winners"`
	HostID      *string         `db:"host_id" json:"host_id"`
	ChannelID   string          `db:"channel_id" json:"channel_id"`
	MessageID   *string         `db:"message_id" json:"message_id"`
	StartsAt    wire.Time       `db:"starts_at" json:"starts_at"`
	EndsAt      wire.Time       `db:"ends_at" json:"ends_at"`
	PausedAt    *wire.Time      `db:"paused_at" json:"paused_at"`
	EndedAt     *wire.Time      `db:"ended_at" json:"ended_at"`
	CreatedAt   wire.Time       `db:"created_at" json:"created_at"`
	UpdatedAt   wire.Time       `db:"updated_at" json:"updated_at"`
	Source      string          `db:"source" json:"source"`
	Metadata    metadata.Values `db:"metadata" json:"metadata"`

	// The counters of its entries, and the progress of its drawing.
	EntrantCount    int64      `db:"entrant_count" json:"-"`
	EntryCount      int64      `db:"entry_count" json:"-"`
	Rounds          int        `db:"rounds" json:"-"`
	Pot             string     `db:"pot" json:"-"`
	PostID          *string    `db:"post_id" json:"-"`
	EndedByTokenID  *string    `db:"ended_by_token_id" json:"-"`
	DrawingAt       *time.Time `db:"drawing_at" json:"-"`
	ReactionAfter   string     `db:"reaction_after" json:"-"`
	ReactionCount   int64      `db:"reaction_count" json:"-"`
	ReactionsMissed bool       `db:"reactions_missed" json:"-"`
	Failures        int        `db:"failures" json:"-"`
	BotRun          bool       `db:"bot_run" json:"-"`
	EditAt          *time.Time `db:"edit_at" json:"-"`
	EditFailures    int        `db:"edit_failures" json:"-"`
	EditedAt        *time.Time `db:"edited_at" json:"-"`
	Shown           []byte     `db:"shown" json:"-"`
	PostProblem     *string    `db:"post_problem" json:"-"`
}

// running reports whether the giveaway can still be changed, cancelled or ended.
func (g row) running() bool {
	return g.Status == scheduled || g.Status == active || g.Status == paused
}

// over reports whether the giveaway has ended or was cancelled.
func (g row) over() bool { return g.Status == ended || g.Status == cancelled }

var (
	members = transfer.ColumnsOf[row]("id", "source", "created_at")
	columns = members.All()
)

// entry is a stored entrant of a giveaway. Its JSON is the entry's record in guild files.
type entry struct {
	GuildID    string    `db:"guild_id" json:"guild_id"`
	GiveawayID string    `db:"giveaway_id" json:"giveaway_id"`
	UserID     string    `db:"user_id" json:"user_id"`
	Entries    int64     `db:"entries" json:"entries"`
	EnteredAt  wire.Time `db:"entered_at" json:"entered_at"`
}

var entryMembers = transfer.ColumnsOf[entry]("giveaway_id", "user_id")

// record is a stored draw. Its JSON is the draw's record in guild files. From it the draw can be
// repeated, and a reroll reads who has won before.
type record struct {
	GuildID     string     `db:"guild_id" json:"guild_id"`
	GiveawayID  string     `db:"giveaway_id" json:"giveaway_id"`
	Round       int        `db:"round" json:"round"`
	Seed        hash       `db:"seed" json:"seed"`
	EntriesHash hash       `db:"entries_hash" json:"entries_hash"`
	Excluded    db.Strings `db:"excluded" json:"excluded"`
	Drawn       db.Strings `db:"drawn" json:"drawn"`
	Replaced    db.Strings `db:"replaced" json:"replaced"`
	TokenID     *string    `db:"token_id" json:"token_id"`
	Reason      *string    `db:"reason" json:"reason"`
	DrawnAt     wire.Time  `db:"drawn_at" json:"drawn_at"`
	EntryCount  int64      `db:"entry_count" json:"entry_count"`
}

var recordColumns = transfer.ColumnsOf[record]().All()

// hash is bytes that JSON shows in hexadecimal.
type hash []byte

// MarshalText writes the hexadecimal form.
func (h hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h), nil }

// UnmarshalText reads the hexadecimal form.
func (h *hash) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

// Records describes how giveaways are exported to a guild file, imported, and set by POST /records.
var Records = transfer.Kind[row]{
	Name: "giveaway", Schema: "GuildFileGiveaway", Table: "giveaways", Columns: members.Moved(), Order: "id",
	Export: `
		SELECT ` + members.From("g", map[string]string{
		"guild_id":  "g.guild_id",
		"paused_at": "CASE WHEN status = 'paused' THEN paused_at END AS paused_at",
		"ended_at":  "CASE WHEN status IN ('ended', 'cancelled') THEN ended_at END AS ended_at",
	}) + `
		FROM giveaways g
		WHERE guild_id = $1`,
	Refusals: map[string]string{"giveaways_pkey": "a giveaway with this id exists already"},
	Guild:    func(g *row) string { return g.GuildID },
	Defines:  func(g *row) transfer.Ref { return refOf(g.GuildID, g.ID) },
	Find: `
		SELECT guild_id AS guild, id FROM giveaways
		WHERE (guild_id, id) IN (SELECT * FROM unnest($1::text[], $2::text[]))`,
	New: func(now time.Time) row {
		return row{
			Status: active, WinnerCount: 1, Source: "bot", CreatedAt: wire.At(now),
			StartsAt: transfer.Absent, EndsAt: transfer.Absent,
		}
	},
	Complete: complete,
	Dated:    dated,
	Finish:   closeEntries,
	Writer:   &writer,
}

// dated lists the column that an import dates at its end: of new giveaways, and of giveaways that
// got entries or draws.
var dated = []transfer.Column{{Table: "giveaways", Name: "updated_at"}}

func refOf(guild, id string) transfer.Ref {
	return transfer.Ref{Kind: "giveaway", Guild: guild, ID: id}
}

func complete(g *row, now time.Time) error {
	transfer.MintID(&g.ID)
	g.CreatedAt = transfer.Past(g.CreatedAt, now)
	for _, past := range []**wire.Time{&g.PausedAt, &g.EndedAt} {
		if *past != nil {
			at := transfer.Past(**past, now)
			*past = &at
		}
	}
	if g.StartsAt == transfer.Absent {
		g.StartsAt = g.CreatedAt
	}
	if g.EndsAt == transfer.Absent {
		g.EndsAt = wire.Bounded(g.StartsAt.Time.AddDate(0, 0, 7))
	}
	switch {
	case g.running() && !g.EndsAt.Time.After(g.StartsAt.Time):
		return transfer.Wrong("ends_at", "must lie after starts_at")
	case g.Status != ended && len(g.Winners) > 0:
		return transfer.Wrong("winners", "belong only to a giveaway with the status ended")
	case !g.over() && g.EndedAt != nil:
		return transfer.Wrong("ended_at", "belongs only to a giveaway with the status ended or cancelled")
	case g.Status != paused && g.PausedAt != nil:
		return transfer.Wrong("paused_at", "belongs only to a giveaway with the status paused")
	case g.Status == paused && g.PausedAt == nil:
		at := wire.At(now)
		g.PausedAt = &at
	}
	g.UpdatedAt = transfer.Pending
	return g.Metadata.Check()
}

// closeEntries closes the entries of a guild's imported giveaways whose time is over; giveaways
// that run still accept entries. For a giveaway of the API that is still to be drawn, the reactions
// are read first.
func closeEntries(ctx context.Context, tx *db.Tx, guild string) error {
	_, err := db.Exec(ctx, tx, `
		UPDATE giveaways
		SET pot = CASE WHEN status = 'drawing' AND source = 'api' THEN 'gathering' ELSE 'frozen' END,
		    drawing_at = now()
		WHERE guild_id = $1
		  AND status IN ('drawing', 'ended', 'cancelled')
		  AND pot = 'open'
		  AND NOT (bot_run AND status = 'drawing')`, guild)
	return fault.Wrap(err, "freeze the entries of giveaways of guild", guild)
}

// Entrants is the record kind of entries.
var Entrants = transfer.Kind[entry]{
	Name: "giveaway_entry", Schema: "GuildFileGiveawayEntry", Table: "giveaway_entries", Columns: entryMembers.Moved(), Order: "giveaway_id, user_id",
	Refusals: map[string]string{"giveaway_entries_pkey": "this user has entered this giveaway already"},
	Guild:    func(e *entry) string { return e.GuildID },
	Needs:    func(e *entry) []transfer.Ref { return []transfer.Ref{refOf(e.GuildID, e.GiveawayID)} },
	New:      func(now time.Time) entry { return entry{Entries: 1, EnteredAt: wire.At(now)} },
	Complete: func(e *entry, now time.Time) error {
		e.EnteredAt = transfer.Past(e.EnteredAt, now)
		return nil
	},
	Dated:  dated,
	Before: admit,
	Writer: &entryWriter,
}

// entrants is what entries add to a giveaway's counters.
type entrants struct {
	have, entrants, entries int64
	frozen                  bool
}

// admit refuses entries of a giveaway whose entries are frozen because it is being or has been
// drawn, and entries whose weights exceed the largest count in total. It counts the others. A
// giveaway of the same import is frozen only at the end of the import.
func admit(ctx context.Context, tx *db.Tx, rows []entry) error {
	sums := make(map[transfer.Ref]*entrants)
	for _, e := range rows {
		sums[refOf(e.GuildID, e.GiveawayID)] = new(entrants)
	}
	for guild, refs := range transfer.InGuilds(maps.Keys(sums)) {
		if err := hold(ctx, tx, guild, refs, sums); err != nil {
			return err
		}
	}
	out, err := disqualifiedRows(ctx, tx, rows)
	if err != nil {
		return err
	}
	for i, e := range rows {
		sum := sums[refOf(e.GuildID, e.GiveawayID)]
		if out[i] {
			return &transfer.Refused{Row: i, Reason: fmt.Sprintf("user %s is disqualified from giveaway %q of guild %s", e.UserID, e.GiveawayID, e.GuildID)}
		}
		if sum.frozen {
			return &transfer.Refused{Row: i, Reason: fmt.Sprintf("giveaway %q of guild %s is being drawn or has been: its entries do not change any more", e.GiveawayID, e.GuildID)}
		}
		if e.Entries > maxEntries-sum.have-sum.entries {
			return &transfer.Refused{Row: i, Reason: fmt.Sprintf("entries bring the giveaway over %d in all", int64(maxEntries))}
		}
		sum.entrants++
		sum.entries += e.Entries
	}
	for guild, refs := range transfer.InGuilds(maps.Keys(sums)) {
		if err := countEntries(ctx, tx, guild, refs, sums); err != nil {
			return err
		}
	}
	return nil
}

// maxEntries is the largest number of entries that a giveaway can count.
const maxEntries = 1<<53 - 1

// hold locks giveaways of a guild and reads their counters.
func hold(ctx context.Context, tx *db.Tx, guild string, refs []transfer.Ref, sums map[transfer.Ref]*entrants) error {
	type holding struct {
		ID      string `db:"id"`
		Entries int64  `db:"entry_count"`
		Frozen  bool   `db:"frozen"`
	}
	have, err := db.Select[holding](ctx, tx, `
		SELECT id, entry_count, pot <> 'open' AS frozen
		FROM giveaways
		WHERE guild_id = $1
		  AND id = ANY ($2)
		ORDER BY id
		FOR NO KEY UPDATE`, guild, db.Array(transfer.IDs(refs)))
	if err != nil {
		return fault.Wrap(err, "read the entries of giveaways of guild", guild)
	}
	for _, h := range have {
		sum := sums[refOf(guild, h.ID)]
		sum.have, sum.frozen = h.Entries, h.Frozen
	}
	return nil
}

// countEntries adds to the counters of a guild's giveaways, which are locked.
func countEntries(ctx context.Context, tx *db.Tx, guild string, refs []transfer.Ref, sums map[transfer.Ref]*entrants) error {
	var users, entries []int64
	for _, r := range refs {
		users, entries = append(users, sums[r].entrants), append(entries, sums[r].entries)
	}
	n, err := db.Exec(ctx, tx, `
		UPDATE giveaways g
		SET entrant_count = g.entrant_count + added.users, entry_count = g.entry_count + added.entries, updated_at = $5
		FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS added (id, users, entries)
		WHERE g.guild_id = $1
		  AND g.id = added.id
		  AND g.pot = 'open'`, guild, db.Array(transfer.IDs(refs)), db.Integers(users), db.Integers(entries), transfer.Pending)
	if err != nil {
		return fault.Wrap(err, "count the entries of giveaways of guild", guild)
	}
	if n != len(refs) {
		return fmt.Errorf("%d of %d giveaways of guild %s take entries", n, len(refs), guild)
	}
	return nil
}

// Draws is the record kind of draws.
var Draws = transfer.Kind[record]{
	Name: "giveaway_draw", Schema: "GuildFileGiveawayDraw", Table: "giveaway_draws", Columns: recordColumns, Order: "giveaway_id, round",
	Refusals: map[string]string{"giveaway_draws_pkey": "this giveaway has a draw of this round already"},
	Guild:    func(d *record) string { return d.GuildID },
	Needs:    func(d *record) []transfer.Ref { return []transfer.Ref{refOf(d.GuildID, d.GiveawayID)} },
	New:      func(now time.Time) record { return record{DrawnAt: wire.At(now)} },
	Complete: func(d *record, now time.Time) error {
		d.DrawnAt = transfer.Past(d.DrawnAt, now)
		return nil
	},
	Dated:  dated,
	Before: raiseRounds,
	Fixed: &transfer.Fixed[record]{
		Name: func(d *record) string {
			return fmt.Sprintf("round %d of giveaway %q of guild %s", d.Round, d.GiveawayID, d.GuildID)
		},
		There: transfer.StoredUnder("the draws of giveaways", drawsOf, func(d *record) transfer.Ref { return refOf(d.GuildID, d.GiveawayID) }),
	},
}

var drawsOf = `
		SELECT ` + recordColumns + `
		FROM giveaway_draws
		WHERE guild_id = $1
		  AND giveaway_id = ANY ($2)`

// raiseRounds raises each giveaway's number of rounds to that of its newest draw.
func raiseRounds(ctx context.Context, tx *db.Tx, rows []record) error {
	last := make(map[transfer.Ref]int64)
	for _, d := range rows {
		r := refOf(d.GuildID, d.GiveawayID)
		last[r] = max(last[r], int64(d.Round))
	}
	for guild, refs := range transfer.InGuilds(maps.Keys(last)) {
		var rounds []int64
		for _, r := range refs {
			rounds = append(rounds, last[r])
		}
		if _, err := db.Exec(ctx, tx, `
			WITH held AS (
				SELECT g.id, drawn.n::integer
				FROM unnest($2::text[], $3::bigint[]) AS drawn (id, n)
				JOIN giveaways g ON g.guild_id = $1 AND g.id = drawn.id
				ORDER BY g.id
				FOR NO KEY UPDATE OF g
			)
			UPDATE giveaways g
			SET rounds = greatest(g.rounds, held.n), updated_at = $4
			FROM held
			WHERE g.guild_id = $1
			  AND g.id = held.id`, guild, db.Array(transfer.IDs(refs)), db.Integers(rounds), transfer.Pending); err != nil {
			return fault.Wrap(err, "count the draws of giveaways of guild", guild)
		}
	}
	return nil
}

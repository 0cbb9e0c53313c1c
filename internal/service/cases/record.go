package cases

import (
	"context"
	"maps"
	"slices"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/wire"
	"guildhall/internal/service/transfer"
)

// row is a stored case. Its JSON is the case's record in guild files.
type row struct {
	GuildID     string          `db:"guild_id" json:"guild_id"`
	ID          string          `db:"id" json:"id"`
	Number      int64           `db:"number" json:"number"`
	UserID      string          `db:"user_id" json:"user_id"`
	ModeratorID string          `db:"moderator_id" json:"moderator_id"`
	Type        string          `db:"type" json:"type"`
	Reason      string          `db:"reason" json:"reason"`
	Status      string          `db:"status" json:"status"`
	ExpiresAt   *wire.Time      `db:"expires_at" json:"expires_at"`
	Source      string          `db:"source" json:"source"`
	Metadata    metadata.Values `db:"metadata" json:"metadata"`
	CreatedAt   wire.Time       `db:"created_at" json:"created_at"`
	UpdatedAt   wire.Time       `db:"updated_at" json:"updated_at"`
}

var (
	members = transfer.ColumnsOf[row]("id", "number", "source", "created_at")
	columns = members.All()
)

// Records is the record kind of cases.
var Records = transfer.Kind[row]{
	Name: "case", Schema: "GuildFileCase", Table: "cases", Columns: members.Moved(), Order: "number",
	Refusals: map[string]string{
		"cases_pkey":   "a case with this id exists already",
		"cases_number": "this guild has a case with this number already",
	},
	Guild:   func(c *row) string { return c.GuildID },
	Defines: func(c *row) transfer.Ref { return refOf(c.GuildID, c.ID) },
	New: func(time.Time) row {
		return row{Status: active, Source: "bot", CreatedAt: transfer.Pending}
	},
	Complete: func(c *row, now time.Time) error {
		transfer.MintID(&c.ID)
		if c.CreatedAt.Time.After(now) {
			c.CreatedAt = transfer.Pending
		}
		c.UpdatedAt = transfer.Pending
		return c.Metadata.Check()
	},
	Dated: []transfer.Column{
		{Table: "cases", Name: "created_at"},
		{Table: "cases", Name: "updated_at"},
		{Table: "guilds", Guild: "id", Name: "last_case_at"},
		{Table: "case_changes", Name: "at"},
	},
	SetInstant: func(c *row, at wire.Time) {
		c.UpdatedAt = at
		if c.CreatedAt == transfer.Pending {
			c.CreatedAt = at
		}
	},
	Before: number,
	Find: `
		SELECT guild_id AS guild, id FROM cases
		WHERE (guild_id, id) IN (SELECT * FROM unnest($1::text[], $2::text[]))`,
	Writer: &writer,
}

// number gives cases without a number the next ones. If some are of the present, a new case that
// waits for the import gets a later instant.
func number(ctx context.Context, tx *db.Tx, rows []row) error {
	err := transfer.Number(ctx, tx, "last_case", rows, func(c *row) (string, *int64) { return c.GuildID, &c.Number })
	if err != nil {
		return err
	}
	ofNow := make(map[string]bool)
	for _, c := range rows {
		if c.CreatedAt == transfer.Pending {
			ofNow[c.GuildID] = true
		}
	}
	for _, guild := range slices.Sorted(maps.Keys(ofNow)) {
		if _, err := db.Exec(ctx, tx, `UPDATE guilds SET last_case_at = $2 WHERE id = $1`, guild, transfer.Pending); err != nil {
			return fault.Wrap(err, "note when guild", guild, "got its last case")
		}
	}
	return nil
}

package cases

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/base/wire"
	"guildhall/internal/service/transfer"
)

// changeRow is a stored change of a case, and the record of the change in a guild file. A row
// without differences is the creation of the case.
type changeRow struct {
	GuildID  string      `db:"guild_id" json:"guild_id"`
	CaseID   string      `db:"case_id" json:"case_id"`
	At       wire.Time   `db:"at" json:"at"`
	Origin   origin      `db:"origin" json:"origin"`
	AuthorID *string     `db:"author_id" json:"author_id"`
	Changes  differences `db:"changes" json:"changes"`

	// The member and the moderator that the change replaced. Forgetting finds rows by them.
	UserBefore      *string `db:"user_before" json:"-"`
	ModeratorBefore *string `db:"moderator_before" json:"-"`
}

var changeMembers = transfer.ColumnsOf[changeRow]("case_id", "at", "origin", "author_id", "changes")

// origin says which caller made a change, in the form that events use.
type origin struct {
	Type    string  `json:"type"`
	TokenID *string `json:"token_id"`
	KeyID   *string `json:"key_id"`
}

// Value returns the origin as JSON.
func (o origin) Value() (driver.Value, error) { return jsonValue(o) }

// Scan reads the origin from JSON.
func (o *origin) Scan(src any) error { return scanJSON(src, o) }

// difference is a field of a case before and after a change. Each name in the metadata is a
// field.
type difference struct {
	Field  string  `json:"field"`
	Before *string `json:"before"`
	After  *string `json:"after"`
}

type differences []difference

// Value returns the differences as JSON.
func (d differences) Value() (driver.Value, error) { return jsonValue(d) }

// MarshalJSON writes [] for a nil list.
func (d differences) MarshalJSON() ([]byte, error) {
	if d == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]difference(d))
}

// Scan reads the differences from JSON.
func (d *differences) Scan(src any) error { return scanJSON(src, d) }

func jsonValue(v any) (driver.Value, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

func scanJSON(src, dst any) error {
	text, ok := src.([]byte)
	if !ok {
		return fmt.Errorf("cases: a column of JSON holds %T", src)
	}
	return json.Unmarshal(text, dst)
}

// before returns the value of a field before the change; nil where the field did not change.
func (d differences) before(field string) *string {
	for _, changed := range d {
		if changed.Field == field {
			return changed.Before
		}
	}
	return nil
}

// replaced returns the member and the moderator that the change replaced.
func (d differences) replaced() (user, moderator *string) {
	return d.before("user_id"), d.before("moderator_id")
}

// differencesOf lists the fields in which two versions of a case differ, in the order of the
// columns, and metadata by name.
func differencesOf(was, is *row) (list differences) {
	before, after := fieldsOf(was), fieldsOf(is)
	for _, column := range members.Changed(was, is) {
		if column != "metadata" {
			list = append(list, difference{column, textOf(before[column]), textOf(after[column])})
			continue
		}
		names := make(map[string]string)
		maps.Copy(names, was.Metadata)
		maps.Copy(names, is.Metadata)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			d := difference{"metadata." + name, valueOf(was.Metadata, name), valueOf(is.Metadata, name)}
			if !transfer.Same(d.Before, d.After) {
				list = append(list, d)
			}
		}
	}
	return list
}

// fieldsOf returns the fields of a case as records show them.
func fieldsOf(c *row) (fields map[string]any) {
	text, err := json.Marshal(c)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		panic("cases: a case cannot be written as JSON: " + err.Error())
	}
	return fields
}

// textOf returns a field as text; nil where the field is null.
func textOf(field any) *string {
	text, ok := field.(string)
	if !ok {
		return nil
	}
	return &text
}

func valueOf(m map[string]string, name string) *string {
	value, ok := m[name]
	if !ok {
		return nil
	}
	return &value
}

// keptChanges is how many changes of a case are kept beside its creation.
const keptChanges = 500

// pruned returns the steps of a statement that make room for one more change of each case whose
// id is in the array: they keep the creation and the newest keptChanges-1 changes. The guild of
// the DELETE comes from the step before: by $1 Postgres would read all changes of a guild that
// its statistics do not know.
func pruned(array string) string {
	return `old AS MATERIALIZED (
			SELECT $1::text AS guild_id, changing.id, surplus.at
			FROM unnest(` + array + `) AS changing (id), LATERAL (
				SELECT n.at FROM case_changes n
				WHERE n.guild_id = $1 AND n.case_id = changing.id AND n.changes <> '[]'
				ORDER BY n.at DESC
				OFFSET ` + fmt.Sprint(keptChanges-1) + `
			) AS surplus
		), pruned AS (
			DELETE FROM case_changes o
			USING old
			WHERE o.guild_id = old.guild_id /*: $1 */
			  AND o.case_id = old.id
			  AND o.at = old.at
		)`
}

// listChanges returns one page of the changes of a case, and one row more when there is one.
// The list of a case whose creation is not stored begins with a creation by the service. The
// list is empty when the guild has no such case.
func listChanges(ctx context.Context, q db.Querier, guild, id string, p page.P) ([]changeRow, error) {
	rows, err := db.Select[changeRow](ctx, q, listingChanges, guild, id, p.Limit(), p.Offset(), auth.System(guild).Origin())
	return rows, fault.Wrap(err, "list changes of case", id, "of guild", guild)
}

const listingChanges = `
		SELECT at, origin, author_id, changes
		FROM (
			SELECT at, origin, author_id, changes
			FROM case_changes
			WHERE guild_id = $1
			  AND case_id = $2
			UNION ALL
			SELECT created_at, $5::jsonb, NULL, '[]'
			FROM cases
			WHERE guild_id = $1
			  AND id = $2
			  AND NOT EXISTS (SELECT FROM case_changes WHERE guild_id = $1 AND case_id = $2 AND changes = '[]')
		) c
		ORDER BY changes <> '[]', at
		LIMIT $3 OFFSET $4`

// Changes are the changes of cases in guild files.
var Changes = transfer.Kind[changeRow]{
	Name: "case_change", Schema: "GuildFileCaseChange", Table: "case_changes", Columns: changeMembers.All(), Order: "case_id, at",
	Refusals: map[string]string{"case_changes_pkey": "this case has a change of this instant already"},
	Guild:    func(c *changeRow) string { return c.GuildID },
	Needs:    func(c *changeRow) []transfer.Ref { return []transfer.Ref{caseOf(c)} },
	New:      func(now time.Time) changeRow { return changeRow{At: wire.At(now)} },
	Complete: func(c *changeRow, now time.Time) error {
		c.At = transfer.Past(c.At, now)
		c.UserBefore, c.ModeratorBefore = c.Changes.replaced()
		return nil
	},
	Fixed: &transfer.Fixed[changeRow]{
		Name: func(c *changeRow) string {
			return fmt.Sprintf("the change of case %q of guild %s at %s", c.CaseID, c.GuildID, c.At)
		},
		There: transfer.StoredUnder("the changes of cases", storedChanges, caseOf),
		// The changes of a case that stands already end in another state than those of the file.
		With: caseOf,
	},
}

// caseOf names the case that was changed.
func caseOf(c *changeRow) transfer.Ref { return refOf(c.GuildID, c.CaseID) }

func refOf(guild, id string) transfer.Ref { return transfer.Ref{Kind: "case", Guild: guild, ID: id} }

var storedChanges = `
		SELECT ` + changeMembers.All() + `
		FROM case_changes
		WHERE guild_id = $1
		  AND case_id = ANY ($2)`

// changeInput is a change of a case by a record, as the statement that stores the case and
// the change reads it.
type changeInput struct {
	ID              string      `json:"id"`
	At              wire.Time   `json:"at"`
	AuthorID        *string     `json:"author_id"`
	Changes         differences `json:"changes"`
	UserBefore      *string     `json:"user_before"`
	ModeratorBefore *string     `json:"moderator_before"`
}

// changesByRecords returns the changes that records make, as JSON. A case that an import
// inserts gets no creation: its changes are those of the file.
func changesByRecords(c *transfer.Call, rows []*transfer.Row[row]) (string, error) {
	list := make([]changeInput, 0, len(rows))
	for _, r := range rows {
		change := changeInput{ID: r.Is.ID, At: r.At, AuthorID: r.Text("author_id")}
		switch {
		case r.Was != nil:
			change.Changes = differencesOf(r.Was, &r.Is)
			change.UserBefore, change.ModeratorBefore = change.Changes.replaced()
		case c.Import != nil:
			continue
		}
		list = append(list, change)
	}
	text, err := json.Marshal(list)
	return string(text), fault.Wrap(err, "write changes of cases for the database")
}

package cases

import (
	"context"
	"maps"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/transfer"
)

// writer creates and changes cases by records.
var writer = transfer.Writer[row]{
	Schema: "RecordCase",
	Key:    idOf,
	Hold:   transfer.Held(idOf, heldCases),
	Revise: revise,
	Shown: func(c *row) transfer.Shown {
		return transfer.Shown{ID: c.ID, Number: &c.Number, UpdatedAt: &c.UpdatedAt}
	},
	Counted: &transfer.Counted[row]{
		Counter: transfer.CaseNumbers,
		Number:  func(c *row) *int64 { return &c.Number },
		Taken:   `SELECT number FROM cases WHERE guild_id = $1 AND number = ANY ($2)`,
		Past:    func(c *row) bool { return c.CreatedAt != transfer.Pending },
	},
	Store: store,
	Emit:  emit,
}

func idOf(c *row) string { return c.ID }

var heldCases = `
		SELECT ` + columns + `
		FROM cases
		WHERE guild_id = $1
		  AND id = ANY ($2)
		ORDER BY id`

// revise completes a case. A deleted case stays unchanged.
func revise(c *transfer.Call, r *transfer.Row[row]) error {
	is, was := &r.Is, r.Was
	if was == nil {
		transfer.MintID(&is.ID)
		if is.CreatedAt.Time.After(c.Now) {
			is.CreatedAt = transfer.Pending
		}
		return is.Metadata.Check()
	}
	is.CreatedAt, is.UpdatedAt, is.Source = was.CreatedAt, was.UpdatedAt, was.Source
	if was.Status == deleted && len(members.Changed(was, is)) > 0 {
		return isDeleted(*was)
	}
	if maps.Equal(is.Metadata, was.Metadata) {
		return nil
	}
	return is.Metadata.Check()
}

// store inserts and updates cases, and records each change.
func store(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[row]) error {
	changes, err := changesByRecords(c, rows)
	if err != nil {
		return err
	}
	return fault.Wrap(transfer.StoreRows(ctx, tx, c, rows, idOf, storing, changes, c.By.Origin()), "store cases of guild", c.By.GuildID)
}

var storing = `
		WITH given AS MATERIALIZED (
			SELECT ` + members.Moved() + `
			FROM jsonb_populate_recordset(NULL::cases, $2)
		), changed AS (
			UPDATE cases c
			SET ` + members.Set("g", nil) + `
			FROM given g
			WHERE c.guild_id = $1 AND c.id = g.id AND c.id = ANY ($3)
			RETURNING c.id
		), made AS (
			INSERT INTO cases (` + members.Moved() + `)
			SELECT ` + members.From("g", nil) + `
			FROM given g JOIN guilds home ON home.id = $1
			WHERE g.id <> ALL ($3)
			ON CONFLICT DO NOTHING
			RETURNING id
		), ` + pruned("$3::text[]") + `, recorded AS (
			INSERT INTO case_changes (guild_id, case_id, at, origin, author_id, changes, user_before, moderator_before)
			SELECT home.id, n.id, n.at, $5::jsonb, n.author_id, n.changes, n.user_before, n.moderator_before
			FROM jsonb_to_recordset($4) AS n ` + changeColumns + ` JOIN guilds home ON home.id = $1
		)
		SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM made)`

// emit records the events of cases that records have created or changed.
func emit(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[row]) error {
	changes := make(map[string][]event.Change)
	for _, r := range rows {
		if r.Was == nil {
			changes[event.CaseCreated] = append(changes[event.CaseCreated], event.Change{At: r.At.Time, Data: show(r.Is)})
		} else {
			changes[event.CaseUpdated] = append(changes[event.CaseUpdated], event.Change{At: r.At.Time, Data: showChange(r.Is, members.Changed(r.Was, &r.Is), r.Text("author_id"))})
		}
	}
	return event.RecordTypes(ctx, tx, event.From(c.By), changes)
}

// changeColumns are the members of a changeInput.
const changeColumns = `(id text, at timestamptz, author_id text, changes jsonb, user_before text, moderator_before text)`

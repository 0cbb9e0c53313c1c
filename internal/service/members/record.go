package members

import (
	"context"
	"maps"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/transfer"
)

// row is a stored member. Its JSON is the member's record in guild files.
type row struct {
	GuildID   string          `db:"guild_id" json:"guild_id"`
	UserID    string          `db:"user_id" json:"user_id"`
	Name      *string         `db:"name" json:"name"`
	Folded    *string         `db:"folded" json:"-"`
	AvatarURL *string         `db:"avatar_url" json:"avatar_url"`
	JoinedAt  *wire.Time      `db:"joined_at" json:"joined_at"`
	LeftAt    *wire.Time      `db:"left_at" json:"left_at"`
	Metadata  metadata.Values `db:"metadata" json:"metadata"`
	CreatedAt wire.Time       `db:"created_at" json:"created_at"`
	UpdatedAt wire.Time       `db:"updated_at" json:"updated_at"`
}

var (
	rowColumns = transfer.ColumnsOf[row]("user_id", "created_at")
	columns    = rowColumns.All()
)

// Records is the record kind of members, in guild files and in WriteRecords.
var Records = transfer.Kind[row]{
	Name: "member", Schema: "GuildFileMember", Table: "members", Columns: columns, Order: "user_id",
	Refusals: map[string]string{"members_pkey": "this guild has this member already"},
	Guild:    func(m *row) string { return m.GuildID },
	New:      func(time.Time) row { return row{CreatedAt: transfer.Pending} },
	Complete: func(m *row, now time.Time) error {
		m.complete(&row{}, now)
		m.UpdatedAt = transfer.Pending
		return m.Metadata.CheckUpTo(maxNames)
	},
	Dated: []transfer.Column{{Table: "members", Name: "created_at"}, {Table: "members", Name: "updated_at"}},
	SetInstant: func(m *row, at wire.Time) {
		m.UpdatedAt = at
		if m.CreatedAt == transfer.Pending {
			m.CreatedAt = at
		}
	},
	Writer: &transfer.Writer[row]{
		Schema: "RecordMember",
		Key:    userOf,
		Hold:   transfer.Held(userOf, namedMembers),
		Revise: revise,
		Shown:  func(m *row) transfer.Shown { return transfer.Shown{ID: m.UserID, UpdatedAt: &m.UpdatedAt} },
		Store:  store,
		Emit:   emit,
	},
}

func userOf(m *row) string { return m.UserID }

// revise completes the member that a record describes.
func revise(c *transfer.Call, r *transfer.Row[row]) error {
	was := r.Was
	if was == nil {
		was = &row{}
	} else {
		r.Is.CreatedAt, r.Is.UpdatedAt = was.CreatedAt, was.UpdatedAt
	}
	r.Is.complete(was, c.Now)
	if maps.Equal(r.Is.Metadata, was.Metadata) {
		return nil
	}
	return r.Is.Metadata.CheckUpTo(maxNames)
}

// complete turns the member that a record describes into the member to store: name and
// avatar in the form that is kept, and instants that have only risen since was.
func (m *row) complete(was *row, now time.Time) {
	m.Name = keptName(m.Name)
	m.AvatarURL = keptURL(m.AvatarURL)
	m.Folded = fold(m.Name)
	left := was.left()
	m.JoinedAt = risen(was.JoinedAt, m.JoinedAt, now, left || was.JoinedAt == nil)
	m.LeftAt = risen(was.LeftAt, m.LeftAt, now, !left)
	if m.CreatedAt.Time.After(now) {
		m.CreatedAt = transfer.Pending
	}
}

// store inserts and updates members in one statement.
func store(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[row]) error {
	users, folded := make([]string, len(rows)), make([]*string, len(rows))
	for i, r := range rows {
		users[i], folded[i] = r.Is.UserID, r.Is.Folded
	}
	err := transfer.StoreRows(ctx, tx, c, rows, userOf, storing, db.Array(users), db.Texts(folded))
	return fault.Wrap(err, "store members of guild", c.By.GuildID)
}

var storing = `
		WITH input AS MATERIALIZED (
			SELECT ` + rowColumns.Moved() + `, f.folded_name
			FROM jsonb_populate_recordset(NULL::members, $2)
			JOIN unnest($4::text[], $5::text[]) AS f (folded_user, folded_name) ON f.folded_user = user_id
		), updated AS (
			UPDATE members m
			SET ` + rowColumns.Set("g", nil) + `, folded = g.folded_name
			FROM input g
			WHERE m.guild_id = $1 AND m.user_id = g.user_id AND m.user_id = ANY ($3)
			RETURNING m.user_id
		), inserted AS (
			INSERT INTO members (` + rowColumns.Moved() + `, folded)
			SELECT ` + rowColumns.From("g", nil) + `, g.folded_name
			FROM input g JOIN guilds home ON home.id = $1
			WHERE g.user_id <> ALL ($3)
			ON CONFLICT DO NOTHING
			RETURNING user_id
		)
		SELECT (SELECT count(*) FROM updated) + (SELECT count(*) FROM inserted)`

// emit records the event of each member that records have stored.
func emit(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[row]) error {
	changes := make(map[string][]event.Change)
	for _, r := range rows {
		was := r.Was
		if was == nil {
			was = &row{}
		}
		typ := eventOf(was, &r.Is)
		changes[typ] = append(changes[typ], event.Change{At: r.At.Time, Data: showChange(r.Is, rowColumns.Changed(was, &r.Is))})
	}
	return event.RecordTypes(ctx, tx, event.From(c.By), changes)
}

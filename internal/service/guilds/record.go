package guilds

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // embeds the time zones, for machines without them

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/service/transfer"
)

// row is one stored guild. Its JSON is the guild's record in guild files.
type row struct {
	ID          string    `db:"id" json:"id"`
	Name        string    `db:"name" json:"name"`
	IconURL     *string   `db:"icon_url" json:"icon_url"`
	OwnerID     string    `db:"owner_id" json:"owner_id"`
	MemberCount int64     `db:"member_count" json:"member_count"`
	Locale      string    `db:"locale" json:"locale"`
	JoinedAt    wire.Time `db:"joined_at" json:"joined_at"`
	CreatedAt   wire.Time `db:"created_at" json:"created_at"`
	UpdatedAt   wire.Time `db:"updated_at" json:"-"` // when a shown member other than the number of members, or the status, last changed
}

const columns = `id, name, icon_url, owner_id, member_count, locale, joined_at, created_at, updated_at`

// Records returns the record kind of guilds, with the level curve of this installation.
func Records(curve Curve) transfer.Kind[row] {
	return transfer.Kind[row]{
		Name: "guild", Schema: "GuildFileGuild", Table: "guilds", Columns: columns, Order: "id",
		Export:   `SELECT ` + columns + ` FROM guilds WHERE id = $1`,
		Refusals: map[string]string{"guilds_pkey": "a guild with this id exists already"},
		Defines:  func(g *row) transfer.Ref { return transfer.Ref{Kind: "guild", Guild: g.ID, ID: g.ID} },
		New: func(now time.Time) row {
			return row{Locale: "en-US", JoinedAt: wire.At(now), CreatedAt: wire.At(now)}
		},
		Complete: func(g *row, now time.Time) error {
			g.UpdatedAt = transfer.Pending
			return completeGuild(g, now)
		},
		Dated: []transfer.Column{{Table: "guilds", Guild: "id", Name: "updated_at"}},
		After: greet,
		Writer: &transfer.Writer[row]{
			Schema: "RecordGuild",
			Key:    func(*row) string { return "guild" }, // a call contains one guild record
			Hold:   holdGuild,
			Revise: reviseGuild,
			Shown:  func(g *row) transfer.Shown { return transfer.Shown{ID: g.ID} },
			Store:  storeGuild,
			Heard:  heardOf,
			Emit: func(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[row]) error {
				return emitGuild(ctx, tx, c, curve, rows[0])
			},
		},
	}
}

func holdGuild(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[row]) error {
	query := heldGuild
	if c.Look {
		query = storedGuild
	}
	g, err := db.Get[row](ctx, tx, query, c.By.GuildID)
	switch {
	case db.Missing(err):
		rows[0].Is.ID = c.By.GuildID
		return nil
	case err != nil:
		return fault.Wrap(err, "hold guild", c.By.GuildID)
	}
	rows[0].Was = &g
	return nil
}

const (
	storedGuild = `SELECT ` + columns + ` FROM guilds WHERE id = $1`
	heldGuild   = storedGuild + ` FOR NO KEY UPDATE`
)

func reviseGuild(c *transfer.Call, r *transfer.Row[row]) error {
	r.Is.ID = c.By.GuildID
	joined := r.Is.JoinedAt
	if err := completeGuild(&r.Is, c.Now); err != nil || r.Was == nil {
		return err
	}
	r.Is.CreatedAt, r.Is.JoinedAt = r.Was.CreatedAt, *transfer.Stands(&joined, &r.Was.JoinedAt, c.Now)
	return nil
}

// storeGuild creates the guild with default settings, or updates it.
func storeGuild(ctx context.Context, tx *db.Tx, _ *transfer.Call, rows []*transfer.Row[row]) error {
	g := rows[0].Is
	g.UpdatedAt = changedAt(rows[0])
	statement := `
		UPDATE guilds
		SET name = $2, icon_url = $3, owner_id = $4, member_count = $5, locale = $6, joined_at = $7, created_at = $8, updated_at = $9
		WHERE id = $1`
	if rows[0].Was == nil {
		statement = `
		INSERT INTO guilds (` + columns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT DO NOTHING`
	}
	n, err := db.Exec(ctx, tx, statement, g.ID, g.Name, g.IconURL, g.OwnerID, g.MemberCount, g.Locale, g.JoinedAt, g.CreatedAt, g.UpdatedAt)
	if err != nil {
		return fault.Wrap(err, "write guild", g.ID)
	}
	if n != 1 {
		return db.Again
	}
	if rows[0].Was == nil {
		return greet(ctx, tx, []row{g})
	}
	return nil
}

// changedAt returns the instant of a change, later than that of the previous change. It stays the
// same if only the number of members changed: that changes all the time, and a bot that follows the
// list of its guilds need not see it.
func changedAt(r *transfer.Row[row]) wire.Time {
	if r.Was == nil {
		return r.At
	}
	counted := *r.Was
	counted.MemberCount = r.Is.MemberCount
	switch {
	case reflect.DeepEqual(counted, r.Is):
		return r.Was.UpdatedAt
	case r.At.Time.After(r.Was.UpdatedAt.Time.Add(time.Millisecond)):
		return r.At
	}
	return wire.Bounded(r.Was.UpdatedAt.Time.Add(time.Millisecond))
}

func completeGuild(g *row, now time.Time) error {
	g.JoinedAt, g.CreatedAt = transfer.Past(g.JoinedAt, now), transfer.Past(g.CreatedAt, now)
	if !wire.OneLine(g.Name) {
		return transfer.Broken("name", "must not hold control characters or line breaks")
	}
	g.Name = cmp.Or(g.Name, g.ID)
	g.OwnerID = cmp.Or(g.OwnerID, g.ID)
	return nil
}

// greet adds the default settings of new guilds, since every guild has settings, and their
// listeners for the bot's streams. A settings record that follows replaces the defaults.
func greet(ctx context.Context, tx *db.Tx, rows []row) error {
	ids := make([]string, len(rows))
	for i, g := range rows {
		ids[i] = g.ID
	}
	_, err := db.Exec(ctx, tx, `INSERT INTO guild_settings (guild_id) SELECT unnest($1::text[])`, db.Array(ids))
	if err != nil {
		return fault.Wrap(err, "give guilds their settings")
	}
	return delivery.SubscribeNew(ctx, tx, ids)
}

// settings are a guild's settings, as stored and as in guild files.
type settings struct {
	GuildID   string `db:"guild_id" json:"guild_id"`
	Modules   `json:"modules"`
	Economy   `json:"economy"`
	Levelling `json:"levelling"`
	Tickets   `json:"tickets"`
	Timezone  string    `db:"timezone" json:"timezone"`
	UpdatedAt wire.Time `db:"updated_at" json:"updated_at"`
}

// Modules says which modules the guild has enabled.
type Modules struct {
	Moderation bool `db:"moderation" json:"moderation"`
	Economy    bool `db:"economy" json:"economy"`
	Levelling  bool `db:"levelling" json:"levelling"`
	Tickets    bool `db:"tickets" json:"tickets"`
	Giveaways  bool `db:"giveaways" json:"giveaways"`
	Network    bool `db:"network" json:"network"`
}

// Economy holds the name and symbol of the guild's currency.
type Economy struct {
	CurrencyName   string `db:"currency_name" json:"currency_name"`
	CurrencySymbol string `db:"currency_symbol" json:"currency_symbol"`
}

// Levelling holds the level curve, which is the same for every guild, and whether XP is counted
// by week and month.
type Levelling struct {
	Curve   Curve `db:"-" json:"curve"`
	Periods bool  `db:"xp_periods" json:"periods"`
}

// Tickets says what happens when a ticket is closed.
type Tickets struct {
	RequireCloseReason bool   `db:"require_close_reason" json:"require_close_reason"`
	CloseAction        string `db:"close_action" json:"close_action"`
}

const settingsColumns = `guild_id, moderation, economy, levelling, tickets, giveaways, network,
	currency_name, currency_symbol, require_close_reason, close_action, timezone, updated_at, xp_periods`

// Settings returns the record kind of settings, with the level curve of this installation.
func Settings(curve Curve) transfer.Kind[settings] {
	return transfer.Kind[settings]{
		Name: "settings", Schema: "GuildFileSettings", Table: "guild_settings", Columns: settingsColumns, Order: "guild_id",
		Refusals: map[string]string{"guild_settings_pkey": "this guild has settings already"},
		Guild:    func(s *settings) string { return s.GuildID },
		New:      func(time.Time) settings { return defaults(curve) },
		Complete: func(s *settings, _ time.Time) error {
			s.UpdatedAt = transfer.Pending
			return s.check(curve)
		},
		Dated:  []transfer.Column{{Table: "guild_settings", Name: "updated_at"}},
		Before: replaceDefaults,
		Writer: &transfer.Writer[settings]{
			Schema: "RecordSettings",
			Key:    func(*settings) string { return "settings" }, // a call contains one settings record
			Hold: func(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[settings]) error {
				return holdSettings(ctx, tx, c, curve, rows[0])
			},
			Revise: func(_ *transfer.Call, r *transfer.Row[settings]) error {
				if r.Was != nil {
					r.Is.UpdatedAt = r.Was.UpdatedAt
				}
				return r.Is.check(curve)
			},
			Shown: func(s *settings) transfer.Shown { return transfer.Shown{ID: s.GuildID, UpdatedAt: &s.UpdatedAt} },
			Store: storeSettings,
			Emit: func(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[settings]) error {
				return emitSettings(ctx, tx, c, curve, rows[0])
			},
		},
	}
}

// defaults returns the settings of a new guild.
func defaults(curve Curve) settings {
	return settings{
		Modules: Modules{true, true, true, true, true, true}, Economy: Economy{"coins", "🪙"}, Levelling: Levelling{Curve: curve},
		Tickets: Tickets{CloseAction: "archive"}, Timezone: "UTC",
	}
}

// holdSettings locks the settings of a guild. Every guild has a row.
func holdSettings(ctx context.Context, tx *db.Tx, c *transfer.Call, curve Curve, r *transfer.Row[settings]) error {
	query := heldSettings
	if c.Look {
		query = storedSettings
	}
	s, err := db.Get[settings](ctx, tx, query, c.By.GuildID)
	switch {
	case c.Look && db.Missing(err): // the file would create the guild, and with it the settings
		s, err = defaults(curve), nil
		s.GuildID = c.By.GuildID
	case db.Missing(err): // an import replaced the row while this transaction waited for its lock
		return db.Again
	}
	s.Curve, r.Was = curve, &s
	return fault.Wrap(err, "hold the settings of guild", c.By.GuildID)
}

const (
	storedSettings = `SELECT ` + settingsColumns + ` FROM guild_settings WHERE guild_id = $1`
	heldSettings   = storedSettings + ` FOR NO KEY UPDATE`
)

func storeSettings(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[settings]) error {
	s := &rows[0].Is
	s.UpdatedAt = rows[0].At
	_, err := db.Exec(ctx, tx, `
		UPDATE guild_settings
		SET moderation = $2, economy = $3, levelling = $4, tickets = $5, giveaways = $6, network = $7,
		    currency_name = $8, currency_symbol = $9, require_close_reason = $10, close_action = $11, timezone = $12, updated_at = $13, xp_periods = $14
		WHERE guild_id = $1`, c.By.GuildID, s.Moderation, s.Modules.Economy, s.Modules.Levelling, s.Modules.Tickets, s.Giveaways, s.Network,
		s.CurrencyName, s.CurrencySymbol, s.RequireCloseReason, s.CloseAction, s.Timezone, s.UpdatedAt, s.Periods)
	return fault.Wrap(err, "write the settings of guild", c.By.GuildID)
}

// check returns an error for settings that violate rules which the schema cannot express.
func (s *settings) check(curve Curve) error {
	if !isZone(s.Timezone) {
		return transfer.Broken("timezone", "must be the name of an IANA time zone, such as Europe/London")
	}
	return s.Curve.mustBe(curve)
}

// isZone reports whether name is a time zone. The machine's directory of time zones also contains
// other files, and copies of all zones below posix and right.
func isZone(name string) bool {
	if slices.Contains([]string{"Local", "localtime", "posixrules", "Factory"}, name) || strings.HasPrefix(name, "posix/") || strings.HasPrefix(name, "right/") {
		return false
	}
	_, err := time.LoadLocation(name)
	return err == nil
}

// mustBe returns an error if other is a different curve.
func (c Curve) mustBe(other Curve) error {
	for _, term := range [...]struct {
		name       string
		value, own int64
	}{{"base", c.Base, other.Base}, {"linear", c.Linear, other.Linear}, {"quadratic", c.Quadratic, other.Quadratic}} {
		if term.value != term.own {
			return transfer.Broken("levelling.curve."+term.name, "must be %d: every guild has the same level curve", term.own)
		}
	}
	return nil
}

// replaceDefaults deletes the guilds' settings if they are still the defaults, so that records can
// insert theirs. If a guild has other settings, they stay, and its record is refused.
func replaceDefaults(ctx context.Context, tx *db.Tx, rows []settings) error {
	for _, s := range rows {
		if _, err := db.Exec(ctx, tx, `
			DELETE FROM guild_settings
			WHERE guild_id = $1
			  AND (moderation, economy, levelling, tickets, giveaways, network)
			    = (true, true, true, true, true, true)
			  AND (currency_name, currency_symbol, require_close_reason, close_action, timezone, xp_periods)
			    = ('coins', '🪙', false, 'archive', 'UTC', false)`, s.GuildID); err != nil {
			return fault.Wrap(err, "replace the default settings of guild", s.GuildID)
		}
	}
	return nil
}

package guildfile

import (
	"strings"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/levelling"
)

// record is one line being read.
type record struct {
	fields
	line int64
	kind string
}

// readers turns each kind of record into rows. What a reader puts aside while
// the record is wrong never reaches the database, because the import ends.
var readers = map[string]func(*batch, *record){
	"guild":           readGuild,
	"settings":        readSettings,
	"case":            readCase,
	"wallet":          readWallet,
	"reference":       readReference,
	"level":           readLevel,
	"ticket":          readTicket,
	"ticket_message":  readTicketMessage,
	"giveaway":        readGiveaway,
	"giveaway_entry":  readGiveawayEntry,
	"giveaway_draw":   readGiveawayDraw,
	"network_listing": readNetworkListing,
}

// inGuild reads guild_id, which must be a guild that the record may follow.
func (b *batch) inGuild(r *record) string {
	id := or(r.snowflake("guild_id", true), "")
	b.needs(r, ref{kind: "guild", id: id, guild: id})
	return id
}

// ownID reads id, or mints one.
func (b *batch) ownID(r *record) string {
	if id := r.id("id", false); id != nil {
		return *id
	}
	return db.NewID()
}

// past is an instant that has been. A file made where the clock is ahead must
// not give a row an hour that its later changes would have to follow.
func (b *batch) past(at *time.Time) time.Time {
	if at == nil || at.After(b.now) {
		return b.now
	}
	return *at
}

func readGuild(b *batch, r *record) {
	id := or(r.snowflake("id", true), "")
	b.to.guilds.put(r.line, r.kind,
		id,
		or(r.label("name", false, 1, 100), id),
		r.str("icon_url", false, 1, 2048),
		or(r.snowflake("owner_id", false), id),
		or(r.integer("member_count", false, 0, maxInteger), 0),
		or(r.text("locale", false, 1, 35), "en-US"),
		or(r.instant("joined_at", false), b.now),
		or(r.instant("created_at", false), b.now),
	)
	b.defines(ref{kind: "guild", id: id, guild: id})
}

func readSettings(b *batch, r *record) {
	guild := b.inGuild(r)
	modules, economy := r.object("modules"), r.object("economy")
	levels, tickets := r.object("levelling"), r.object("tickets")
	curve := levels.object("curve")
	for _, term := range [...]struct {
		name  string
		value int64
	}{{"base", levelling.Base}, {"linear", levelling.Linear}, {"quadratic", levelling.Quadratic}} {
		if n := curve.integer(term.name, false, 0, maxInteger); n != nil && *n != term.value {
			curve.fail(term.name, "must be %d: every guild has the same level curve", term.value)
		}
	}
	b.to.settings.put(r.line, r.kind,
		guild,
		or(modules.boolean("moderation"), true),
		or(modules.boolean("economy"), true),
		or(modules.boolean("levelling"), true),
		or(modules.boolean("tickets"), true),
		or(modules.boolean("giveaways"), true),
		or(modules.boolean("network"), true),
		or(economy.text("currency_name", false, 1, 32), "coins"),
		or(economy.text("currency_symbol", false, 1, 32), "🪙"),
		or(tickets.boolean("require_close_reason"), false),
		or(tickets.oneOf("close_action", false, "archive", "delete"), "archive"),
		or(r.text("timezone", false, 1, 64), "UTC"),
		or(r.instant("updated_at", false), b.now),
	)
	for _, f := range [...]fields{modules, economy, curve, levels, tickets} {
		f.known()
	}
}

func readCase(b *batch, r *record) {
	created := b.past(r.instant("created_at", false))
	updated := r.instant("updated_at", false)
	if updated == nil {
		updated = &created
	}
	b.to.cases.put(r.line, r.kind,
		b.inGuild(r),
		b.ownID(r),
		r.integer("number", false, 1, maxInteger),
		or(r.snowflake("user_id", true), ""),
		or(r.snowflake("moderator_id", true), ""),
		or(r.oneOf("type", true, "note", "warn", "kick", "ban", "timeout", "mute"), ""),
		or(r.text("reason", false, 0, 1000), ""),
		or(r.oneOf("status", false, "active", "expired", "revoked", "deleted"), "active"),
		r.instant("expires_at", false),
		or(r.oneOf("source", false, "api", "bot", "dashboard"), "bot"),
		created,
		b.past(updated),
	)
}

func readWallet(b *batch, r *record) {
	guild := b.inGuild(r)
	user := or(r.snowflake("user_id", true), "")
	balance := or(r.integer("balance", true, 0, maxInteger), 0)
	b.to.wallets.put(r.line, r.kind, guild, user, balance, b.past(r.instant("updated_at", false)))
	b.to.ledger.put(r.line, r.kind, guild, db.NewID(), user, balance, balance, "import", b.now)
}

// readReference reads a reference that a change of the guild's economy has used;
// the change itself, like all of the ledger, does not move.
func readReference(b *batch, r *record) {
	reference := or(r.str("reference", true, 1, 128), "")
	if strings.Trim(reference, " ") == "" || strings.ContainsFunc(reference, func(c rune) bool { return c < 0x20 || c > 0x7E }) {
		r.fail("reference", "must be printable ASCII characters, not only spaces")
	}
	b.to.references.put(r.line, r.kind, b.inGuild(r), reference)
}

func readLevel(b *batch, r *record) {
	xp := or(r.integer("total_xp", true, 0, levelling.MaxXP), 0)
	b.to.levels.put(r.line, r.kind,
		b.inGuild(r),
		or(r.snowflake("user_id", true), ""),
		xp,
		b.past(r.instant("updated_at", false)),
	)
}

func readNetworkListing(b *batch, r *record) {
	first, last := r.instant("first_reported_at", true), r.instant("last_reported_at", true)
	if first != nil && last != nil && last.Before(*first) {
		r.fail("last_reported_at", "must not lie before first_reported_at")
	}
	b.to.listings.put(r.line, r.kind,
		or(r.snowflake("user_id", true), ""),
		or(r.integer("trust_score", true, 0, 100), 0),
		or(r.integer("report_count", true, 0, maxInteger), 0),
		or(r.text("category", true, 1, 64), ""),
		or(r.oneOf("severity", true, "low", "medium", "high", "critical"), ""),
		first, last,
	)
}

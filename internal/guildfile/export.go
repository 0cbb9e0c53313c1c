package guildfile

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/fault"
	"guildhall/internal/levelling"
	"guildhall/internal/wire"
)

// Export writes everything of a guild as a guild file. It shows one moment of
// the database, whatever changes meanwhile; it always writes the same things in
// the same order; and its memory does not grow with the guild. Listings of the
// network belong to no guild and are not in it. It is NotFound when there is no
// such guild.
func Export(ctx context.Context, d *db.DB, guild string, w io.Writer) error {
	return d.Snapshot(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
			return fmt.Errorf("export guild %s: %w", guild, err)
		}
		out := bufio.NewWriterSize(w, 64<<10)
		e := exporter{ctx: ctx, tx: tx, guild: guild, json: json.NewEncoder(out)}
		e.json.SetEscapeHTML(false)
		for _, part := range [...]func() error{
			e.headline, e.settings, e.cases, e.wallets, e.references, e.levels,
			e.tickets, e.messages, e.giveaways, e.entries, e.draws,
		} {
			if err := part(); err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil {
			return fmt.Errorf("export guild %s: %w", guild, err)
		}
		return nil
	})
}

type exporter struct {
	ctx   context.Context
	tx    *db.Tx
	guild string
	json  *json.Encoder
}

// each runs a query about the guild and writes what shape makes of each row.
func each[R any](e *exporter, kind, query string, shape func(*R) any) error {
	rows, err := e.tx.QueryxContext(e.ctx, query, e.guild)
	if err != nil {
		return fmt.Errorf("export each %s of guild %s: %w", kind, e.guild, err)
	}
	defer rows.Close()
	for rows.Next() {
		var r R
		err := rows.StructScan(&r)
		if err == nil {
			err = e.json.Encode(shape(&r))
		}
		if err != nil {
			return fmt.Errorf("export each %s of guild %s: %w", kind, e.guild, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("export each %s of guild %s: %w", kind, e.guild, err)
	}
	return nil
}

// as writes a row that looks just like its record.
func as[R any](r *R) any { return r }

func (e *exporter) headline() error {
	type row struct {
		Record      string  `json:"record" db:"record"`
		ID          string  `json:"id" db:"id"`
		Name        string  `json:"name" db:"name"`
		IconURL     *string `json:"icon_url" db:"icon_url"`
		OwnerID     string  `json:"owner_id" db:"owner_id"`
		MemberCount int64   `json:"member_count" db:"member_count"`
		Locale      string  `json:"locale" db:"locale"`
		JoinedAt    stamp   `json:"joined_at" db:"joined_at"`
		CreatedAt   stamp   `json:"created_at" db:"created_at"`
	}
	found := false
	err := each(e, "guild", `
		SELECT 'guild' AS record, id, name, icon_url, owner_id, member_count, locale, joined_at, created_at
		FROM guilds
		WHERE id = $1`, func(r *row) any { found = true; return r })
	if err == nil && !found {
		return fault.New(fault.NotFound, "not_found", "There is no guild %s.", e.guild)
	}
	return err
}

func (e *exporter) settings() error {
	type row struct {
		GuildID            string `db:"guild_id"`
		Moderation         bool   `db:"moderation"`
		Economy            bool   `db:"economy"`
		Levelling          bool   `db:"levelling"`
		Tickets            bool   `db:"tickets"`
		Giveaways          bool   `db:"giveaways"`
		Network            bool   `db:"network"`
		CurrencyName       string `db:"currency_name"`
		CurrencySymbol     string `db:"currency_symbol"`
		RequireCloseReason bool   `db:"require_close_reason"`
		CloseAction        string `db:"close_action"`
		Timezone           string `db:"timezone"`
		UpdatedAt          stamp  `db:"updated_at"`
	}
	type modules struct {
		Moderation bool `json:"moderation"`
		Economy    bool `json:"economy"`
		Levelling  bool `json:"levelling"`
		Tickets    bool `json:"tickets"`
		Giveaways  bool `json:"giveaways"`
		Network    bool `json:"network"`
	}
	type economy struct {
		CurrencyName   string `json:"currency_name"`
		CurrencySymbol string `json:"currency_symbol"`
	}
	type curve struct {
		Base      int64 `json:"base"`
		Linear    int64 `json:"linear"`
		Quadratic int64 `json:"quadratic"`
	}
	type levels struct {
		Curve curve `json:"curve"`
	}
	type tickets struct {
		RequireCloseReason bool   `json:"require_close_reason"`
		CloseAction        string `json:"close_action"`
	}
	type record struct {
		Record    string  `json:"record"`
		GuildID   string  `json:"guild_id"`
		Modules   modules `json:"modules"`
		Economy   economy `json:"economy"`
		Levelling levels  `json:"levelling"`
		Tickets   tickets `json:"tickets"`
		Timezone  string  `json:"timezone"`
		UpdatedAt stamp   `json:"updated_at"`
	}
	return each(e, "setting", `
		SELECT guild_id, moderation, economy, levelling, tickets, giveaways, network,
		       currency_name, currency_symbol, require_close_reason, close_action, timezone, updated_at
		FROM guild_settings
		WHERE guild_id = $1`, func(r *row) any {
		return record{
			Record: "settings", GuildID: r.GuildID,
			Modules:   modules{r.Moderation, r.Economy, r.Levelling, r.Tickets, r.Giveaways, r.Network},
			Economy:   economy{r.CurrencyName, r.CurrencySymbol},
			Levelling: levels{curve{levelling.Base, levelling.Linear, levelling.Quadratic}},
			Tickets:   tickets{r.RequireCloseReason, r.CloseAction},
			Timezone:  r.Timezone, UpdatedAt: r.UpdatedAt,
		}
	})
}

func (e *exporter) cases() error {
	type row struct {
		Record      string `json:"record" db:"record"`
		GuildID     string `json:"guild_id" db:"guild_id"`
		ID          string `json:"id" db:"id"`
		Number      int64  `json:"number" db:"number"`
		UserID      string `json:"user_id" db:"user_id"`
		ModeratorID string `json:"moderator_id" db:"moderator_id"`
		Type        string `json:"type" db:"type"`
		Reason      string `json:"reason" db:"reason"`
		Status      string `json:"status" db:"status"`
		ExpiresAt   *stamp `json:"expires_at" db:"expires_at"`
		Source      string `json:"source" db:"source"`
		CreatedAt   stamp  `json:"created_at" db:"created_at"`
		UpdatedAt   stamp  `json:"updated_at" db:"updated_at"`
	}
	return each(e, "case", `
		SELECT 'case' AS record, guild_id, id, number, user_id, moderator_id, type, reason, status,
		       expires_at, source, created_at, updated_at
		FROM cases
		WHERE guild_id = $1
		ORDER BY number`, as[row])
}

func (e *exporter) wallets() error {
	type row struct {
		Record    string `json:"record" db:"record"`
		GuildID   string `json:"guild_id" db:"guild_id"`
		UserID    string `json:"user_id" db:"user_id"`
		Balance   int64  `json:"balance" db:"balance"`
		UpdatedAt stamp  `json:"updated_at" db:"updated_at"`
	}
	return each(e, "wallet", `
		SELECT 'wallet' AS record, guild_id, user_id, balance, updated_at
		FROM wallets
		WHERE guild_id = $1
		ORDER BY user_id`, as[row])
}

// references go with the guild although its ledger does not, so that none is
// taken a second time.
func (e *exporter) references() error {
	type row struct {
		Record    string `json:"record" db:"record"`
		GuildID   string `json:"guild_id" db:"guild_id"`
		Reference string `json:"reference" db:"reference"`
	}
	return each(e, "reference", `
		SELECT 'reference' AS record, guild_id, reference
		FROM ledger_references
		WHERE guild_id = $1
		ORDER BY reference`, as[row])
}

func (e *exporter) levels() error {
	type row struct {
		Record    string `json:"record" db:"record"`
		GuildID   string `json:"guild_id" db:"guild_id"`
		UserID    string `json:"user_id" db:"user_id"`
		TotalXP   int64  `json:"total_xp" db:"total_xp"`
		UpdatedAt stamp  `json:"updated_at" db:"updated_at"`
	}
	return each(e, "level", `
		SELECT 'level' AS record, guild_id, user_id, total_xp, updated_at
		FROM levels
		WHERE guild_id = $1
		ORDER BY user_id`, as[row])
}

func (e *exporter) tickets() error {
	type row struct {
		Record      string  `json:"record" db:"record"`
		GuildID     string  `json:"guild_id" db:"guild_id"`
		ID          string  `json:"id" db:"id"`
		Number      int64   `json:"number" db:"number"`
		Status      string  `json:"status" db:"status"`
		Subject     *string `json:"subject" db:"subject"`
		OpenerID    string  `json:"opener_id" db:"opener_id"`
		ClaimedByID *string `json:"claimed_by_id" db:"claimed_by_id"`
		ChannelID   *string `json:"channel_id" db:"channel_id"`
		CloseReason *string `json:"close_reason" db:"close_reason"`
		ClosedByID  *string `json:"closed_by_id" db:"closed_by_id"`
		CreatedAt   stamp   `json:"created_at" db:"created_at"`
		UpdatedAt   stamp   `json:"updated_at" db:"updated_at"`
		ClosedAt    *stamp  `json:"closed_at" db:"closed_at"`
	}
	return each(e, "ticket", `
		SELECT 'ticket' AS record, guild_id, id, number, status, subject, opener_id, claimed_by_id, channel_id,
		       close_reason, closed_by_id, created_at, updated_at, closed_at
		FROM tickets
		WHERE guild_id = $1
		ORDER BY number`, as[row])
}

// messages come in the order of reading. Within a millisecond, which is all of
// an instant that the file keeps, the id decides, here as after an import.
func (e *exporter) messages() error {
	type row struct {
		Record           string  `json:"record" db:"record"`
		GuildID          string  `json:"guild_id" db:"guild_id"`
		TicketID         string  `json:"ticket_id" db:"ticket_id"`
		ID               string  `json:"id" db:"id"`
		Kind             string  `json:"kind" db:"kind"`
		Internal         bool    `json:"internal" db:"internal"`
		AuthorID         *string `json:"author_id" db:"author_id"`
		AuthorType       string  `json:"author_type" db:"author_type"`
		Content          string  `json:"content" db:"content"`
		ChannelMessageID *string `json:"channel_message_id" db:"channel_message_id"`
		CreatedAt        stamp   `json:"created_at" db:"created_at"`
	}
	return each(e, "ticket message", `
		SELECT 'ticket_message' AS record, m.guild_id, ticket_id, m.id, kind, internal, author_id, author_type,
		       content, channel_message_id, m.created_at
		FROM ticket_messages m
		JOIN tickets t ON t.guild_id = m.guild_id AND t.id = m.ticket_id
		WHERE m.guild_id = $1
		ORDER BY t.number, date_trunc('milliseconds', m.created_at), m.id`, as[row])
}

func (e *exporter) giveaways() error {
	type row struct {
		Record      string     `json:"record" db:"record"`
		GuildID     string     `json:"guild_id" db:"guild_id"`
		ID          string     `json:"id" db:"id"`
		Status      string     `json:"status" db:"status"`
		Prize       string     `json:"prize" db:"prize"`
		Description *string    `json:"description" db:"description"`
		WinnerCount int64      `json:"winner_count" db:"winner_count"`
		Winners     db.Strings `json:"winners" db:"winners"`
		HostID      *string    `json:"host_id" db:"host_id"`
		ChannelID   string     `json:"channel_id" db:"channel_id"`
		MessageID   *string    `json:"message_id" db:"message_id"`
		StartsAt    stamp      `json:"starts_at" db:"starts_at"`
		EndsAt      stamp      `json:"ends_at" db:"ends_at"`
		PausedAt    *stamp     `json:"paused_at" db:"paused_at"`
		EndedAt     *stamp     `json:"ended_at" db:"ended_at"`
		CreatedAt   stamp      `json:"created_at" db:"created_at"`
		UpdatedAt   stamp      `json:"updated_at" db:"updated_at"`
		Source      string     `json:"source" db:"source"`
	}
	return each(e, "giveaway", `
		SELECT 'giveaway' AS record, guild_id, id, status, prize, description, winner_count, winners, host_id,
		       channel_id, message_id, starts_at, ends_at,
		       CASE WHEN status = 'paused' THEN paused_at END AS paused_at,
		       CASE WHEN status = 'ended' THEN ended_at END AS ended_at,
		       created_at, updated_at, source
		FROM giveaways
		WHERE guild_id = $1
		ORDER BY id`, as[row])
}

func (e *exporter) entries() error {
	type row struct {
		Record     string `json:"record" db:"record"`
		GuildID    string `json:"guild_id" db:"guild_id"`
		GiveawayID string `json:"giveaway_id" db:"giveaway_id"`
		UserID     string `json:"user_id" db:"user_id"`
		Entries    int64  `json:"entries" db:"entries"`
		EnteredAt  stamp  `json:"entered_at" db:"entered_at"`
	}
	return each(e, "giveaway entry", `
		SELECT 'giveaway_entry' AS record, guild_id, giveaway_id, user_id, entries, entered_at
		FROM giveaway_entries
		WHERE guild_id = $1
		ORDER BY giveaway_id, user_id`, as[row])
}

func (e *exporter) draws() error {
	type row struct {
		Record      string     `json:"record" db:"record"`
		GuildID     string     `json:"guild_id" db:"guild_id"`
		GiveawayID  string     `json:"giveaway_id" db:"giveaway_id"`
		Round       int64      `json:"round" db:"round"`
		Seed        string     `json:"seed" db:"seed"`
		EntriesHash string     `json:"entries_hash" db:"entries_hash"`
		PastWinners db.Strings `json:"past_winners" db:"past_winners"`
		Excluded    db.Strings `json:"excluded" db:"excluded"`
		Drawn       db.Strings `json:"drawn" db:"drawn"`
		Replaced    db.Strings `json:"replaced" db:"replaced"`
		Winners     db.Strings `json:"winners" db:"winners"`
		TokenID     *string    `json:"token_id" db:"token_id"`
		Reason      *string    `json:"reason" db:"reason"`
		DrawnAt     stamp      `json:"drawn_at" db:"drawn_at"`
		EntryCount  *int64     `json:"entry_count" db:"entry_count"`
	}
	return each(e, "draw", `
		SELECT 'giveaway_draw' AS record, guild_id, giveaway_id, round, encode(seed, 'hex') AS seed,
		       encode(entries_hash, 'hex') AS entries_hash, past_winners, excluded, drawn, replaced, winners,
		       token_id, reason, drawn_at, entry_count
		FROM giveaway_draws
		WHERE guild_id = $1
		ORDER BY giveaway_id, round`, as[row])
}

// stamp is an instant that is read from a row and written as the API writes it.
type stamp struct{ wire.Time }

// Scan reads it from a row.
func (s *stamp) Scan(src any) error {
	t, ok := src.(time.Time)
	if !ok {
		return fmt.Errorf("an instant came as %T", src)
	}
	s.Time = wire.At(t)
	return nil
}

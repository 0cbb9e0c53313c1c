package guildfile

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"guildhall/internal/leaderboard"
)

// targets are the tables, each in a place where what it refers to comes before.
type targets struct {
	guilds, settings, cases, wallets, ledger, references   target
	levels                                                 target
	tickets, messages, giveaways, entries, draws, listings target
}

// afterGuilds is every target but the guilds.
func (t *targets) afterGuilds() []*target {
	return []*target{
		&t.settings, &t.cases, &t.wallets, &t.ledger, &t.references, &t.levels,
		&t.tickets, &t.messages, &t.giveaways, &t.entries, &t.draws, &t.listings,
	}
}

func (t *targets) each(do func(*target)) {
	do(&t.guilds)
	for _, t := range t.afterGuilds() {
		do(t)
	}
}

func newTargets() targets {
	return targets{
		guilds: target{
			table:    "guilds",
			columns:  []string{"id", "name", "icon_url", "owner_id", "member_count", "locale", "joined_at", "created_at"},
			refusals: map[string]string{"guilds_pkey": "a guild with this id exists already"},
		},
		settings: target{
			table: "guild_settings",
			columns: []string{
				"guild_id", "moderation", "economy", "levelling", "tickets", "giveaways", "network",
				"currency_name", "currency_symbol", "require_close_reason", "close_action", "timezone", "updated_at",
			},
			refusals: map[string]string{"guild_settings_pkey": "this guild has settings already"},
		},
		cases: target{
			table: "cases",
			columns: []string{
				"guild_id", "id", "number", "user_id", "moderator_id", "type", "reason", "status",
				"expires_at", "source", "created_at", "updated_at",
			},
			refusals: map[string]string{
				"cases_pkey":   "a case with this id exists already",
				"cases_number": "this guild has a case with this number already",
			},
		},
		wallets: target{
			table:    "wallets",
			columns:  []string{"guild_id", "user_id", "balance", "updated_at"},
			refusals: map[string]string{"wallets_pkey": "this user has a wallet in this guild already"},
		},
		ledger: target{
			table:   "ledger_entries",
			columns: []string{"guild_id", "id", "user_id", "delta", "balance_after", "note", "created_at"},
		},
		references: target{
			table:    "ledger_references",
			columns:  []string{"guild_id", "reference"},
			refusals: map[string]string{"ledger_references_pkey": "this guild has used this reference already"},
		},
		levels: target{
			table:    "levels",
			columns:  []string{"guild_id", "user_id", "total_xp", "updated_at"},
			refusals: map[string]string{"levels_pkey": "this user has a level record in this guild already"},
		},
		tickets: target{
			table: "tickets",
			columns: []string{
				"guild_id", "id", "number", "status", "subject", "opener_id", "claimed_by_id", "channel_id",
				"close_reason", "closed_by_id", "created_at", "updated_at", "closed_at",
			},
			refusals: map[string]string{
				"tickets_pkey":   "a ticket with this id exists already",
				"tickets_number": "this guild has a ticket with this number already",
			},
		},
		messages: target{
			table: "ticket_messages",
			columns: []string{
				"guild_id", "ticket_id", "id", "kind", "internal", "author_id", "author_type", "content",
				"channel_message_id", "created_at",
			},
			refusals: map[string]string{"ticket_messages_pkey": "a message with this id exists already"},
		},
		giveaways: target{
			table: "giveaways",
			columns: []string{
				"guild_id", "id", "status", "prize", "description", "winner_count", "winners", "host_id",
				"channel_id", "message_id", "starts_at", "ends_at", "paused_at", "ended_at", "created_at", "updated_at", "source",
			},
			refusals: map[string]string{"giveaways_pkey": "a giveaway with this id exists already"},
		},
		entries: target{
			table:    "giveaway_entries",
			columns:  []string{"guild_id", "giveaway_id", "user_id", "entries", "entered_at"},
			refusals: map[string]string{"giveaway_entries_pkey": "this user has entered this giveaway already"},
		},
		draws: target{
			table: "giveaway_draws",
			columns: []string{
				"guild_id", "giveaway_id", "round", "seed", "entries_hash", "past_winners", "excluded", "drawn",
				"replaced", "winners", "token_id", "reason", "drawn_at", "entry_count",
			},
			refusals: map[string]string{"giveaway_draws_pkey": "this giveaway has a draw of this round already"},
		},
		listings: target{
			table: "network_listings",
			columns: []string{
				"user_id", "trust_score", "report_count", "category", "severity", "first_reported_at", "last_reported_at",
			},
			refusals: map[string]string{"network_listings_pkey": "this user is listed already"},
		},
	}
}

// manyRecords are enough to change how Postgres should look for them.
const manyRecords = 10_000

// Where cases and tickets have their number.
const numberColumn = 2

// number gives cases and tickets without a number the guild's next one, and
// raises the guild's counters over every number that is given, so that the API
// goes on from there.
func (b *batch) number(ctx context.Context) error {
	var ids []string
	for _, t := range []*target{&b.to.cases, &b.to.tickets} {
		for _, row := range t.rows {
			ids = append(ids, row[0].(string))
		}
	}
	cases, tickets, before := make(map[string]int64), make(map[string]int64), make(map[string]counters)
	slices.Sort(ids)
	for _, guild := range slices.Compact(ids) {
		var last counters
		if err := b.tx.GetContext(ctx, &last, `
			SELECT last_case, last_ticket
			FROM guilds
			WHERE id = $1
			FOR NO KEY UPDATE`, guild); err != nil {
			return fmt.Errorf("import: read the counters of guild %s: %w", guild, err)
		}
		cases[guild], tickets[guild], before[guild] = last.Case, last.Ticket, last
	}
	assign(&b.to.cases, cases)
	assign(&b.to.tickets, tickets)
	for guild, last := range before {
		if cases[guild] == last.Case && tickets[guild] == last.Ticket {
			continue
		}
		if _, err := b.tx.ExecContext(ctx, `
			UPDATE guilds SET last_case = $2, last_ticket = $3
			WHERE id = $1`, guild, cases[guild], tickets[guild]); err != nil {
			return fmt.Errorf("import: raise the counters of guild %s: %w", guild, err)
		}
	}
	return nil
}

// counters are a guild's last numbers.
type counters struct {
	Case   int64 `db:"last_case"`
	Ticket int64 `db:"last_ticket"`
}

func assign(t *target, last map[string]int64) {
	for _, row := range t.rows {
		guild := row[0].(string)
		n := row[numberColumn].(*int64)
		if n == nil {
			next := last[guild] + 1
			n = &next
			row[numberColumn] = n
		}
		last[guild] = max(last[guild], *n)
	}
}

// finish is done once, after the last batch.
func (b *batch) finish(ctx context.Context, total int64) error {
	for _, guild := range slices.Sorted(maps.Keys(b.closing)) {
		if err := b.freeze(ctx, guild); err != nil {
			return err
		}
	}
	for guild := range b.ranked {
		if err := leaderboard.Reloaded(ctx, b.tx, guild); err != nil {
			return fmt.Errorf("import: %w", err)
		}
	}
	if total < manyRecords {
		return nil
	}
	// Whoever reads the guild next should not be planned for with the statistics
	// of a small or empty table.
	if _, err := b.tx.ExecContext(ctx, `
		ANALYZE cases, wallets, ledger_entries, levels, tickets, ticket_messages,
		        giveaways, giveaway_entries, network_listings`); err != nil {
		return fmt.Errorf("import: look at what came in: %w", err)
	}
	return nil
}

package removal_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/service/guildfile"
	"guildhall/internal/service/guilds"
	"guildhall/internal/service/removal"
)

const other = "402187554310020097"

// more inserts rows into tables of guilds in which the demo guild has none.
var more = []string{
	`INSERT INTO case_changes (guild_id, case_id, at, origin, changes)
		SELECT guild_id, id, now(), '{}', '[]' FROM cases WHERE guild_id = $1 ORDER BY id LIMIT 1`,
	`INSERT INTO chat_intents (guild_id, id, kind, subject_id, channel_id, content, nonce)
		VALUES ($1, 'i', 'ticket_message', 's', '1', 'c', 'n')`,
	`INSERT INTO bot_work (guild_id, id, kind, subject_id, event_id, created_at, deadline)
		VALUES ($1, 'w', 'post_message', 's', 'v', now(), now())`,
	`INSERT INTO members (guild_id, user_id, name) VALUES ($1, '7', 'm')`,
	`INSERT INTO dashboard_links (guild_id, hash, id, expires_at) VALUES ($1, '\x01', 'l', now())`,
	`INSERT INTO dashboard_once (guild_id, key) VALUES ($1, '\x01')`,
	`INSERT INTO forgotten_members (guild_id, id, user_id, cases, requested_at) VALUES ($1, 'f', '7', false, now())`,
	`INSERT INTO giveaway_draws (guild_id, giveaway_id, round, seed, entries_hash, excluded, drawn, replaced, entry_count)
		SELECT guild_id, id, 9, decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex'), '{}', '{}', '{}', 0
		FROM giveaways WHERE guild_id = $1 ORDER BY id LIMIT 1`,
	`INSERT INTO giveaway_disqualified (guild_id, giveaway_id, user_id)
		SELECT guild_id, id, '7' FROM giveaways WHERE guild_id = $1 ORDER BY id LIMIT 1`,
	`INSERT INTO ledger_references (guild_id, reference) VALUES ($1, 'r')`,
	`INSERT INTO idempotency_keys (token_id, key, fingerprint, guild_id) VALUES ('t', 'k', '\x01', $1)`,
	`INSERT INTO rank_indexes (guild_id, board, version) VALUES ($1, 'wallets', 1)`,
	`INSERT INTO rank_checkpoints (guild_id, board, version, number, depth, length, user_id) VALUES ($1, 'wallets', 1, 1, 1, 1, '7')`,
	`INSERT INTO rank_moves (guild_id, board, version, user_id) VALUES ($1, 'wallets', 1, '7')`,
	`INSERT INTO rank_requests (guild_id, board) VALUES ($1, 'wallets')`,
	`INSERT INTO stream_listeners (guild_id, stream_id, events, echo) VALUES ($1, 's', '{case.created}', true)`,
	`INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at) VALUES ($1, 's', 'v', now())`,
	`INSERT INTO usage_addresses (guild_id, token_id, day, address, requests, seen_at) VALUES ($1, 't', now(), 'a', 1, now())`,
	`INSERT INTO usage_days (guild_id, token_id, day, operation, class, requests) VALUES ($1, 't', now(), 'o', 2, 1)`,
	`INSERT INTO usage_ended (guild_id, token_id, address, requests, first_at, seen_at) VALUES ($1, 't', 'a', 1, now(), now())`,
	`INSERT INTO usage_hours (guild_id, token_id, hour, operation, class, requests) VALUES ($1, 't', now(), 'o', 2, 1)`,
	`INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address)
		VALUES ($1, 'r', now(), 't', 'o', 4, 'c', 'a')`,
	`INSERT INTO usage_totals (guild_id, token_id, hour, class, requests) VALUES ($1, 't', now(), 2, 1)`,
	`INSERT INTO xp_moves (guild_id, at, timezone, users, deltas) VALUES ($1, now(), 'UTC', '{7}', '{1}')`,
	`INSERT INTO xp_periods (guild_id, user_id, kind, starts, xp, kept_until) VALUES ($1, '7', 'week', '2026-01-05', 1, '2027-03-08')`,
	`INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
		VALUES ($1, 'e', 'https://example.com', '{case.created}', '', '')`,
	`INSERT INTO webhook_events (guild_id, id, type, payload) VALUES ($1, 'v', 'case.created', '{}')`,
	`INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id) VALUES ($1, 'd', 'e', 'v')`,
	`INSERT INTO webhook_attempts (guild_id, delivery_id, number, started_at, duration_ms, outcome)
		VALUES ($1, 'd', 1, now(), 1, 'delivered')`,
	`INSERT INTO webhook_hours (guild_id, endpoint_id, hour, outcome, deliveries) VALUES ($1, 'e', now(), 'delivered', 1)`,
	`INSERT INTO webhook_schedule (guild_id, endpoint_id) VALUES ($1, 'e')`,
}

// full returns a database with two guilds, the demo guild and a copy of it, that have rows in every
// table.
func full(t *testing.T) *db.DB {
	t.Helper()
	d := dbtest.New(t).DB
	var file bytes.Buffer
	if err := guildfile.Demo(&file); err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.SplitAfter(file.String(), "\n"),
		func(line string) bool { return strings.Contains(line, `"network_listing"`) })
	for _, guild := range []string{guildfile.DemoGuild, other} {
		text := strings.ReplaceAll(strings.Join(lines, ""), guildfile.DemoGuild, guild)
		if _, err := guildfile.Import(t.Context(), d, strings.NewReader(text), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := auth.Create(t.Context(), d, auth.New{GuildID: guild, Env: "test", Name: "test", Scopes: auth.Scopes}); err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(t, d, `DELETE FROM rank_indexes WHERE guild_id = $1`, guild)
		for _, statement := range more {
			dbtest.Exec(t, d, statement, guild)
		}
	}
	for table, n := range counts(t, d, other) {
		if n == 0 {
			t.Errorf("the scene has no row in %s: a table of guilds that nothing here fills", table)
		}
	}
	return d
}

// tables returns all tables of guilds, and that of their tokens.
func tables(t *testing.T, d *db.DB) []string {
	t.Helper()
	list, err := db.GuildTables(t.Context(), d.Reader())
	if err != nil {
		t.Fatal(err)
	}
	return append(list, "api_tokens")
}

// counts returns the number of the guild's rows in each table.
func counts(t *testing.T, d *db.DB, guild string) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, table := range tables(t, d) {
		column := "guild_id"
		if table == "guilds" {
			column = "id"
		}
		all[table] = dbtest.Value[int](t, d, `SELECT count(*) FROM `+table+` WHERE `+column+` = $1`, guild)
	}
	return all
}

// remove schedules a guild's removal with a time long ago.
func remove(t *testing.T, d *db.DB, guild string) {
	t.Helper()
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		_, err := guilds.Remove(ctx, tx, guild, 0)
		return err
	})
	dbtest.Exec(t, d, `UPDATE guilds SET `+dbtest.Earlier(`interval '16 seconds'`, "removed_after")+` WHERE id = $1`, guild)
}

// RELIABILITY.md, Guilds.
func TestAGuildWhoseDayHasComeLosesEverythingAndAnotherNothing(t *testing.T) {
	t.Parallel()
	d := full(t)
	before := counts(t, d, other)
	remove(t, d, guildfile.DemoGuild)
	if err := removal.Guilds(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	for table, n := range counts(t, d, guildfile.DemoGuild) {
		if n != 0 {
			t.Errorf("%s has %d rows left", table, n)
		}
	}
	if after := counts(t, d, other); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the other guild had\n%v, and has\n%v", before, after)
	}
	if n := dbtest.Value[int](t, d, `SELECT count(*)
		FROM audit_log WHERE guild_id = '' AND action = 'guild.erased' AND target_id = $1`, guildfile.DemoGuild); n != 1 {
		t.Errorf("the audit log has %d lines about it, want one", n)
	}
	dbtest.AddGuilds(t, d, guildfile.DemoGuild)
	if err := removal.Guilds(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if n := counts(t, d, guildfile.DemoGuild)["guilds"]; n != 1 {
		t.Error("a guild that was made again has gone")
	}
}

// The worker is killed between any two statements, and another continues. RELIABILITY.md, Guilds.
func TestARemovalThatIsKilledIsContinued(t *testing.T) {
	t.Parallel()
	d := full(t)
	remove(t, d, guildfile.DemoGuild)
	for kills := 0; ; kills++ {
		ctx, kill := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(kills%40*(1+kills/40))*time.Millisecond, kill) // longer each time, so that the test ends on a slow machine
		if err := removal.Guilds(t.Context(), d); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		kill()
		if n := counts(t, d, guildfile.DemoGuild); n["guilds"] == 0 {
			for table, left := range n {
				if left > 0 {
					t.Errorf("the guild's row is gone, and %s has %d rows", table, left)
				}
			}
			return
		}
	}
}

func TestAGuildIsDeletedOnlyAfterItsDay(t *testing.T) {
	t.Parallel()
	d := full(t)
	before := counts(t, d, guildfile.DemoGuild)
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		_, err := guilds.Remove(ctx, tx, guildfile.DemoGuild, 0)
		return err
	})
	if err := removal.Guilds(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	after := counts(t, d, guildfile.DemoGuild)
	for _, own := range []map[string]int{before, after} { // rows that the removal itself writes
		delete(own, "audit_log")
		delete(own, "dashboard_links")
	}
	if fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("within its grace the guild had\n%v, and has\n%v", before, after)
	}
}

// An import that began before the removal may end long after the scheduled time. The guild is
// deleted afterwards, with everything that was imported.
func TestAGuildIsDeletedAfterTheImportThatBeganBefore(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, guild)
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		if held, err := guilds.Held(ctx, tx, guild); len(held) != 1 || err != nil {
			t.Errorf("the guild is not there: %v", err)
		}
		dbtest.Exec(t, d, `UPDATE guilds SET removed_at = now() - interval '1 hour', removed_after = now() - interval '1 hour'
			WHERE id = $1`, guild)
		if err := removal.Guilds(t.Context(), d); err != nil {
			t.Error(err)
		}
		_, err := db.Exec(ctx, tx, `INSERT INTO wallets (guild_id, user_id, balance) VALUES ($1, '7', 1)`, guild)
		return err
	})
	if n := dbtest.Value[int](t, d, `SELECT count(*) FROM guilds`); n != 1 {
		t.Fatal("the guild is deleted before the import has ended")
	}
	if err := removal.Guilds(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if n := dbtest.Value[int](t, d, `SELECT (SELECT count(*) FROM guilds) + (SELECT count(*) FROM wallets)`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

package removal_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/leaderboard"
	"guildhall/internal/service/removal"
)

// member is the member whose data is deleted, in guild.
const (
	member = "555000111222333444"
	guild  = "197038439483310086"
	beside = "302094807046684672"
)

// everything inserts all data that a guild can have of a member: as author, owner, subject and
// staff.
var everything = []string{
	`INSERT INTO wallets (guild_id, user_id, balance) VALUES ($1, $2, 3), ($1, '7', 1)`,
	`INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note, reference, created_at)
		SELECT $1, n::text, $2, 1, n, '', 'r-' || n, now() - (3 - n) * interval '1 hour' FROM generate_series(1, 3) n`,
	`INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note, author_id, counterparty_id)
		VALUES ($1, '7', '7', 1, 1, '', $2, $2)`,
	`INSERT INTO ledger_references (guild_id, reference, entry_id) SELECT $1, 'r-' || n, n::text
			FROM generate_series(1, 3) n WHERE $2 <> ''`,
	`INSERT INTO levels (guild_id, user_id, total_xp) VALUES ($1, $2, 5)`,
	`INSERT INTO xp_moves (guild_id, at, timezone, users, deltas)
		VALUES ($1, now(), 'UTC', ARRAY['7', $2, '8', $2], '{1,2,3,4}'), ($1, now(), 'UTC', ARRAY[$2], '{5}'), ($1, now(), 'UTC', '{9}', '{6}')`,
	`INSERT INTO xp_periods (guild_id, user_id, kind, starts, xp, kept_until) VALUES ($1, $2, 'month', '2026-06-01', 3, '2027-10-01')`,
	`INSERT INTO members (guild_id, user_id, name, folded, metadata)
		VALUES ($1, $2, 'm ' || $2, 'm ' || $2, jsonb_build_object('a', $2::text))`,
	`INSERT INTO rank_indexes (guild_id, board, version, state) VALUES ($1, 'wallets', 1, left('live' || $2, 4))`,
	`INSERT INTO rank_checkpoints (guild_id, board, version, number, depth, length, user_id) VALUES ($1, 'wallets', 1, 1, 1, 1, $2)`,
	`INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, source, metadata)
		VALUES ($1, 'about', 1, $2, '8', 'warn', 'about them', 'api', jsonb_build_object('a', $2::text)),
			($1, 'by', 2, '9', $2, 'warn', 'by them', 'api', '{}')`,
	`INSERT INTO case_changes (guild_id, case_id, at, origin, author_id, changes, user_before, moderator_before)
		VALUES ($1, 'about', now(), '{}', $2, jsonb_build_array(jsonb_build_object('field', 'reason', 'before', 'of ' || $2::text, 'after', NULL),
				jsonb_build_object('field', 'metadata.a', 'before', NULL, 'after', $2::text),
				jsonb_build_object('field', 'type', 'before', 'ban', 'after', 'warn')), NULL, NULL),
			($1, 'about', now() + interval '1 ms', '{}', $2, jsonb_build_array(
				jsonb_build_object('field', 'user_id', 'before', '9', 'after', $2::text)), '9', NULL),
			($1, 'by', now(), '{}', NULL, jsonb_build_array(jsonb_build_object('field', 'user_id', 'before', '9', 'after', $2::text)), '9', NULL),
			($1, 'by', now() + interval '1 ms', '{}', NULL, jsonb_build_array(jsonb_build_object('field', 'reason', 'before', '', 'after', 'x'),
				jsonb_build_object('field', 'user_id', 'before', $2::text, 'after', '9')), $2, NULL),
			($1, 'by', now() + interval '2 ms', '{}', NULL, jsonb_build_array(
				jsonb_build_object('field', 'moderator_id', 'before', $2::text, 'after', '8')), NULL, $2)`,
	`INSERT INTO giveaways (guild_id, id, status, prize, winner_count,
		entrant_count, entry_count, channel_id, starts_at, ends_at, winners, host_id)
		VALUES ($1, 'running', 'active', 'p', 1, 2, 5, '1', now(), now() + interval '1 day', '{}', '8'),
		       ($1, 'over', 'ended', 'p', 1, 1, 1, '1', now(), now(), ARRAY[$2], $2)`,
	`INSERT INTO giveaway_disqualified (guild_id, giveaway_id, user_id)
		VALUES ($1, 'running', $2), ($1, 'running', '8'), ($1, 'over', $2)`,
	`INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id, entries)
		VALUES ($1, 'running', $2, 4), ($1, 'running', '7', 1), ($1, 'over', $2, 1)`,
	`INSERT INTO giveaway_draws (guild_id, giveaway_id, round, seed, entries_hash, excluded, drawn, replaced, entry_count)
		VALUES ($1, 'over', 1, decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex'), ARRAY[$2], ARRAY[$2], ARRAY[$2], 0)`,
	`INSERT INTO tickets (guild_id, id, number, status, subject, opener_id,
		closed_by_id, close_reason, closed_at, claimed_by_id, channel_lock, metadata)
		VALUES ($1, 'own', 1, 'closed', 'help me', $2, $2, 'my words', now(), '8', jsonb_build_object('users', $2::text),
			jsonb_build_object('a', $2::text)),
		       ($1, 'other', 2, 'closed', 'another', '9', $2, 'as staff', now(), $2, NULL, '{}')`,
	`INSERT INTO ticket_messages (guild_id, ticket_id, id, kind, internal, author_id, author_type, content)
		VALUES ($1, 'own', 'open', 'open', false, $2, 'opener', ''), ($1, 'own', 'said', 'message', false, $2, 'opener', 'my words'),
		       ($1, 'own', 'answer', 'message', false, '8', 'staff', 'dear ' || $2::text),
			($1, 'own', 'close', 'close', false, $2, 'opener', 'my words'),
		       ($1, 'other', 'note', 'note', true, $2, 'staff', 'their words'),
			($1, 'other', 'done', 'close', false, $2, 'staff', 'as staff')`,
	`INSERT INTO chat_intents (guild_id, id, kind, subject_id, channel_id, content, author_id, nonce, state)
		VALUES ($1, 'waits', 'ticket_message', 'own', '1', 'my words', $2, 'n', 'pending'),
			($1, 'sent', 'ticket_message', 'own', '1', 'my words', $2, 'm', 'sent')`,
	`INSERT INTO bot_work (guild_id, id, kind, subject_id, intent_id, event_id, created_at, deadline, result)
		SELECT guild_id, nonce, 'post_message', subject_id, id, 'e-' || nonce, now(), now(), CASE WHEN state = 'sent' THEN 'done' END
		FROM chat_intents WHERE guild_id = $1 AND author_id = $2`,
	`INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at)
		SELECT guild_id, 'work', event_id, now() FROM bot_work WHERE guild_id = $1 AND result IS NULL AND $2 <> ''`,
}

// mayStay lists the columns in which a forgotten member's id stays, each with the reason. In all
// other columns, also of future tables, it must be gone.
var mayStay = map[string]string{
	"cases.moderator_id":        "what the member did as staff",
	"giveaways.host_id":         "what the member did as staff",
	"tickets.claimed_by_id":     "what the member did as staff",
	"tickets.closed_by_id":      "what the member did as staff",
	"ticket_messages.author_id": "what the member did as staff: entries of the system",
	"ticket_messages.content":   "texts of others that name the member",
	"giveaways.winners":         "winners",
	"giveaway_draws.excluded":   "records of draws",
	"giveaway_draws.drawn":      "records of draws",
	"giveaway_draws.replaced":   "records of draws",
	"giveaway_entries.user_id":  "frozen entries",
	"rank_moves.user_id":        "the maintainer adds it up within a second or so",
	"webhook_events.payload":    "the log of events ends by itself, after 30 days",
}

// holding returns all columns of all tables that contain a text, with the number of rows.
func holding(t *testing.T, d *db.DB, text string) map[string]int {
	t.Helper()
	columns, err := db.Select[struct {
		Table  string `db:"t"`
		Column string `db:"c"`
	}](t.Context(), d.Reader(), `
		SELECT c.relname::text AS t, a.attname::text AS c
		FROM pg_attribute a
		JOIN pg_class c ON c.oid = a.attrelid
		WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND a.attnum > 0 AND NOT a.attisdropped`)
	if err != nil || len(columns) < 200 {
		t.Fatalf("%d columns: %v", len(columns), err)
	}
	found := map[string]int{}
	for _, c := range columns {
		// Bytes are read as text, since payloads are UTF-8.
		n := dbtest.Value[int](t, d, `SELECT count(*)
			FROM `+c.Table+` WHERE position(convert_to($1, 'UTF8') IN convert_to(`+c.Column+`::text, 'UTF8')) > 0
			OR pg_typeof(`+c.Column+`) = 'bytea'::regtype AND `+c.Column+`::text LIKE '%' || encode(convert_to($1, 'UTF8'), 'hex') || '%'`, text)
		if n > 0 {
			found[c.Table+"."+c.Column] = n
		}
	}
	return found
}

// scene returns a database with two guilds that have all data of the member. An endpoint listens in
// the first guild.
func scene(t *testing.T) *db.DB {
	t.Helper()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, guild, beside)
	for _, g := range []string{guild, beside} {
		for _, statement := range everything {
			dbtest.Exec(t, d, statement, g, member)
		}
	}
	dbtest.Listen(t, d, guild, event.Types)
	found := holding(t, d, member)
	for column := range mayStay {
		delete(found, column)
	}
	if len(found) < 10 {
		t.Errorf("the scene has the member in these columns only that must not hold it for ever: %v", found)
	}
	return d
}

func forget(t *testing.T, d *db.DB, cases bool) {
	t.Helper()
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		_, err := removal.Forget(ctx, tx, auth.System(guild), member, cases)
		return err
	})
}

// rows returns all data of a guild except events and the audit log.
func rows(t *testing.T, d *db.DB, guild string) string {
	t.Helper()
	var all strings.Builder
	for _, table := range tables(t, d) {
		if table == "guilds" || strings.HasPrefix(table, "webhook_") {
			continue
		}
		fmt.Fprintln(&all, table, dbtest.Value[string](t, d, `
			SELECT coalesce(string_agg(r::text, '|' ORDER BY r::text), '') FROM `+table+` r WHERE guild_id = $1`, guild))
	}
	return all.String()
}

// Rows that are written together have instants a millisecond apart, so some are slightly ahead of
// the clock. They are deleted like others.
func TestWhatIsDatedAheadIsForgotten(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, guild)
	for _, statement := range []string{
		`INSERT INTO wallets (guild_id, user_id, balance, updated_at) VALUES ($1, $2, 2, now() + interval '500 ms')`,
		`INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note, created_at)
			SELECT $1, n::text, $2, 1, n, '', now() + n * interval '500 ms' FROM generate_series(0, 1) n`,
		`INSERT INTO tickets (guild_id, id, number, status, opener_id) VALUES ($1, 'other', 1, 'open', right($2, 1))`,
		`INSERT INTO ticket_messages (guild_id, ticket_id, id, kind, internal, author_id, author_type, content, created_at)
			VALUES ($1, 'other', 'said', 'message', false, $2, 'staff', 'my words', now() + interval '500 ms')`,
		`INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, source, created_at)
			VALUES ($1, 'about', 1, $2, '8', 'warn', 'about them', 'api', now() + interval '500 ms')`,
	} {
		dbtest.Exec(t, d, statement, guild, member)
	}
	forget(t, d, true)
	if err := removal.Members(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"ledger_entries", "ticket_messages", "cases"} {
		if n := dbtest.Value[int](t, d, `SELECT count(*) FROM `+table+` r WHERE r::text LIKE '%' || $1 || '%'`, member); n > 0 {
			t.Errorf("%d rows of %s still hold the member", n, table)
		}
	}
}

// A change of a member without a wallet may have read the clock before the request and commit after
// it. Its new wallet stays, and so does its ledger entry.
func TestAChangeThatARequestDoesNotSeeStaysWhole(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, guild)
	dbtest.Do(t, d, func(_ context.Context, tx *db.Tx) error {
		for _, statement := range []string{
			`INSERT INTO wallets (guild_id, user_id, balance, updated_at) VALUES ($1, $2, 5, clock_timestamp())`,
			`INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note, created_at)
				VALUES ($1, 'new', $2, 5, 5, '', clock_timestamp())`,
		} {
			if _, err := tx.ExecContext(t.Context(), statement, guild, member); err != nil {
				return err
			}
		}
		forget(t, d, true)
		return nil
	})
	if err := removal.Members(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	got := dbtest.Value[string](t, d, `SELECT concat((SELECT sum(balance) FROM wallets), ' ', (SELECT sum(delta) FROM ledger_entries))`)
	if got != "5 5" {
		t.Errorf("wallet and ledger hold %q", got)
	}
}

// RELIABILITY.md, Guilds.
func TestAMemberIsForgottenWhereverTheyStoodAndNowhereElse(t *testing.T) {
	t.Parallel()
	d := scene(t)
	before := rows(t, d, beside)
	forget(t, d, true)
	if err := removal.Members(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if after := rows(t, d, beside); after != before {
		t.Errorf("another guild had\n%s\nand has\n%s", before, after)
	}
	for _, statement := range []string{
		"giveaway_entries", "giveaway_draws", "giveaways", "rank_checkpoints", "rank_indexes", "ticket_messages", "tickets", "cases",
		"chat_intents", "bot_work", "stream_deliveries", "wallets", "ledger_entries", "levels", "members", "xp_moves", "xp_periods",
	} {
		dbtest.Exec(t, d, `DELETE FROM `+statement+` WHERE guild_id = $1`, beside)
	}
	for column, n := range holding(t, d, member) {
		if mayStay[column] == "" {
			t.Errorf("%s still holds the member, in %d rows", column, n)
		}
	}
	for query, want := range map[string]string{
		`SELECT count(*)::text FROM ledger_entries WHERE guild_id = $1`:                                    "1",
		`SELECT string_agg(author_id || counterparty_id, ' ') FROM ledger_entries WHERE guild_id = $1`:     "11",
		`SELECT string_agg(concat(users, deltas), ' ' ORDER BY deltas) FROM xp_moves WHERE guild_id = $1`:  "{}{} {7,8}{1,3} {9}{6}",
		`SELECT count(*)::text FROM ledger_references WHERE guild_id = $1`:                                 "3",
		`SELECT entrant_count || ' ' || entry_count FROM giveaways WHERE guild_id = $1 AND id = 'running'`: "1 1",
		`SELECT concat_ws(' ', subject, opener_id, closed_by_id, close_reason, metadata)
			FROM tickets WHERE guild_id = $1 AND id = 'own'`: "1 1 [removed] {}",
		`SELECT concat_ws(' ', subject, opener_id, close_reason)
			FROM tickets WHERE guild_id = $1 AND id = 'other'`: "another 9 as staff",
		`SELECT string_agg(id || ' ' || coalesce(author_id, 'null') || ' ' || content, ', ' ORDER BY id)
			FROM ticket_messages WHERE guild_id = $1`: "answer 8 dear " + member +
			", close null [removed], done " + member + " as staff, note null [removed], open null , said null [removed]",
		`SELECT string_agg(id || ' ' || content, ', ' ORDER BY id) FROM chat_intents WHERE guild_id = $1`:          "sent [removed]",
		`SELECT count(*)::text FROM stream_deliveries WHERE guild_id = $1`:                                         "0",
		`SELECT string_agg(concat(id, ' ', result), ', ' ORDER BY id) FROM bot_work WHERE guild_id = $1`:           "m done, n refused",
		`SELECT concat_ws(' ', status, user_id, reason, metadata) FROM cases WHERE guild_id = $1 AND id = 'about'`: "deleted 1  {}",
		`SELECT string_agg(concat_ws(' ', c.case_id, author_id, d ->> 'field', d ->> 'before', d ->> 'after'), ', ' ORDER BY c.case_id, at, n)
			FROM case_changes c, jsonb_array_elements(changes) WITH ORDINALITY AS e (d, n)
			WHERE guild_id = $1`: "about 1 type ban warn, about status active deleted, " +
			"by user_id 9 1, by reason  x, by user_id 1 9, by moderator_id 1 8",
		`SELECT string_agg(convert_from(payload, 'UTF8')::json ->> 'type', ' ')
			FROM webhook_events WHERE guild_id = $1`: "member.forgotten",
		`SELECT string_agg(action || ' ' || target_id, ' ')
			FROM audit_log WHERE guild_id = $1`: "member.forgotten ",
	} {
		if got := dbtest.Value[string](t, d, query, guild); got != want {
			t.Errorf("%s\nfinds %q, want %q", query, got, want)
		}
	}
}

func TestWithoutCasesThoseAboutTheMemberStay(t *testing.T) {
	t.Parallel()
	d := scene(t)
	forget(t, d, false)
	if err := removal.Members(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if got := dbtest.Value[string](t, d, `SELECT status || ' ' || user_id
		FROM cases WHERE guild_id = $1 AND id = 'about'`, guild); got != "active "+member {
		t.Errorf("the case is %s", got)
	}
}

// Rows that are inserted after the request are not deleted.
func TestWhatComesAfterTheRequestStays(t *testing.T) {
	t.Parallel()
	d := scene(t)
	forget(t, d, true)
	dbtest.Exec(t, d, `INSERT INTO wallets (guild_id, user_id, balance) VALUES ($1, $2, 5)`, guild, member)
	dbtest.Exec(t, d, `INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note)
		VALUES ($1, 'new', $2, 5, 5, '')`, guild, member)
	if err := removal.Members(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	got := dbtest.Value[string](t, d, `SELECT string_agg(id, ' ') || ' ' || (SELECT balance
			FROM wallets WHERE guild_id = $1 AND user_id = $2)
		FROM ledger_entries WHERE guild_id = $1 AND user_id = $2`, guild, member)
	if got != "new 5" {
		t.Errorf("wallet and ledger hold %q", got)
	}
}

// forgetEverywhere deletes the member's data in every guild, as the operation
// forgetMemberEverywhere does.
func forgetEverywhere(t *testing.T, d *db.DB) (at time.Time) {
	t.Helper()
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) (err error) {
		at, err = removal.ForgetEverywhere(ctx, tx, auth.By{}, nil, member, true)
		return err
	})
	return at
}

// emitted selects the number of member.forgotten events of each guild that has a listening
// endpoint.
const emitted = `
	SELECT coalesce(string_agg(guild_id || ' ' || n, ', ' ORDER BY guild_id), 'none')
	FROM (
		SELECT guild_id, count(*) AS n
		FROM webhook_events
		WHERE convert_from(payload, 'UTF8')::json ->> 'type' = 'member.forgotten'
		GROUP BY guild_id
	) e`

// RELIABILITY.md, Guilds.
func TestForgettingThatIsKilledIsContinuedAndToldOnce(t *testing.T) {
	t.Parallel()
	d := scene(t)
	dbtest.Listen(t, d, beside, event.Types)
	forgetEverywhere(t, d)
	for kills := 0; dbtest.Value[int](t, d, `SELECT count(*) FROM forgotten_members`) > 0; kills++ {
		ctx, kill := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(kills%40*(1+kills/40))*time.Millisecond, kill) // longer each time, so that the test ends on a slow machine
		if err := removal.Members(ctx, d); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		kill()
	}
	for column, n := range holding(t, d, member) {
		if mayStay[column] == "" {
			t.Errorf("%s still holds the member, in %d rows", column, n)
		}
	}
	if n := dbtest.Value[int](t, d, `SELECT count(*) FROM audit_log WHERE guild_id = '' AND action = 'member.forgotten'`); n != 1 {
		t.Errorf("the audit log has %d lines, want one", n)
	}
	if got, want := dbtest.Value[string](t, d, emitted), guild+" 1, "+beside+" 1"; got != want {
		t.Errorf("member.forgotten was emitted %s, want %s", got, want)
	}
}

// Every node runs the sweep, and one event is recorded. RELIABILITY.md, Guilds.
func TestSeveralNodesEmitOneEventForAForgottenMember(t *testing.T) {
	t.Parallel()
	d := scene(t)
	dbtest.Listen(t, d, beside, event.Types)
	for round := range 5 {
		for _, g := range []string{guild, beside} {
			dbtest.Exec(t, d, `INSERT INTO wallets (guild_id, user_id, balance) VALUES ($1, $2, 5) ON CONFLICT DO NOTHING`, g, member)
		}
		forgetEverywhere(t, d)
		var nodes errgroup.Group
		for range 4 {
			nodes.Go(func() error { return removal.Members(t.Context(), d) })
		}
		if err := nodes.Wait(); err != nil {
			t.Fatal(err)
		}
		if got, want := dbtest.Value[string](t, d, emitted), fmt.Sprintf("%s %d, %s %[2]d", guild, round+1, beside); got != want {
			t.Fatalf("member.forgotten was emitted %s after %d calls, want %s", got, round+1, want)
		}
	}
}

// Data that exists in any guild at the instant in the response is deleted; later data stays.
// RELIABILITY.md, Guilds.
func TestForgettingEverywhereEndsAtTheInstantOfItsAnswer(t *testing.T) {
	t.Parallel()
	d := scene(t)
	at := forgetEverywhere(t, d)
	for _, g := range []string{guild, beside} {
		for i, when := range []time.Time{at.Add(-time.Millisecond), at.Add(2 * time.Second)} {
			dbtest.Exec(t, d, `INSERT INTO ticket_messages (guild_id, ticket_id, id, kind, internal, author_id, author_type, content, created_at)
				VALUES ($1, 'other', 'at-' || $4::int, 'message', false, $2, 'staff', 'my words', $3)`, g, member, when, i)
		}
		dbtest.Exec(t, d, `INSERT INTO wallets (guild_id, user_id, balance) VALUES ($1, $2, 5)`, g, member)
		dbtest.Exec(t, d, `INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note)
			VALUES ($1, 'new', $2, 5, 5, '')`, g, member)
	}
	if err := removal.Members(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	for _, g := range []string{guild, beside} {
		got := dbtest.Value[string](t, d, `
			SELECT concat_ws(' ', (SELECT string_agg(id, ' ') FROM ticket_messages WHERE guild_id = $1 AND content = 'my words'),
				(SELECT balance FROM wallets WHERE guild_id = $1 AND user_id = $2),
				(SELECT string_agg(id, ' ') FROM ledger_entries WHERE guild_id = $1 AND user_id = $2))`, g, member)
		if got != "at-1 5 new" {
			t.Errorf("guild %s has %q of the member, want what came after the answer", g, got)
		}
	}
}

// A guild whose removal is scheduled may be restored, so it deletes the member's data like all
// others.
func TestAGuildThatLeavesForgetsWithAllOthers(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, guild)
	dbtest.Exec(t, d, `INSERT INTO wallets (guild_id, user_id, balance) VALUES ($1, $2, 2)`, guild, member)
	dbtest.Exec(t, d, `UPDATE guilds SET removed_at = now(), removed_after = now() + interval '7 days' WHERE id = $1`, guild)
	forgetEverywhere(t, d)
	if err := removal.Members(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if n := dbtest.Value[int](t, d, `SELECT count(*) FROM wallets`); n != 0 {
		t.Errorf("%d wallets are left", n)
	}
}

// If a rank index missed that a member is gone, everybody behind the member would be shown one rank
// too low, and rows would be on no page or on two.
func TestRanksAreExactAfterAMemberIsForgotten(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, guild)
	for _, insert := range []string{`INSERT INTO wallets (guild_id, user_id, balance) `, `INSERT INTO levels (guild_id, user_id, total_xp) `} {
		dbtest.Exec(t, d, insert+`SELECT $1, n::text, n FROM generate_series(1, 199) n UNION ALL SELECT $1, $2, 1000`, guild, member)
	}
	dbtest.Exec(t, d, `INSERT INTO rank_requests (guild_id, board) VALUES ($1, 'wallets'), ($1, 'levels')`, guild)
	k := &leaderboard.Maintainer{DB: d, Stretch: 10, Least: 50}
	maintain := func() {
		if err := k.Maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Eventually(t, "both leaderboards have rank indexes", func() bool {
		maintain()
		return dbtest.Value[int](t, d, `SELECT count(*) FROM rank_indexes WHERE state = 'live'`) == 2
	})
	forget(t, d, false)
	for range 2 { // before and after the move is added to the rank index
		for name, board := range map[string]leaderboard.Board{"wallets": leaderboard.Wallets, "levels": leaderboard.Levels} {
			place, err := board.Rank(t.Context(), d.Reader(), guild, "1", false)
			if want := (leaderboard.Place{Rank: 199, Points: 1, Of: 199}); err != nil || place != want {
				t.Errorf("the last of the %s stands at %+v, want %+v: %v", name, place, want, err)
			}
		}
		maintain()
	}
	if n := dbtest.Value[int](t, d, `SELECT count(*) FROM rank_indexes WHERE state = 'live'`); n != 2 {
		t.Errorf("%d rank indexes are left: the ranks were counted without one", n)
	}
}

// All deleted members share one placeholder id. A request for that id ends too, however many rows
// have it, and leaves them unchanged.
func TestWhoStandsForTheForgottenCanBeForgotten(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, guild)
	for _, statement := range []string{
		`INSERT INTO tickets (guild_id, id, number, status, opener_id, subject)
			SELECT $1, n::text, n, 'open', $2, CASE WHEN n = 1 THEN 'help me' END FROM generate_series(1, 10001) n`,
		`INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, source, status)
			SELECT $1, n::text, n, $2, '8', 'warn', CASE WHEN n = 1 THEN 'about them' ELSE '' END, 'api', 'deleted'
			FROM generate_series(1, 10001) n`,
	} {
		dbtest.Exec(t, d, statement, guild, "1")
	}
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		_, err := removal.Forget(ctx, tx, auth.System(guild), "1", true)
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := removal.Members(ctx, d); err != nil {
		t.Fatal(err)
	}
	got := dbtest.Value[string](t, d, `
		SELECT concat((SELECT count(*) FROM forgotten_members), ' ', (SELECT count(*) FROM tickets WHERE updated_at > created_at), ' ',
			(SELECT count(*) FROM tickets WHERE subject <> ''), ' ', (SELECT count(*) FROM cases WHERE updated_at > created_at), ' ',
			(SELECT count(*) FROM cases WHERE reason <> ''))`)
	if got != "0 1 0 1 0" {
		t.Errorf("requests left, tickets and cases written and still full: %s", got)
	}
}

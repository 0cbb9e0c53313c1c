package dashboard_test

import (
	"net/url"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/service/giveaways"
)

func escape(s string) string { return url.QueryEscape(s) }

// records gives a guild one record of each kind, about mara, with hostile text wherever text
// may stand, and returns the token that made them.
func (s *site) records(t testing.TB, guild string) auth.Token {
	t.Helper()
	token := s.makeToken(t, guild, func(n *auth.New) { n.Name = wrong[:20] })
	at := time.Now().Add(-time.Minute)
	for _, statement := range []string{
		`INSERT INTO members (guild_id, user_id, name, folded, avatar_url, joined_at, metadata)
		 VALUES ($1, $2, 'Mara ' || $3, 'mara', 'https://cdn.example.com/m.png', now(), jsonb_build_object('shop.customer', $3::text, $3, '1'))`,
		`INSERT INTO wallets (guild_id, user_id, balance) SELECT $1, $2, 500 WHERE $3 <> ''`,
		`INSERT INTO levels (guild_id, user_id, total_xp) SELECT $1, $2, 5000 WHERE $3 <> ''`,
		`INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, source, metadata)
		 VALUES ($1, 'case-' || $1, 12, $2, '5', 'warn', $3, 'api', jsonb_build_object('k', $3::text))`,
		`INSERT INTO case_changes (guild_id, case_id, at, origin, author_id, changes)
		 SELECT $1, 'case-' || $1, now() + n * interval '1 second', '{"type":"system","token_id":null,"key_id":null}', CASE n WHEN 1 THEN '5' END,
		        CASE n WHEN 0 THEN '[]' ELSE jsonb_build_array(jsonb_build_object(
			'field', 'metadata.' || $3, 'before', $3::text, 'after', $3 || $2)) END
		 FROM generate_series(0, 1) n`,
		`INSERT INTO tickets (guild_id, id, number, opener_id, subject, category, status, closed_at, close_reason, metadata)
		 VALUES ($1, 'ticket-' || $1, 12, $2, 'secret subject ' || $3, 'help', 'closed', now(), $3, jsonb_build_object('k', $3::text))`,
		`INSERT INTO giveaways (guild_id, id, status, prize, description, winner_count, winners, channel_id,
				starts_at, ends_at, ended_at, entrant_count, entry_count)
		 VALUES ($1, 'giveaway-' || $1, 'ended', $3, $3, 1, ARRAY[$2], '9', now(), now(), now(), 1, 3)`,
		`INSERT INTO giveaways (guild_id, id, status, prize, winner_count, winners, channel_id, starts_at, ends_at, post_problem, metadata)
		 VALUES ($1, 'running-' || $1, 'active', $3, 1, ARRAY[$2], '9', now(), now() + interval '1 day', 'deleted',
		         jsonb_build_object('k', $3::text))`,
		`INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id, entries) SELECT $1, 'giveaway-' || $1, $2, 3 WHERE $3 <> ''`,
		`INSERT INTO ticket_messages (guild_id, ticket_id, id, kind, internal, author_id, author_type, content,
				original_content, edited_at, attachments, created_at)
		 SELECT $1, 'ticket-' || $1, 'message-' || $1, 'message', false, $2, 'opener', 'what I wrote ' || $3, 'at first ' || $3, now(),
		        jsonb_build_array(jsonb_build_object('name', $3::text, 'url', 'https://files.example.net/a.png?x=1', 'size', 20480),
		                          jsonb_build_object('name', 'bad', 'url', 'javascript:alert(1)')), now() - interval '3 minutes'`,
		`INSERT INTO ticket_messages (guild_id, ticket_id, id, kind, internal, author_id, author_type, content, deleted_at, created_at)
		 VALUES ($1, 'ticket-' || $1, 'note-' || $1, 'note', true, '5', 'staff', 'between us ' || $2 || $3, NULL, now() - interval '2 minutes'),
		        ($1, 'ticket-' || $1, 'gone-' || $1, 'message', false, '5', 'staff', 'taken back ' || $3, now(), now() - interval '1 minute'),
		        ($1, 'ticket-' || $1, 'close-' || $1, 'close', false, NULL, 'system', $3, NULL, now())`,
	} {
		dbtest.Exec(t, s.DB, statement, guild, mara, wrong)
	}
	id := db.NewIDAt(at)
	dbtest.Exec(t, s.DB, `
		INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, reason, reference, note, created_at, author_id)
		VALUES ($1, $2, $3, 500, 500, $4, 'order-812', $5, $6, '5')`, guild, id, mara, wrong, "api:token="+token.ID, at)
	dbtest.Exec(t, s.DB, `INSERT INTO ledger_references (guild_id, reference, entry_id) VALUES ($1, 'order-812', $2)`, guild, id)
	return token
}

// things gives a guild one record of each kind, and an endpoint with a delivery that was tried and
// a refusal, and returns the ids by what stands before them in paths.
func (s *site) things(t testing.TB, guild string) map[string]string {
	t.Helper()
	token, entry := s.records(t, guild), s.entry(t, guild)
	dbtest.Exec(t, s.DB, `
		INSERT INTO webhook_endpoints (guild_id, id, url, description, events, secret, secret_preview)
		VALUES ($1, 'e-' || $1, 'https://receiver.example/', $2, '{economy.balance_changed}', '', 'whsec_...1234')`, guild, wrong)
	dbtest.Exec(t, s.DB, `
		INSERT INTO webhook_schedule (guild_id, endpoint_id, failing_since, blocked_until, failed_attempts, last_failure)
		VALUES ($1, 'e-' || $1, now(), now() + interval '1 hour', 1, jsonb_build_object(
			'at', now(), 'delivery_id', 'd-' || $1, 'status', 401, 'outcome', 'client_error', 'error', $2::text))`, guild, wrong)
	dbtest.Exec(t, s.DB, `
		INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload)
		SELECT $1, left($2, 18) || '-8000-000000000000', 'economy.balance_changed', created_at,
		       convert_to(jsonb_build_object('data', jsonb_build_object('ledger_entry_id', id, 'reason', $3::text))::text, 'UTF8')
		FROM ledger_entries WHERE guild_id = $1 AND id = $2`, guild, entry, wrong)
	dbtest.Exec(t, s.DB, `
		INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, event_type, state, fresh, attempts, response_class, error,
		                                completed_at)
		SELECT guild_id, 'd-' || $1, 'e-' || $1, id, type, 'failed', false, 1, '4xx', $2, now()
		FROM webhook_events WHERE guild_id = $1`, guild, wrong)
	dbtest.Exec(t, s.DB, `
		INSERT INTO webhook_attempts (guild_id, delivery_id, number, started_at, duration_ms, outcome, status, excerpt, error)
		VALUES ($1, 'd-' || $1, 1, now(), 41, 'client_error', 401, $2, $2)`, guild, wrong)
	dbtest.Exec(t, s.DB, `
		INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address, message)
		VALUES ($1, $2, now(), $2, 'listCases', 404, 'not_found', '203.0.113.9', $3)`, guild, token.ID, wrong)
	return map[string]string{
		"members": mara, "ledger": entry, "cases": "case-" + guild, "tickets": "ticket-" + guild, "giveaways": "giveaway-" + guild,
		"tokens": token.ID, "webhooks": "e-" + guild, "deliveries": "d-" + guild,
	}
}

// entry returns the id of the guild's one ledger entry.
func (s *site) entry(t testing.TB, guild string) string {
	t.Helper()
	return dbtest.Value[string](t, s.DB, `SELECT id FROM ledger_entries WHERE guild_id = $1`, guild)
}

// addMarcel adds a second member whose name begins like mara's.
func (s *site) addMarcel(t testing.TB) {
	t.Helper()
	dbtest.Exec(t, s.DB, `INSERT INTO members (guild_id, user_id, name, folded) VALUES ($1, '12', 'Marcel', 'marcel')`, guildID)
}

// listen has the endpoints listen to one type of events.
func (s *site) listen(t testing.TB, typ string) {
	t.Helper()
	dbtest.Exec(t, s.DB, `UPDATE webhook_endpoints SET events = ARRAY[$1]`, typ)
}

// settled waits until each delivery was attempted.
func (s *site) settled(t testing.TB) {
	t.Helper()
	testutil.Eventually(t, "each delivery was attempted", func() bool {
		return dbtest.Value[bool](t, s.DB, `SELECT count(*) > 0 AND min(attempts) > 0 FROM webhook_deliveries`)
	})
}

// drawn adds a giveaway whose draw can be repeated.
func (s *site) drawn(t testing.TB) {
	t.Helper()
	dbtest.Exec(t, s.DB, `
		INSERT INTO giveaways (guild_id, id, status, pot, prize, winner_count, channel_id, starts_at, ends_at, entrant_count, entry_count)
		VALUES ($1, 'g', 'drawing', 'frozen', 'A prize', 2, '9', now(), now(), 60, 60)`, guildID)
	dbtest.Exec(t, s.DB, `INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id) SELECT $1, 'g', (1000 + n)::text
			FROM generate_series(1, 60) n`, guildID)
	must(t, giveaways.Draw(t.Context(), s.DB, guildID, "g"))
}

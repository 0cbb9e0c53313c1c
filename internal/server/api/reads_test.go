package api_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

// crowd adds members, cases and listings to the guild.
func crowd(tb testing.TB, server *apitest.API, n int) {
	tb.Helper()
	statements := []string{
		`INSERT INTO levels (guild_id, user_id, total_xp)
		 SELECT '%[1]s', (100000 + i)::text, (i::bigint * 7919) %% 1000003 FROM generate_series(1, %[2]d) AS i`,
		`WITH added AS (
			INSERT INTO wallets (guild_id, user_id, balance)
			SELECT '%[1]s', (100000 + i)::text, 1 + (i::bigint * 7919) %% 1000003 FROM generate_series(1, %[2]d) AS i
			RETURNING user_id, balance)
		 INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note)
		 SELECT '%[1]s', 'ledger-' || user_id, user_id, balance, balance, 'import' FROM added`,
		`INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, status, source, created_at)
		 SELECT '%[1]s', 'case-' || i, i, (100000 + i %% 500)::text, '8', CASE WHEN i %% 9 = 0 THEN 'ban' ELSE 'warn' END,
		        'A reason of ordinary length, as moderators write them.', CASE WHEN i %% 7 = 0 THEN 'expired' ELSE 'active' END,
		        'bot', timestamptz '2026-01-01' + i * interval '1 minute'
		 FROM generate_series(1, %[2]d) AS i`,
		`INSERT INTO network_listings (user_id, trust_score, report_count, category, severity, first_reported_at, last_reported_at)
		 SELECT (100000 + i)::text, i %% 101, i, 'spam', 'low', now(), now() FROM generate_series(1, %[2]d) AS i`,
	}
	for i, statement := range statements {
		statements[i] = fmt.Sprintf(statement, server.Guild, n)
	}
	dbtest.Fill(tb, server.DB(), append(statements, `ANALYZE levels, wallets, ledger_entries, cases, network_listings`)...)
}

// A page of any length is sent with a Content-Length and not in chunks; HEAD returns the same
// length.
func TestAReadSaysItsLength(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	crowd(t, server, 100)
	for _, path := range []string{"/cases?per_page=100", "/cases?per_page=1", "/cases/none"} {
		for _, method := range []string{"GET", "HEAD"} {
			r := server.Raw(t, method, api.Prefix+path, "")
			length := r.Header.Get("Content-Length")
			if n, err := strconv.Atoi(length); err != nil || n < 10 || method == "GET" && n != len(r.Body) {
				t.Errorf("%s %s: the length of %d bytes is %q", method, path, len(r.Body), length)
			}
		}
	}
}

// BenchmarkReads measures reads over HTTPS from one client in a guild of 50,000 members. What a
// read costs more than /health is the cost of its query.
func BenchmarkReads(b *testing.B) {
	server := apitest.New(b)
	crowd(b, server, 50_000)
	for _, path := range []string{
		"/health",
		"/guild",
		"/guild/settings",
		"/cases/case-25000",
		"/cases",
		"/cases?page=400",
		"/cases?user_id=100042",
		"/cases?type=ban&status=expired",
		"/economy/wallet/125000",
		"/economy/leaderboard",
		"/levelling/user/125000",
		"/levelling/leaderboard",
		"/levelling/leaderboard?page=400",
		"/network/lookup/125000",
		"/network/lookup/42",
	} {
		b.Run(strings.TrimPrefix(path, "/"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				server.Raw(b, "GET", api.Prefix+path, "").Want(b, 200, "")
			}
		})
	}
}

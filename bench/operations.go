package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"guildhall/internal/leaderboard"
)

const guildID = "402187554310020096"

// operation is one thing to measure: the request to the server, and the same
// work as one statement for pgbench. A change of a store's SQL belongs here too.
// pgbench takes a colon before a letter for a variable, in strings as well.
type operation struct {
	name    string
	request func(*rand.Rand, []byte) []byte
	script  string
	goal    float64 // of the ratio with 8 clients; 0: none was set
	byHand  bool    // there is a hand-written handler to compare with
	once    bool    // measured with 8 clients only
}

// member is the id of the n-th member that was loaded, n from 1. The scripts
// compute the same.
func member(n int) int64 { return 100_000_000_000_000_000 + int64(n)*7919 }

const anyMember = `\set u 100000000000000000 + random(1, :wallets) * 7919
`

func operations(h *host) []operation {
	head := " HTTP/1.1\r\nHost: bench\r\nX-Forwarded-Proto: https\r\nAuthorization: Bearer " + h.token + "\r\n"
	get := func(path string) func(*rand.Rand, []byte) []byte {
		request := []byte("GET /api/v1" + path + head + "\r\n")
		return func(_ *rand.Rand, b []byte) []byte { return append(b, request...) }
	}
	getOf := func(path string) func(*rand.Rand, []byte) []byte {
		return func(r *rand.Rand, b []byte) []byte {
			b = append(append(b, "GET /api/v1"...), path...)
			b = strconv.AppendInt(b, member(1+r.IntN(h.wallets)), 10)
			return append(append(b, head...), "\r\n"...)
		}
	}
	post := func(path string, key bool, body func(*rand.Rand) string) func(*rand.Rand, []byte) []byte {
		return func(r *rand.Rand, b []byte) []byte {
			text := body(r)
			b = append(append(append(b, "POST /api/v1"...), path...), head...)
			if key {
				b = fmt.Appendf(b, "Idempotency-Key: %016x%016x\r\n", r.Uint64(), r.Uint64())
			}
			return fmt.Appendf(b, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		}
	}
	adjust := func(r *rand.Rand) string {
		return fmt.Sprintf(`{"user_id":"%d","delta":%d}`, member(1+r.IntN(h.wallets)), 1+r.IntN(40))
	}
	return []operation{
		{
			name: "getWallet", request: getOf("/economy/wallet/"), goal: 0.28, byHand: true,
			script: anyMember + `SELECT user_id, balance, updated_at FROM wallets WHERE guild_id = :guild AND user_id = :u;`,
		},
		{
			name: "leaderboard page 1", request: get("/economy/leaderboard"), goal: 0.22,
			script: `\set from 0
SELECT user_id, balance FROM wallets WHERE guild_id = :guild ORDER BY -balance, length(user_id), user_id LIMIT 26 OFFSET :from;`,
		},
		{
			name: "leaderboard page 4,000", request: get("/economy/leaderboard?page=" + strconv.Itoa(h.deepPage())),
			script: `\set from ` + strconv.Itoa((h.deepPage()-1)*25) + `
SELECT user_id, balance FROM wallets_after(:guild, :from, 26);`,
		},
		{
			name: "getEconomyRank", request: getOf("/economy/rank/"),
			script: anyMember + strings.NewReplacer("$1", ":guild", "$2", ":u").Replace(leaderboard.Wallets.Statement()) + ";",
		},
		{
			name: "adjustBalance", request: post("/economy/adjust", false, adjust), goal: 0.33,
			script: anyMember + `\set d random(1, 40)
` + adjustment + `
SELECT balance FROM moved;`,
		},
		{
			name: "adjustBalance with a key", request: post("/economy/adjust", true, adjust), goal: 0.28,
			script: anyMember + `\set d random(1, 40)
` + adjustment + `, kept AS (
	INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, state, status, body)
	SELECT :guild, 'bench', gen_random_uuid()::text, sha256(:u::text::bytea), 'done', 200,
	       convert_to('{"data":{"user_id":"' || :u::text || '","balance":' || balance || ',"updated_at":"' || now() ||
	       '","ledger_entry":{"id":"00000000-0000-0000-0000-000000000000","delta":' || :d::text || ',"note":"api: token=bench"}}}', 'UTF8')
	FROM moved
)
SELECT balance FROM moved;`,
		},
		{
			name: "listLedgerEntries", request: get("/economy/ledger"), once: true,
			script: `SELECT id, user_id, delta, balance_after, reason, note, created_at FROM ledger_entries
WHERE guild_id = :guild AND created_at >= '-infinity'::timestamptz ORDER BY created_at DESC, id DESC LIMIT 26;`,
		},
		{
			name: "getLevelRecord", request: getOf("/levelling/user/"), once: true,
			script: anyMember + `SELECT user_id, total_xp, previous_xp, updated_at FROM levels WHERE guild_id = :guild AND user_id = :u;`,
		},
		{
			name: "XP leaderboard page 1", request: get("/levelling/leaderboard"), once: true,
			script: `\set from 0
SELECT user_id, total_xp, previous_xp, updated_at FROM levels WHERE guild_id = :guild ORDER BY -total_xp, length(user_id), user_id LIMIT 26 OFFSET :from;`,
		},
		{
			name: "XP leaderboard page 4,000", request: get("/levelling/leaderboard?page=" + strconv.Itoa(h.deepPage())), once: true,
			script: `\set from ` + strconv.Itoa((h.deepPage()-1)*25) + `
SELECT user_id, total_xp, previous_xp, updated_at FROM levels_after(:guild, :from, 26);`,
		},
		{
			name: "adjustXp", request: post("/levelling/adjust", false, adjust), once: true,
			script: anyMember + `\set d random(1, 40)
UPDATE levels SET previous_xp = total_xp, total_xp = total_xp + :d::bigint, updated_at = greatest(clock_timestamp(), later(updated_at))
WHERE guild_id = :guild AND user_id = :u RETURNING user_id, total_xp, previous_xp, updated_at;`,
		},
		{
			name: "listCases", request: get("/cases?status=active&type=warn"), once: true,
			script: `SELECT guild_id, id, number, user_id, moderator_id, type, reason, status, expires_at, source, created_at, updated_at
FROM cases WHERE guild_id = :guild AND type = 'warn' AND status = 'active' ORDER BY created_at DESC, id DESC LIMIT 26;`,
		},
		{
			name: "createCase", once: true, request: post("/cases", false, func(r *rand.Rand) string {
				return fmt.Sprintf(`{"user_id":"%d","moderator_id":"7","type":"warn","reason":"measured"}`, member(1+r.IntN(h.wallets)))
			}),
			script: anyMember + `WITH next AS (
	UPDATE guilds SET last_case = last_case + 1, last_case_at = greatest(clock_timestamp(), later(last_case_at))
	WHERE id = :guild RETURNING last_case, last_case_at
), made AS (
	INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, status, source, created_at, updated_at)
	SELECT :guild, gen_random_uuid()::text, last_case, :u, '7', 'warn', 'measured', 'active', 'api', last_case_at, last_case_at FROM next
	RETURNING number, created_at
)
SELECT number FROM made, record_event(:guild, gen_random_uuid()::text, 'case.created', '{"type":"api"}',
	'{"number":' || number || ',"reason":"measured","source":"api","status":"active","type":"warn","user_id":"' || :u::text || '"}', created_at);`,
		},
		{
			name: "lookupNetworkUser", request: getOf("/network/lookup/"), once: true,
			script: anyMember + `SELECT user_id, trust_score, report_count, category, severity, first_reported_at, last_reported_at FROM network_listings WHERE user_id = :u;`,
		},
	}
}

// adjustment is the work of an adjustment as one statement: the balance check,
// the ledger row and the event.
const adjustment = `WITH changed AS (
	UPDATE wallets SET balance = balance + :d::bigint, updated_at = greatest(clock_timestamp(), later(updated_at))
	WHERE guild_id = :guild AND user_id = :u RETURNING balance, updated_at
), entered AS (
	INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note, created_at)
	SELECT :guild, gen_random_uuid()::text, :u, :d::bigint, balance, 'api:' || 'token=bench', updated_at FROM changed
), moved AS (
	SELECT balance FROM changed, record_event(:guild, gen_random_uuid()::text, 'economy.balance_changed',
		'{"type":"api","token_id":"bench"}', '{"user_id":"' || :u::text || '","balance":' || balance || ',"previous_balance":' || balance - :d::bigint ||
		',"delta":' || :d::text || ',"reason": null,"ledger_entry_id":"00000000-0000-0000-0000-000000000000"}', updated_at)
)`

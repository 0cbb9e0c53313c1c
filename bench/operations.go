package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"guildhall/internal/db"
	"guildhall/internal/event"
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
SELECT user_id, balance AS points FROM wallets WHERE guild_id = :guild ORDER BY -balance, length(user_id), user_id LIMIT 26 OFFSET :from;`,
		},
		{
			name: "leaderboard page 4,000", request: get("/economy/leaderboard?page=" + strconv.Itoa(h.deepPage())),
			script: `\set from ` + strconv.Itoa((h.deepPage()-1)*25) + `
` + page(leaderboard.Wallets) + `;`,
		},
		{
			name: "getEconomyRank", request: getOf("/economy/rank/"),
			script: anyMember + rank(leaderboard.Wallets) + ";",
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
SELECT user_id, total_xp AS points FROM levels WHERE guild_id = :guild ORDER BY -total_xp, length(user_id), user_id LIMIT 26 OFFSET :from;`,
		},
		{
			name: "XP leaderboard page 4,000", request: get("/levelling/leaderboard?page=" + strconv.Itoa(h.deepPage())), once: true,
			script: `\set from ` + strconv.Itoa((h.deepPage()-1)*25) + `
` + page(leaderboard.Levels) + `;`,
		},
		{
			name: "adjustXp", request: post("/levelling/adjust", false, adjust), once: true,
			script: anyMember + `\set d random(1, 40)
` + xpAdjustment + `;`,
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
	UPDATE guilds SET last_case = last_case + 1, last_case_at = ` + db.Next("last_case_at") + `
	WHERE id = :guild RETURNING last_case, last_case_at
), made AS (
	INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, status, source, created_at, updated_at)
	SELECT :guild, gen_random_uuid()::text, last_case, :u, '7', 'warn', 'measured', 'active', 'api', last_case_at, last_case_at FROM next
	RETURNING id, number, created_at
), ` + event.Telling{
				Rows: "made", Guild: ":guild", Type: "'" + event.CaseCreated + "'", ID: "made.id", At: "made.created_at",
				Payload: `'{"type":"case.created","origin":{"type":"api"},"data":{"number":' || made.number || ',"reason":"measured","source":"api","status":"active","type":"warn","user_id":"' || :u::text || '"}}'`,
			}.CTEs() + `
SELECT number FROM made;`,
		},
		{
			name: "lookupNetworkUser", request: getOf("/network/lookup/"), once: true,
			script: anyMember + `SELECT user_id, trust_score, report_count, category, severity, first_reported_at, last_reported_at FROM network_listings WHERE user_id = :u;`,
		},
	}
}

// adjustment is the work of an adjustment as one statement: the balance check,
// the ledger row, the note for the leaderboard and the event.
var adjustment = leaderboard.Wallets.Noted("moved", ":guild", func(note string) string {
	return `WITH changed AS (
	UPDATE wallets SET balance = balance + :d::bigint, updated_at = ` + db.Next("updated_at") + `
	WHERE guild_id = :guild AND user_id = :u RETURNING balance, updated_at, balance - :d::bigint AS was
), entered AS (
	INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note, created_at)
	SELECT :guild, gen_random_uuid()::text, :u, :d::bigint, balance, 'api:' || 'token=bench', updated_at FROM changed
), moved AS MATERIALIZED (
	SELECT gen_random_uuid()::text AS id, :u::text AS user_id, balance, updated_at, was, balance AS is_now FROM changed
), ` + note + `, ` + event.Telling{
		Rows: "moved", Guild: ":guild", Type: "'" + event.BalanceChanged + "'", ID: "moved.id", At: "moved.updated_at",
		Payload: `'{"id":"' || moved.id || '","type":"economy.balance_changed","timestamp":"' || moved.updated_at ||
		'","guild_id":"","api_version":"v1","origin":{"type":"api","token_id":"bench"},"data":{"user_id":"' || moved.user_id || '","balance":' || moved.balance ||
		',"previous_balance":' || moved.was || ',"delta":' || :d::text || ',"reason": null,"ledger_entry_id":"00000000-0000-0000-0000-000000000000"}}'`,
	}.CTEs()
}).For(0)

var xpAdjustment = leaderboard.Levels.Noted("moved", ":guild", func(note string) string {
	return `WITH moved AS (
	UPDATE levels SET previous_xp = total_xp, total_xp = total_xp + :d::bigint, updated_at = ` + db.Next("updated_at") + `
	WHERE guild_id = :guild AND user_id = :u RETURNING user_id, total_xp, previous_xp, updated_at, previous_xp AS was, total_xp AS is_now
), ` + note + `
SELECT user_id, total_xp, previous_xp, updated_at FROM moved`
}).For(0)

// page is the statement of a deep page of 25, and rank that of a member's place.
func page(b leaderboard.Board) string {
	_, deep, _ := b.Statements()
	return strings.NewReplacer("$1", ":guild", "$2", "26", "$3", ":from").Replace(deep)
}

func rank(b leaderboard.Board) string {
	_, _, text := b.Statements()
	return strings.NewReplacer("$1", ":guild", "$2", ":u").Replace(text)
}

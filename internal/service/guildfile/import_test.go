package guildfile_test

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/service/guildfile"
)

// everything is a guild file with two records of each kind: one has all JSON members, the other has
// only the required members.
//
//go:embed testdata/everything.jsonl
var everything string

func imported(t *testing.T, d *db.DB, file string) guildfile.Summary {
	t.Helper()
	sum, err := guildfile.Import(context.Background(), d, strings.NewReader(file), nil)
	if err != nil {
		t.Fatalf("import: %v", err)
	}
	return sum
}

func exported(t *testing.T, d *db.DB, guild string) string {
	t.Helper()
	var out bytes.Buffer
	if err := guildfile.Export(context.Background(), d, guild, &out); err != nil {
		t.Fatalf("export: %v", err)
	}
	return out.String()
}

func TestImportKeepsWhatItIsGivenAndFillsInTheRest(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	sum := imported(t, d, everything)
	if sum.Records != 22 || sum.Kinds["case"] != 2 || sum.Bytes != int64(len(everything)) {
		t.Errorf("summary is %+v", sum)
	}
	for _, c := range []struct{ query, want string }{
		{
			query: `SELECT concat_ws('|', name, owner_id, member_count, locale, joined_at = now())
				FROM guilds WHERE id = '2'`,
			want: "2|2|0|en-US|f",
		},
		{
			query: `SELECT concat_ws('|', name, owner_id, member_count, locale, joined_at AT TIME ZONE 'UTC', last_case, last_ticket)
				FROM guilds WHERE id = '1'`,
			want: "Lantern Street|77|12|de|2024-02-29 10:00:00|8|4",
		},
		{
			query: `SELECT concat_ws('|', moderation, economy, currency_symbol, require_close_reason, close_action, timezone)
				FROM guild_settings WHERE guild_id = '1'`,
			want: "t|f|⭐|t|delete|Europe/Berlin",
		},
		{
			query: `SELECT concat_ws('|', moderation, economy, currency_symbol, require_close_reason, close_action, timezone)
				FROM guild_settings WHERE guild_id = '2'`,
			want: "t|t|🪙|f|archive|UTC",
		},
		{
			query: `SELECT string_agg(concat_ws('|', number, type, status, source, reason, expires_at IS NULL), ' ; ' ORDER BY number)
				FROM cases`,
			want: `7|timeout|expired|dashboard|spam 🤖 "quoted" <b>|f ; 8|note|active|bot||t`,
		},
		{
			query: `SELECT string_agg(concat_ws('|', w.user_id, balance, delta, balance_after, note, reason IS NULL), ' ; ' ORDER BY w.user_id)
				FROM wallets w JOIN ledger_entries USING (guild_id, user_id)`,
			want: "42|9007199254740991|9007199254740991|9007199254740991|import|t ; 43|0|0|0|import|t",
		},
		{
			query: `SELECT bool_and(translate(left(id, 13), '-', '') = lpad(to_hex(floor(extract(epoch FROM created_at) * 1000)::bigint), 12, '0'))
				FROM ledger_entries`,
			want: "true",
		},
		{
			query: `SELECT string_agg(concat_ws('|', number, status, message_count, last_message_at IS NULL), ' ; ' ORDER BY number)
				FROM tickets`,
			want: "3|closed|2|f ; 4|open|0|t",
		},
		{
			query: `SELECT string_agg(concat_ws('|', kind, internal, author_type), ' ; ' ORDER BY kind, author_type)
				FROM ticket_messages`,
			want: "message|f|opener ; message|f|staff ; note|t|staff",
		},
		{
			query: `SELECT string_agg(
					concat_ws('|', id, status, winner_count, winners::text, entrant_count, entry_count, ends_at - starts_at), ' ; ' ORDER BY id)
				FROM giveaways`,
			want: "g-1|ended|2|{43,42}|2|4|1 day ; g-2|active|1|{}|0|0|7 days",
		},
		{
			query: `SELECT concat_ws('|', round, excluded::text, drawn::text, replaced::text, d.entry_count,
					token_id, reason, rounds)
				FROM giveaway_draws d JOIN giveaways g ON g.guild_id = d.guild_id AND g.id = giveaway_id`,
			want: "2|{}|{43}|{41}|3|t|Left.|2",
		},
		{
			query: `SELECT string_agg(concat_ws(' ', id, metadata), ' ; ' ORDER BY id)
				FROM (SELECT id, metadata FROM cases WHERE number = 7 UNION ALL SELECT id, metadata FROM tickets WHERE id = 't-1'
					UNION ALL SELECT id, metadata FROM giveaways) AS kept`,
			want: `case-a {"a": "<b>", "b": ""} ; g-1 {"g-1": "giveaway"} ; g-2 {} ; t-1 {"t.1": "ticket"}`,
		},
		{
			query: `SELECT concat_ws('|', user_id, trust_score, report_count, category, severity)
				FROM network_listings`,
			want: "666|3|12|scam|high",
		},
	} {
		if got := dbtest.Value[string](t, d, c.query); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.query, got, c.want)
		}
	}
}

func TestImportGoesOnFromAnEarlierImport(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	imported(t, d, everything)
	imported(t, d, `
{"record":"settings","guild_id":"2","tickets":{"require_close_reason":true}}
{"record":"case","guild_id":"1","user_id":"42","moderator_id":"77","type":"ban"}
{"record":"ticket_message","guild_id":"1","ticket_id":"t-1","content":"Thanks","created_at":"2023-01-01T00:00:00Z"}
{"record":"giveaway_entry","guild_id":"1","giveaway_id":"g-2","user_id":"42","entries":5}
`)
	for _, c := range []struct{ query, want string }{
		{
			query: `SELECT require_close_reason::text
				FROM guild_settings WHERE guild_id = '2'`,
			want: "true",
		},
		{
			query: `SELECT number::text
				FROM cases WHERE type = 'ban'`,
			want: "9",
		},
		{
			query: `SELECT concat_ws('|', message_count, extract(year FROM last_message_at) > 2023)
				FROM tickets WHERE id = 't-1'`,
			want: "3|t",
		},
		{
			query: `SELECT concat_ws('|', entrant_count, entry_count)
				FROM giveaways WHERE id = 'g-2'`,
			want: "1|5",
		},
	} {
		if got := dbtest.Value[string](t, d, c.query); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.query, got, c.want)
		}
	}
}

// An instant in the future becomes now when it is imported. Otherwise later changes of the row
// would have to be later still, and a program that copies lists by instant would miss everything
// before.
func TestImportBringsNothingFromTheFuture(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	imported(t, d, strings.ReplaceAll(strings.ReplaceAll(`
{"record":"guild","id":"1","joined_at":LATER,"created_at":LATER}
{"record":"settings","guild_id":"1","updated_at":LATER}
{"record":"wallet","guild_id":"1","user_id":"5","balance":1,"updated_at":LATER}
{"record":"level","guild_id":"1","user_id":"5","total_xp":1,"updated_at":LATER}
{"record":"case","guild_id":"1","user_id":"5","moderator_id":"6","type":"ban","created_at":LATER,"updated_at":LATER}
{"record":"ticket","guild_id":"1","id":"t","opener_id":"5","status":"closed","created_at":LATER,"updated_at":LATER,"closed_at":LATER}
{"record":"ticket_message","guild_id":"1","ticket_id":"t","content":"x","created_at":LATER}
{"record":"giveaway","guild_id":"1","id":"g","prize":"x","channel_id":"5","status":"ended",`+
		`"created_at":LATER,"updated_at":LATER,"ended_at":LATER}
{"record":"giveaway","guild_id":"1","id":"p","prize":"x","channel_id":"5","status":"paused","paused_at":LATER}
{"record":"giveaway_entry","guild_id":"1","giveaway_id":"g","user_id":"5","entered_at":LATER}
{"record":"disqualification","guild_id":"1","giveaway_id":"g","user_id":"6","disqualified_at":LATER}
{"record":"giveaway_draw","guild_id":"1","giveaway_id":"g","round":1,"seed":"HASH","entries_hash":"HASH","entry_count":0,"drawn_at":LATER}
{"record":"network_listing","user_id":"666","trust_score":3,"report_count":1,"category":"scam","severity":"high",`+
		`"first_reported_at":LATER,"last_reported_at":LATER}
`, "LATER", `"9999-12-31T23:59:59.999Z"`), "HASH", strings.Repeat("0", 64)))
	for table, columns := range map[string]string{
		"guilds": "joined_at, created_at", "guild_settings": "updated_at", "wallets": "updated_at", "ledger_entries": "created_at",
		"levels": "updated_at", "cases": "created_at, updated_at", "tickets": "created_at, updated_at, closed_at, last_message_at",
		"ticket_messages": "created_at", "giveaways": "created_at, updated_at, ended_at, paused_at",
		"giveaway_entries": "entered_at", "giveaway_draws": "drawn_at", "giveaway_disqualified": "disqualified_at",
		"network_listings": "first_reported_at, last_reported_at",
	} {
		if ok := dbtest.Value[bool](t, d, `SELECT max(greatest(`+columns+`)) <= now() FROM `+table); !ok {
			t.Errorf("%s: something lies ahead", table)
		}
	}
}

// However long an import takes, a reader that copies lists by instant finds its rows after what it
// already has: created and changed rows have the instant of the import's end, and past instants
// stay. RELIABILITY.md, Operation.
func TestWhatAnImportBringsBearsItsEnd(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	imported(t, d, `
{"record":"guild","id":"1"}
{"record":"ticket","guild_id":"1","id":"old ticket","opener_id":"5","created_at":"2020-01-01T00:00:00Z"}
{"record":"giveaway","guild_id":"1","id":"old giveaway","prize":"x","channel_id":"5","created_at":"2020-01-01T00:00:00Z"}
`)
	file, end := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := guildfile.Import(context.Background(), d, file, nil)
		done <- err
	}()
	// A first batch of 4 MiB is stored once the pipe has passed more than that and the reader's
	// buffer, so its rows are written before the end.
	more := `{"record":"ticket_message","guild_id":"1","ticket_id":"old ticket","created_at":PAST,"content":"` +
		strings.Repeat("x", 3500) + `"}` + "\n"
	if _, err := io.WriteString(end, strings.ReplaceAll(`
{"record":"wallet","guild_id":"1","user_id":"5","balance":1,"updated_at":PAST}
{"record":"level","guild_id":"1","user_id":"5","total_xp":1,"updated_at":PAST}
{"record":"case","guild_id":"1","user_id":"5","moderator_id":"6","type":"ban","reason":"old","created_at":PAST,"updated_at":PAST}
{"record":"case","guild_id":"1","user_id":"5","moderator_id":"6","type":"ban","reason":"new"}
{"record":"ticket","guild_id":"1","id":"t","opener_id":"5","created_at":PAST,"updated_at":PAST}
{"record":"giveaway","guild_id":"1","id":"g","prize":"x","channel_id":"5","created_at":PAST,"updated_at":PAST}
{"record":"ticket_message","guild_id":"1","ticket_id":"old ticket","content":"x","created_at":PAST}
{"record":"giveaway_entry","guild_id":"1","giveaway_id":"old giveaway","user_id":"5","entered_at":PAST}
`+strings.Repeat(more, 1700), "PAST", `"2020-01-01T00:00:00Z"`)); err != nil {
		t.Fatal(err)
	}
	before := dbtest.Value[time.Time](t, d, `SELECT clock_timestamp()`)
	if err := errors.Join(end.Close(), <-done); err != nil {
		t.Fatal(err)
	}
	// Until the end, the rows have an instant in the future.
	const dated = `min(updated_at) > $1 AND max(updated_at) <= clock_timestamp()`
	for _, query := range []string{
		`SELECT ` + dated + ` AND count(*) = 1 FROM wallets`, `SELECT ` + dated + ` FROM levels`,
		`SELECT min(created_at) > $1 AND max(created_at) <= clock_timestamp() AND count(*) = 1 FROM ledger_entries`,
		// An id contains the instant of its row.
		`SELECT $1::timestamptz IS NOT NULL AND bool_and(translate(left(id, 13), '-', '')
			= lpad(to_hex(floor(extract(epoch FROM created_at) * 1000)::bigint), 12, '0')) FROM ledger_entries`,
		`SELECT ` + dated + ` AND count(*) = 2 FROM cases`,
		`SELECT created_at > $1 AND created_at <= clock_timestamp() FROM cases WHERE reason = 'new'`,
		`SELECT ` + dated + ` AND count(*) = 2 FROM tickets`, `SELECT ` + dated + ` AND count(*) = 2 FROM giveaways`,
	} {
		if !dbtest.Value[bool](t, d, query, before) {
			t.Errorf("not at the end: %s", query)
		}
	}
	for _, query := range []string{
		`SELECT created_at FROM cases WHERE reason = 'old'`, `SELECT max(created_at) FROM tickets`, `SELECT max(created_at) FROM giveaways`,
		`SELECT max(created_at) FROM ticket_messages`, `SELECT entered_at FROM giveaway_entries`,
	} {
		if at := dbtest.Value[time.Time](t, d, query); at.UTC().Year() != 2020 {
			t.Errorf("of the past is now %v: %s", at, query)
		}
	}
}

// RELIABILITY.md, Operation.
func TestImportOfAnExportGivesTheSameExport(t *testing.T) {
	t.Parallel()
	from, to := dbtest.New(t).DB, dbtest.New(t).DB
	imported(t, from, everything)
	var demo bytes.Buffer
	if err := guildfile.Demo(&demo); err != nil {
		t.Fatal(err)
	}
	imported(t, from, demo.String())
	for _, guild := range []string{"1", "2", guildfile.DemoGuild} {
		first := exported(t, from, guild)
		imported(t, to, first)
		if first, second := unchanged(first), unchanged(exported(t, to, guild)); second != first {
			t.Errorf("guild %s: the second export differs:\n%s", guild, firstDifference(first, second))
		}
		if again := exported(t, from, guild); again != first {
			t.Errorf("guild %s: exporting twice differs:\n%s", guild, firstDifference(first, again))
		}
	}
	if err := guildfile.Export(context.Background(), from, "3", &bytes.Buffer{}); err == nil {
		t.Error("a guild that is not there was exported")
	}
}

// An export of a guild that is being deleted would be incomplete. Until the deletion begins all
// data exists.
func TestAGuildIsExportedUntilItIsBeingDeleted(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	imported(t, d, everything)
	whole := exported(t, d, "1")
	for _, day := range []string{"now() + interval '1 day'", "now()"} {
		dbtest.Exec(t, d, `UPDATE guilds SET removed_at = now(), removed_after = `+day+` WHERE id = '1'`)
		var out bytes.Buffer
		noted, err := guildfile.NoteExport(t.Context(), d, "1"), guildfile.Export(t.Context(), d, "1", &out)
		if gone := day == "now()"; fault.Is(noted, "guild_being_removed") != gone || fault.Is(err, "guild_being_removed") != gone ||
			!gone && (err != nil || out.String() != whole) || gone && out.Len() > 0 {
			t.Errorf("removed after %s: %v and %v, %d bytes of %d", day, noted, err, out.Len(), len(whole))
		}
	}
}

var updatedAt = regexp.MustCompile(`"updated_at":"[^"]*"`)

// unchanged returns an export without the instants of the last changes.
func unchanged(export string) string { return updatedAt.ReplaceAllString(export, `"updated_at":""`) }

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d\n  %s\n  %s", i+1, x[i], y[i])
		}
	}
	return fmt.Sprintf("%d and %d lines", len(x), len(y))
}

// RELIABILITY.md, Input.
func TestImportNamesTheLineAndKeepsNothing(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	imported(t, d, everything)
	imported(t, d, `{"record":"giveaway_entry","guild_id":"1","giveaway_id":"g-2","user_id":"42","entries":5}`)
	before := exported(t, d, "1")
	long := strings.Repeat("🙂", 1001)
	wallet := func(s string) string { return `{"record":"wallet","guild_id":"1","user_id":"50","balance":` + s + `}` }
	giveaway := func(s string) string {
		return `{"record":"giveaway","guild_id":"1","prize":"x","channel_id":"5",` + s + `}`
	}
	for name, c := range map[string]struct{ line, want string }{
		"too much metadata": {
			line: giveaway(`"metadata":{"a":"` + strings.Repeat("🙂", 500) + `","b":"` + strings.Repeat("🙂", 500) + `","c":"` +
				strings.Repeat("🙂", 500) +
				`","d":"` + strings.Repeat("🙂", 500) + `","e":"` + strings.Repeat("🙂", 500) + `"}`),
			want: "too_much_metadata: The metadata would be 10036 bytes of JSON; 8192 is the most.",
		},
		"metadata by another name": {
			line: giveaway(`"metadata":{"A":""}`),
			want: "metadata.A must have a name of 1 to 40 lower-case letters, digits, _, . and -",
		},
		"no JSON": {
			line: `{"record":`,
			want: "must be well-formed JSON",
		},
		"an array": {
			line: `[]`,
			want: "not a JSON object",
		},
		"two objects": {
			line: `{"record":"wallet"}{}`,
			want: "one JSON value and nothing after it",
		},
		"no kind": {
			line: `{"guild_id":"1"}`,
			want: `no member "record"`,
		},
		"an unknown kind": {
			line: `{"record":"walet"}`,
			want: `no record kind "walet"`,
		},
		"an unknown member": {
			line: `{"record":"wallet","guild_id":"1","user_id":"50","balance":1,"bank":2}`,
			want: "wallet: bank is not a member",
		},
		"a nested unknown": {
			line: `{"record":"settings","guild_id":"2","levelling":{"curve":{"cubic":1}}}`,
			want: "settings: levelling.curve.cubic is not a member",
		},
		"another curve": {
			line: `{"record":"settings","guild_id":"2","levelling":{"curve":{"base":99}}}`,
			want: "levelling.curve.base must be 100",
		},
		"a member twice": {
			line: `{"record":"wallet","guild_id":"1","guild_id":"1","user_id":"50","balance":1}`,
			want: "wallet: guild_id must be given once",
		},
		"a missing member": {
			line: `{"record":"wallet","guild_id":"1","balance":1}`,
			want: "wallet: user_id is required",
		},
		"a null": {
			line: wallet(`null`),
			want: "wallet: balance must be an integer",
		},
		"a fraction": {
			line: wallet(`1.0`),
			want: "without fraction",
		},
		"an exponent": {
			line: wallet(`1e3`),
			want: "without fraction",
		},
		"a string": {
			line: wallet(`"1"`),
			want: "must be an integer",
		},
		"below zero": {
			line: wallet(`-1`),
			want: "balance must be an integer, at least 0, at most 9007199254740991",
		},
		"above the limit": {
			line: wallet(`9007199254740992`),
			want: "balance must be an integer, at least 0, at most 9007199254740991",
		},
		"beyond 64 bits": {
			line: wallet(`92233720368547758080`),
			want: "balance must be an integer, at least 0, at most 9007199254740991",
		},
		"a leading zero": {
			line: `{"record":"wallet","guild_id":"1","user_id":"050","balance":1}`,
			want: "user_id must be a snowflake",
		},
		"21 digits": {
			line: `{"record":"wallet","guild_id":"1","user_id":"100000000000000000000","balance":1}`,
			want: "user_id must be a snowflake",
		},
		"foreign digits": {
			line: `{"record":"wallet","guild_id":"1","user_id":"١٢","balance":1}`,
			want: "user_id must be a snowflake",
		},
		"a missing guild": {
			line: `{"record":"wallet","guild_id":"9","user_id":"50","balance":1}`,
			want: "guild 9 is neither",
		},
		"a wallet again": {
			line: `{"record":"wallet","guild_id":"1","user_id":"42","balance":1}`,
			want: "wallet in this guild already",
		},
		"a guild again": {
			line: `{"record":"guild","id":"1"}`,
			want: "guild with this id exists",
		},
		"settings again": {
			line: `{"record":"settings","guild_id":"1"}`,
			want: "has settings already",
		},
		"a level again": {
			line: `{"record":"level","guild_id":"1","user_id":"42","total_xp":1}`,
			want: "level record in this guild already",
		},
		"a case id again": {
			line: `{"record":"case","guild_id":"1","user_id":"1","moderator_id":"1","type":"ban","id":"case-a"}`,
			want: "case with this id exists",
		},
		"a case number again": {
			line: `{"record":"case","guild_id":"1","user_id":"1","moderator_id":"1","type":"ban","number":7}`,
			want: "case with this number",
		},
		"a ticket again": {
			line: `{"record":"ticket","guild_id":"1","opener_id":"1","id":"t-1"}`,
			want: "ticket with this id exists",
		},
		"a message again": {
			line: `{"record":"ticket_message","guild_id":"1","ticket_id":"t-1","content":"x","id":"m-1"}`,
			want: "message with this id exists",
		},
		"a giveaway again": {
			line: giveaway(`"id":"g-1"`),
			want: "giveaway with this id exists",
		},
		"a late entry": {
			line: `{"record":"giveaway_entry","guild_id":"1","giveaway_id":"g-1","user_id":"50"}`,
			want: `giveaway "g-1" of guild 1 is being drawn or has been`,
		},
		"an entry again": {
			line: `{"record":"giveaway_entry","guild_id":"1","giveaway_id":"g-2","user_id":"42"}`,
			want: "entered this giveaway already",
		},
		"a draw again": {
			line: `{"record":"giveaway_draw","guild_id":"1","giveaway_id":"g-1","round":2,` +
				`"seed":"` + strings.Repeat("0", 64) + `","entries_hash":"` + strings.Repeat("0", 64) + `","entry_count":0}`,
			want: "draw of this round already",
		},
		"a short seed": {
			line: `{"record":"giveaway_draw","guild_id":"1","giveaway_id":"g-1","round":3,"seed":"00","entries_hash":"00","entry_count":0}`,
			want: "seed must have at least 64 characters",
		},
		"a listing again": {
			line: `{"record":"network_listing","user_id":"666","trust_score":3,"report_count":1,"category":"scam","severity":"high",` +
				`"first_reported_at":"2023-01-01T00:00:00Z","last_reported_at":"2024-01-01T00:00:00Z"}`,
			want: "listed already",
		},
		"too many entries": {
			line: `{"record":"giveaway_entry","guild_id":"1","giveaway_id":"g-2","user_id":"50","entries":9007199254740988}`,
			want: "over 9007199254740991",
		},
		"another guild's id": {
			line: `{"record":"ticket_message","guild_id":"2","ticket_id":"t-1","content":"x"}`,
			want: `ticket "t-1" of guild 2 is neither`,
		},
		"a missing giveaway": {
			line: `{"record":"giveaway_entry","guild_id":"1","giveaway_id":"g-9","user_id":"42"}`,
			want: `giveaway "g-9" of guild 1 is neither`,
		},
		"an unknown type": {
			line: `{"record":"case","guild_id":"1","user_id":"1","moderator_id":"1","type":"hug"}`,
			want: `type must be one of ["note","warn"`,
		},
		"an id of 65": {
			line: `{"record":"case","guild_id":"1","user_id":"1","moderator_id":"1","type":"ban","id":"` + strings.Repeat("x", 65) + `"}`,
			want: "id must have at most 64",
		},
		"an empty id": {
			line: `{"record":"case","guild_id":"1","user_id":"1","moderator_id":"1","type":"ban","id":""}`,
			want: "id must have at least 1",
		},
		"a long reason": {
			line: `{"record":"case","guild_id":"1","user_id":"1","moderator_id":"1","type":"ban","reason":"` + long + `"}`,
			want: "reason must have at most 1000 characters",
		},
		"a blank reason": {
			line: `{"record":"case","guild_id":"1","user_id":"1","moderator_id":"1","type":"ban","reason":" \u200b\u2003"}`,
			want: "not blank",
		},
		"U+0000": {
			line: `{"record":"case","guild_id":"1","user_id":"1","moderator_id":"1","type":"ban","reason":"a\u0000"}`,
			want: "U+0000",
		},
		"half a pair": {
			line: `{"record":"case","guild_id":"1","user_id":"1","moderator_id":"1","type":"ban","reason":"\ud83e"}`,
			want: "surrogate",
		},
		"broken UTF-8": {
			line: "{\"record\":\"case\",\"guild_id\":\"1\",\"user_id\":\"1\",\"moderator_id\":\"1\",\"type\":\"ban\",\"reason\":\"\xff\"}",
			want: "must be valid UTF-8",
		},
		"no such date": {
			line: `{"record":"wallet","guild_id":"1","user_id":"50","balance":1,"updated_at":"2023-02-30T00:00:00Z"}`,
			want: "updated_at must be an existing RFC 3339",
		},
		"no offset": {
			line: `{"record":"wallet","guild_id":"1","user_id":"50","balance":1,"updated_at":"2023-02-03T00:00:00"}`,
			want: "updated_at must be an existing RFC 3339",
		},
		"a leap second": {
			line: `{"record":"wallet","guild_id":"1","user_id":"50","balance":1,"updated_at":"2016-12-31T23:59:60Z"}`,
			want: "updated_at must be an existing RFC 3339",
		},
		"an end before start": {
			line: giveaway(`"starts_at":"2024-01-02T00:00:00Z","ends_at":"2024-01-01T00:00:00Z"`),
			want: "ends_at must lie after",
		},
		"winners too early": {
			line: giveaway(`"winners":["42"]`),
			want: "winners belong only",
		},
		"a winner twice": {
			line: giveaway(`"status":"ended","winners":["42","42"]`),
			want: "winners must not repeat an item",
		},
		"closed while open": {
			line: `{"record":"ticket","guild_id":"1","opener_id":"1","closed_at":"2024-01-01T00:00:00Z"}`,
			want: "closed_at belongs only",
		},
		"a public note": {
			line: `{"record":"ticket_message","guild_id":"1","ticket_id":"t-1","content":"x","kind":"note","internal":false}`,
			want: "internal must be true for notes",
		},
		"too long a line": {
			line: `{"record":"` + strings.Repeat("x", 2<<20) + `"}`,
			want: "longer than 1048576 bytes",
		},
		"too deep": {
			line: `{"record":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`,
			want: "nest deeper",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good := `{"record":"guild","id":"4"}` + "\n" + `{"record":"wallet","guild_id":"1","user_id":"49","balance":5}` + "\n"
			more := `{"record":"guild","id":"2"}` + "\n" // this line is wrong too, but comes later
			_, err := guildfile.Import(context.Background(), d, strings.NewReader(good+c.line+"\n"+more), nil)
			var at *guildfile.LineError
			if !errors.As(err, &at) || at.Line != 3 || !strings.Contains(err.Error(), "line 3: ") || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want line 3 and %q", err, c.want)
			}
			if after := exported(t, d, "1"); after != before {
				t.Errorf("something was kept: %s", firstDifference(before, after))
			}
			if n := dbtest.Value[string](t, d, `SELECT count(*)::text FROM guilds`); n != "2" {
				t.Errorf("%s guilds after the failed import", n)
			}
		})
	}
}

// A batch locks its guilds with one statement, however many there are.
func TestABatchOfManyGuildsTakesAsManyStatementsAsOfOne(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	var sent atomic.Int64
	link := dbtest.NewJudgedLink(t, base.URL, func([]byte) dbtest.Fate { sent.Add(1); return dbtest.Pass })
	through := dbtest.Open(t, link.URL).DB
	round := 0
	statements := func(guilds int) int64 {
		var ids []string
		var file strings.Builder
		for i := range guilds {
			ids = append(ids, fmt.Sprintf("%d%02d", round+1, i))
			fmt.Fprintf(&file, `{"record":"reference","guild_id":"%s","reference":"old"}`+"\n", ids[i])
		}
		round++
		dbtest.AddGuilds(t, base.DB, ids...)
		before := sent.Load()
		imported(t, through, file.String())
		return sent.Load() - before
	}
	statements(1) // prepares the statements
	if one, many := statements(1), statements(40); many > one+2 {
		t.Errorf("they take %d statements for forty guilds, %d for one", many, one)
	}
}

// A reference may only point to an earlier line.
func TestImportRefusesAReferenceToALaterLine(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	_, err := guildfile.Import(context.Background(), d, strings.NewReader(
		`{"record":"wallet","guild_id":"1","user_id":"5","balance":1}`+"\n"+`{"record":"guild","id":"1"}`), nil)
	if err == nil || !strings.Contains(err.Error(), "line 1: wallet: guild 1 is neither") {
		t.Fatalf("got %v", err)
	}
}

// The first wrong line is named, even if a later one is noticed first.
func TestImportNamesTheEarlierOfTwoLines(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	_, err := guildfile.Import(context.Background(), d, strings.NewReader(
		`{"record":"guild","id":"1"}`+"\n"+`{"record":"wallet","guild_id":"8","user_id":"5","balance":1}`+"\n"+`{"record":"nonsense"}`), nil)
	if err == nil || !strings.Contains(err.Error(), "line 2: ") {
		t.Fatalf("got %v", err)
	}
}

// Postgres may refuse a row many records later; the error still names the right line.
func TestImportNamesTheLineOfALateRefusal(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	var file strings.Builder
	file.WriteString(`{"record":"guild","id":"1"}` + "\n")
	for i := range 40_000 {
		n := i
		if i == 38_000 {
			n = 17
		}
		fmt.Fprintf(&file, `{"record":"wallet","guild_id":"1","user_id":"%d","balance":1}`+"\n", 1000+n)
	}
	_, err := guildfile.Import(context.Background(), d, strings.NewReader(file.String()), nil)
	if err == nil || !strings.Contains(err.Error(), "line 38002: wallet: this user has a wallet") {
		t.Fatalf("got %v", err)
	}
	if n := dbtest.Value[string](t, d, `SELECT count(*)::text FROM wallets`); n != "0" {
		t.Errorf("%s wallets were kept", n)
	}
}

// With -benchtime=1000000x this measures the documented import of a million wallets.
func BenchmarkImportWallets(b *testing.B) {
	d := dbtest.New(b).DB
	r, w := io.Pipe()
	go func() {
		out := bufio.NewWriter(w)
		fmt.Fprintln(out, `{"record":"guild","id":"1"}`)
		for i := range b.N {
			fmt.Fprintf(out, `{"record":"wallet","guild_id":"1","user_id":"%d","balance":%d}`+"\n", 100000000000000000+int64(i)*7919, i*7919%1000003)
		}
		w.CloseWithError(out.Flush())
	}()
	b.ResetTimer()
	if _, err := guildfile.Import(context.Background(), d, r, nil); err != nil {
		b.Fatal(err)
	}
}

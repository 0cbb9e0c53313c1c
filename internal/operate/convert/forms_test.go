package convert

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// dated converts one case with an instant and returns its created_at.
func dated(t *testing.T, o Options, cell string) (string, error) {
	t.Helper()
	o.From, o.Record, o.Guild = "csv", "case", g1
	r := of(t, o, "a.csv", "user,type,moderator,time\n"+ada+",warn,"+mo+",\""+cell+"\"\n")
	return wordAfter(r.out, `"created_at":"`), r.err
}

func TestDaysAreReadAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	for _, zone := range []struct {
		name   string
		offset int // hours before UTC on 2024-03-01
	}{{"UTC", 0}, {"Europe/Berlin", 1}, {"America/New_York", -5}} {
		for cell, hour := range map[string]int{
			"2024-03-01": 0, "2024/03/01": 0, "2024-3-1": 0, "2024-03-01 10:00": 10, "2024-03-01T10:00": 10, "01.03.2024 10:00": 10, "1.3.2024": 0,
			"Mar 1, 2024": 0, "Mar 01 2024": 0, "1 March 2024": 0, "march 1, 2024 10:00": 10, "2024-03-01 1:30 PM": 13, "2024-03-01 12:15 am": 0,
			"2024-03-01 9:05": 9,
		} {
			at, err := dated(t, Options{Timezone: zone.name}, cell)
			want := fmt.Sprintf("T%02d:", (hour-zone.offset+24)%24)
			if err != nil || !strings.Contains(at, want) {
				t.Errorf("%s in %s became %q, want %s: %v", cell, zone.name, at, want, err)
			}
		}
		for _, cell := range []string{"<t:1709287200:f>", "<t:1709287200>", "1709287200", "2024-03-01T10:00:00Z", "2024-03-01 12:00+02:00"} {
			if at, err := dated(t, Options{Timezone: zone.name}, cell); err != nil || at != "2024-03-01T10:00:00Z" {
				t.Errorf("%s in %s became %q: %v", cell, zone.name, at, err)
			}
		}
	}
}

// Every form of an instant is read alike in an hour that a change of clocks has twice,
// which is the earlier one, and in one that it leaves out, which moves on.
func TestAChangeOfClocksHasOneReading(t *testing.T) {
	t.Parallel()
	forms := map[string]string{ // by --dates
		"2006-01-02 15:04": "", "2006-1-2 15:04": "", "2006-01-02T15:04": "", "2006-01-02 15:04:05": "", "2006/01/02 15:04": "",
		"02.01.2006 15:04": "", "2.1.2006 15:04": "", "Jan 2, 2006 15:04": "", "Jan 02 2006 15:04": "", "2 January 2006 15:04": "",
		"2006-01-02 3:04 PM": "", "02/01/2006 15:04": "dmy", "1/2/2006 15:04": "mdy",
	}
	for _, c := range []struct{ zone, local, want string }{
		{"Europe/Berlin", "2023-10-29 02:30", "2023-10-29T00:30:00Z"}, // twice
		{"Europe/Berlin", "2023-10-29 03:30", "2023-10-29T02:30:00Z"},
		{"Europe/Berlin", "2024-03-31 02:30", "2024-03-31T01:30:00Z"}, // left out: 03:30
		{"Europe/Berlin", "2024-03-31 03:30", "2024-03-31T01:30:00Z"},
		{"America/New_York", "2023-11-05 01:30", "2023-11-05T05:30:00Z"}, // twice
		{"America/New_York", "2024-03-10 02:30", "2024-03-10T07:30:00Z"}, // left out: 03:30
		{"UTC", "2024-03-31 02:30", "2024-03-31T02:30:00Z"},
	} {
		local, err := time.Parse("2006-01-02 15:04", c.local)
		if err != nil {
			t.Fatal(err)
		}
		for form, dates := range forms {
			cell := local.Format(form)
			if at, err := dated(t, Options{Timezone: c.zone, Dates: dates}, cell); err != nil || at != c.want {
				t.Errorf("%s in %s became %q, want %s: %v", cell, c.zone, at, c.want, err)
			}
		}
	}
	// A day begins where its first hour is left out.
	for _, cell := range []string{"2018-11-04", "2018/11/04", "4.11.2018", "Nov 4, 2018", "Nov 04 2018", "4 November 2018"} {
		if at, err := dated(t, Options{Timezone: "America/Sao_Paulo"}, cell); err != nil || at != "2018-11-04T03:00:00Z" {
			t.Errorf("%s became %q: %v", cell, at, err)
		}
	}
}

func TestTheOrderOfADayIsNeverGuessed(t *testing.T) {
	t.Parallel()
	for _, cell := range []string{"03/01/2024", "3/1/2024 10:00", "13/01/2024"} {
		_, err := dated(t, Options{}, cell)
		for _, has := range []string{"--dates dmy", "--dates mdy", cell} {
			if err == nil || !strings.Contains(err.Error(), has) {
				t.Errorf("%s: %v", cell, err)
			}
		}
	}
	for order, want := range map[string]string{"dmy": "2024-01-03T00:00:00Z", "mdy": "2024-03-01T00:00:00Z"} {
		if at, err := dated(t, Options{Dates: order}, "03/01/2024"); err != nil || at != want {
			t.Errorf("%s: %q, want %s: %v", order, at, want, err)
		}
	}
	if _, err := dated(t, Options{Dates: "mdy"}, "13/01/2024"); err == nil || !strings.Contains(err.Error(), "must be a date and time") {
		t.Errorf("a month 13: %v", err)
	}
}

func TestASmallNumberIsASpreadsheetsDayOrNoInstant(t *testing.T) {
	t.Parallel()
	if at, err := dated(t, Options{Timezone: "Europe/Berlin"}, "45352.41"); err != nil || at != "2024-03-01T08:50:24Z" {
		t.Errorf("a spreadsheet's day became %q: %v", at, err)
	}
	for _, cell := range []string{"0", "7", "19999", "80001", "2024", "99999999", "-5"} {
		if at, err := dated(t, Options{}, cell); err == nil || !strings.Contains(err.Error(), "is no date") {
			t.Errorf("%s became %q: %v", cell, at, err)
		}
	}
}

func TestAnEndThatNeverComesHasManyWords(t *testing.T) {
	t.Parallel()
	expires := func(head, cells string) string {
		r := of(t, Options{From: "csv", Record: "case", Guild: g1}, "a.csv",
			"user,type,moderator,date,"+head+"\n"+ada+",ban,"+mo+",2024-05-01,"+cells+"\n")
		r.ok(t)
		return wordAfter(r.out, `"expires_at":"`)
	}
	endless := []string{"", "0", "-", "–", "n/a", "none", "Never", "PERMANENT", "perma", "forever", "Infinite"}
	for _, word := range endless {
		if at := expires("until", word); at != "" {
			t.Errorf("%q ends at %s", word, at)
		}
		if at := expires("duration", word); at != "" {
			t.Errorf("a length of %q ends at %s", word, at)
		}
	}
	for i, word := range endless {
		name := filepath.Join(t.TempDir(), strconv.Itoa(i))
		if err := os.WriteFile(name, []byte("user_id,type,expires_at\n"+ada+",mute,"+word+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r := of(t, Options{From: "csv", Record: "case", Guild: g1, InForce: name}, "a.csv", "user,type,date\n"+ada+",mute,2024-05-01\n")
		if r.ok(t); wordAfter(r.out, `"status":"`) != "active" || strings.Contains(r.out, "expires_at") {
			t.Errorf("in force until %q: %s", word, r.out)
		}
	}
	for cells, want := range map[string]string{
		",3600": "2024-05-01T01:00:00Z", ",1h30m": "2024-05-01T01:30:00Z", ",1w 1d 2h 30m": "2024-05-09T02:30:00Z",
		"-,90S":         "2024-05-01T00:01:30Z",
		"2030-01-01,1h": "2030-01-01T00:00:00Z", "never,1h": "",
	} {
		if at := expires("until,duration", cells); at != want {
			t.Errorf("%s ends at %q, want %q", cells, at, want)
		}
	}
	r := of(t, Options{From: "csv", Record: "case", Guild: g1}, "a.csv", "user,type,date,duration\n"+ada+",ban,2024-05-01,soon\n")
	if r.err == nil || !strings.Contains(r.err.Error(), `column "duration": must be a number of seconds or a length`) {
		t.Errorf("a length that is none: %v", r.err)
	}
}

// spellings are three ways to write a kind of case, whose words stand apart by a dash.
func spellings(kind string) []string {
	with := func(mark string) string { return strings.ReplaceAll(kind, "-", mark) }
	return []string{with(""), strings.ToUpper(with("_")), with(" ") + " "}
}

func TestAKindOfCaseIsReadInAnySpelling(t *testing.T) {
	t.Parallel()
	for want, kinds := range map[string][]string{
		"ban": {"ban", "banned", "temp-ban", "temp-banned", "hack-ban", "force-ban"}, "mute": {"mute", "muted", "temp-mute", "temp-muted"},
		"timeout": {"time-out", "timed-out"}, "warn": {"warn", "warned", "warning"}, "kick": {"kick", "kicked", "soft-ban", "soft-banned"},
		"note": {"note", "noted"},
	} {
		for _, kind := range slices.Concat(kinds, []string{"-" + want + "-"}) {
			for _, cell := range spellings(kind) {
				r := of(t, Options{From: "csv", Record: "case", Guild: g1}, "a.csv", "user,type,moderator\n"+ada+","+cell+","+mo+"\n")
				r.ok(t)
				if changed := len(r.report.Changed) > 0; wordAfter(r.out, `"type":"`) != want || changed != strings.HasPrefix(kind, "soft") {
					t.Errorf("%q is a %s: %v", cell, wordAfter(r.out, `"type":"`), r.report.Changed)
				}
			}
		}
	}
	for began, kinds := range map[string][]string{
		"ban": {"un-ban", "un-banned"}, "mute": {"un-mute", "un-muted", "untime-out"}, "timeout": {"un-muted", "untime-out", "timeout-removed"},
	} {
		for _, kind := range kinds {
			for _, cell := range spellings(kind) {
				r := of(t, Options{From: "csv", Record: "case", Guild: g1}, "a.csv", "user,type,moderator,date,until\n"+
					ada+","+began+","+mo+",2024-01-01,2030-01-01\n"+ada+","+cell+","+mo+",2024-02-01,\n")
				if r.ok(t); wordAfter(r.out, `"status":"`) != "revoked" || strings.Count(r.out, "\n") != 2 {
					t.Errorf("%q after a %s: %s", cell, began, r.out)
				}
			}
		}
	}
	rows := "user,type,moderator,date\n" + ada + ",ban," + mo + ",2024-01-01\n" + ada + ",set free," + mo + ",2024-02-01\n"
	r := of(t, Options{From: "csv", Record: "case", Guild: g1, CaseTypes: []string{"Set-Free=unban"}}, "a.csv", rows)
	if r.ok(t); wordAfter(r.out, `"status":"`) != "revoked" || strings.Count(r.out, "\n") != 2 {
		t.Errorf("a kind that ends a ban: %s", r.out)
	}
}

func TestANumberWithTwoReadingsAsksForItsDecimals(t *testing.T) {
	t.Parallel()
	wallet := func(o Options, separator, cell string) result {
		o.From, o.Record, o.Guild = "csv", "wallet", g1
		return of(t, o, "a.csv", "user"+separator+"coins\n"+ada+separator+cell+"\n")
	}
	for _, cell := range []string{"1.250", `"1.250"`, "12,5", "-1,250"} {
		if r := wallet(Options{}, ";", cell); r.err == nil || !strings.Contains(r.err.Error(), "--decimal , or --decimal .") {
			t.Errorf("%s: %v", cell, r.err)
		}
	}
	for cell, want := range map[string][2]int64{ // with --decimal . and with --decimal ,
		"1.250": {1, 1250}, "12,5": {-1, 12}, `"1,250"`: {1250, 1}, "1 250": {1250, 1250}, "1\u00a0250": {1250, 1250}, "1\u202f250": {1250, 1250},
		`"2.500,00"`: {-1, 2500}, `"2,500.00"`: {2500, -1}, "1250": {1250, 1250},
	} {
		for i, decimal := range []string{".", ","} {
			r := wallet(Options{Decimal: decimal}, ";", cell)
			if (r.err != nil) != (want[i] < 0) {
				t.Errorf("%s by %s: %v", cell, decimal, r.err)
			} else if r.err == nil {
				same(t, cell+" by "+decimal, r.ok(t), walletLine(ada, want[i]))
			}
		}
	}
	same(t, "a table of commas", wallet(Options{}, ",", "1.250").ok(t), walletLine(ada, 1))
	r := of(t, Options{From: "csv", Record: "case", Guild: g1, Decimal: ","}, "a.csv", "user;type;date\n"+ada+";warn;45352,41\n")
	if r.ok(t); wordAfter(r.out, `"created_at":"`) != "2024-03-01T09:50:24Z" {
		t.Errorf("a spreadsheet's day: %s", r.out)
	}
}

func TestNoFormatMixesGuilds(t *testing.T) {
	t.Parallel()
	const other = "500000000000000099"
	files := map[string]func(guild string) string{
		"mee6":          func(g string) string { return `{"players":[{"id":"` + ada + `","xp":1,"guild_id":"` + g + `"}]}` },
		"unbelievaboat": func(g string) string { return `[{"user_id":"` + ada + `","cash":1,"bank":1,"guild_id":"` + g + `"}]` },
		"lurkr": func(g string) string {
			return `{"guild":{"id":"` + g + `"},"levels":[{"userId":"` + ada + `","xp":1,"level":0}]}`
		},
		"tatsu": func(g string) string {
			return `{"guild_id":"` + g + `","rankings":[{"user_id":"` + ada + `","score":1}]}`
		},
		"modmail": func(g string) string { return strings.ReplaceAll(thread("a", `"messages":[]`), g1, g) },
		"discord-tickets": func(g string) string {
			return zipped(t, `{"originalGuildId":"`+g+`"}`, "tickets.jsonl", oneTicket)
		},
		"dyno": func(g string) string {
			return `{"logs":[{"_id":"a","server":"` + g + `","caseNum":1,"type":"Warn","user":{"id":"` + ada + `"},` +
				`"createdAt":"2021-04-15T10:00:00Z"}],"pageCount":1}`
		},
		"tickets-bot": func(g string) string {
			return zipped(t, "", "data.json", `{"guild_id":"`+g+`","tickets":[`+
				`{"id":1,"user_id":"`+ada+`","open":false,"open_time":"2024-01-01T00:00:00Z"}]}`)
		},
		"ticket-tool": func(g string) string {
			return ticketPage(`{"id":"`+g+`"}`, ticketToolMessage("1201000000000000001", ada, false, "Hello"))
		},
		"csv":  func(g string) string { return "server,user,coins\n" + g + "," + ada + ",1\n" },
		"json": func(g string) string { return `[{"guildId":"` + g + `","userId":"` + ada + `","coins":1}]` },
	}
	for _, f := range formats {
		if slices.Contains(f.flags, "source-guild") && !f.manyGuilds && files[f.name] == nil {
			t.Errorf("%s may name a guild, and no file of another is tried", f.name)
		}
	}
	for from, file := range files {
		o := Options{From: from, Guild: g1, Record: cond(from == "csv" || from == "json", "wallet", "")}
		if r := of(t, o, "a", file(g1)); r.err != nil || strings.Count(r.out, "\n") < 2 {
			t.Errorf("%s: our own guild: %v", from, r.err)
		}
		if r := of(t, o, "a", file(other)); r.err == nil || !strings.Contains(r.err.Error(), "is of guild "+other+", and --guild says "+g1) {
			t.Errorf("%s: another guild: %v, %s", from, r.err, r.out)
		}
		o.SourceGuild = other
		if r := of(t, o, "a", file(other)); r.err != nil || strings.Count(r.out, "\n") < 2 || strings.Contains(r.out, other) {
			t.Errorf("%s: a guild that has moved: %v, %s", from, r.err, r.out)
		}
	}
}

// In the files of a whole bot --guild chooses. What belongs to other guilds is counted and
// no loss; a file of other guilds alone is an error.
func TestAFileOfAWholeBotHoldsOtherGuilds(t *testing.T) {
	t.Parallel()
	const other = "500000000000000099"
	wallet := func(g string) string { return `"` + g + `":{"` + ada + `":{"balance":1}}` }
	files := map[string]func(parts ...string) string{
		"red": func(parts ...string) string {
			return `{"384734293238749":{"MEMBER":{` + strings.Join(parts, ",") + "}}}"
		},
		"json": func(parts ...string) string { return "{" + strings.Join(parts, ",") + "}" },
	}
	for from, file := range files {
		o := Options{From: from, Guild: g1, Strict: true}
		if from == "json" {
			o.Record, o.Path = "wallet", "/{guild}/{user}"
		}
		r := of(t, o, "a.json", file(wallet(g1), wallet(other)))
		same(t, from, r.ok(t), walletLine(ada, 1))
		if r.report.OtherGuilds[other] != 1 {
			t.Errorf("%s: passed over are %v", from, r.report.OtherGuilds)
		}
		if r := of(t, o, "a.json", file(wallet(other))); r.err == nil || !strings.Contains(r.err.Error(), "names guild "+other+" and not "+g1) {
			t.Errorf("%s: other guilds alone: %v", from, r.err)
		}
	}
	o := Options{From: "discord-giveaways", Guild: g1, Strict: true}
	foreign := strings.Replace(giveaway("2", ""), g1, other, 1)
	r := of(t, o, "a.json", "["+giveaway("1", "")+","+foreign+"]")
	if r.ok(t); strings.Count(r.out, "\n") != 2 || r.report.OtherGuilds[other] != 1 {
		t.Errorf("discord-giveaways: %s, passed over are %v", r.out, r.report.OtherGuilds)
	}
	if r := of(t, o, "a.json", "["+foreign+"]"); r.err == nil || !strings.Contains(r.err.Error(), "names guild "+other+" and not "+g1) {
		t.Errorf("discord-giveaways: other guilds alone: %v", r.err)
	}
}

func TestARowWithoutAGuildAmongOthersIsAnError(t *testing.T) {
	t.Parallel()
	const head = "guild,user,coins\n"
	for _, rows := range []string{g1 + "," + ada + ",1\n," + bo + ",2\n", "," + bo + ",2\n" + g1 + "," + ada + ",1\n"} {
		r := of(t, Options{From: "csv", Record: "wallet", Guild: g1}, "a.csv", head+rows)
		if r.err == nil || !strings.Contains(r.err.Error(), "names no guild, and others do") {
			t.Errorf("%s: %v", rows, r.err)
		}
	}
	of(t, Options{From: "csv", Record: "wallet", Guild: g1}, "a.csv", head+","+ada+",1\n").ok(t)
}

func TestTheRowsOfOtherGuildsAreCountedAndNoLoss(t *testing.T) {
	t.Parallel()
	const other = "500000000000000099"
	r := of(t, Options{From: "csv", Record: "wallet", Guild: g1, SourceGuild: g1, Strict: true}, "a.csv",
		"guild,user,coins\n"+g1+","+ada+",1\n"+other+","+bo+",2\n"+other+","+cy+",3\n")
	same(t, "ours", r.ok(t), walletLine(ada, 1))
	var printed strings.Builder
	if err := r.report.Print(&printed); err != nil {
		t.Fatal(err)
	}
	if r.report.OtherGuilds[other] != 2 || !strings.Contains(printed.String(), "2  of guild "+other) {
		t.Errorf("passed over are %v: %s", r.report.OtherGuilds, printed.String())
	}
}

func TestAnAnswerThatRefusesIsNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"message":"You are being rate limited.","retry_after":1}`: `is an answer that refuses ("You are being rate limited."); fetch it again`,
		`{"error":"Unauthorized","status":401}`:                     `is an answer that refuses ("Unauthorized"); fetch it again`,
		"<!doctype html><title>Sign in</title>":                     "is a page (HTML)",
		"INSERT INTO users VALUES (1);":                             "is SQL",
		"SQLite format 3\x00\x10":                                   "is a database of SQLite",
		`[{"id":"` + ada + `","name":"ada","joined":1}]`: "holds a list of objects with id, name, joined; " +
			"--from json reads any: --path /#",
	} {
		for _, from := range []string{"lurkr", "zeppelin", "dyno"} {
			if r := of(t, Options{From: from, Guild: g1}, "a", text); r.err == nil || !strings.Contains(r.err.Error(), want) {
				t.Errorf("%s, read as %s: %v", text, from, r.err)
			}
		}
	}
}

func TestItemsOfAnyJSONAreFound(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a list":             `[{"id":"` + ada + `","coins":7}]`,
		"a document a line":  `{"_id":{"$oid":"65a000000000000000000001"},"userId":"` + ada + `","money":{"$numberLong":"7"}}`,
		"by key":             `{"` + ada + `":{"coins":7},"shop":[1]}`,
		"numbers by key":     `{"` + ada + `":7}`,
		"a list in a member": `{"ok":true,"users":[{"user":{"id":"` + ada + `"},"coins":7}]}`,
		"by key in a member": `{"version":2,"wallets":{"` + ada + `":7}}`,
		"by guild":           `{"` + g1 + `":{"` + ada + `":{"cash":4,"bank":3}},"500000000000000099":{"` + bo + `":{"cash":1,"bank":1}}}`,
	} {
		same(t, name, of(t, Options{From: "json", Record: "wallet", Guild: g1}, "a.json", text).ok(t), walletLine(ada, 7))
	}
	r := of(t, Options{From: "json", Record: "case", Guild: g1}, "a.json",
		`[{"id":"a7","user":{"id":"`+ada+`"},"mod":{"id":"`+mo+`"},"action":"warn"},`+
			`{"user":{"id":"`+bo+`"},"moderator":{"id":"`+mo+`"},"action":"ban","number":4},{"user":{"id":"`+cy+`"},"type":"kick"}]`)
	r.ok(t)
	for _, id := range []string{`"id":"json-a7"`, `"id":"json-4"`, `"id":"json-row-3"`} {
		if !strings.Contains(r.out, id) {
			t.Errorf("there is no %s in %s", id, r.out)
		}
	}
	r = of(t, Options{From: "json", Record: "wallet", Guild: g1}, "a.json",
		`[{"id":"`+ada+`","coins":7},{"id":"`+ada+`","coins":7},{"id":"`+bo+`","coins":1}]`)
	same(t, "the same twice", r.ok(t), walletLine(ada, 7)+walletLine(bo, 1))
	wants(t, r.report.LeftOut, "came twice", 1)
	r = of(t, Options{From: "json", Record: "wallet", Guild: g1}, "a.json", `[{"id":"`+ada+`","coins":7},`+"\n"+`{"id":"`+ada+`","coins":8}]`)
	if r.err == nil || !strings.Contains(r.err.Error(), "line 2: /1/id: member "+ada+" comes twice") {
		t.Errorf("two that differ: %v", r.err)
	}
}

func TestTheNewestOpenTicketKeepsItsChannel(t *testing.T) {
	t.Parallel()
	open := func(key, at string) string {
		closed := thread(key, `"channel_id":"1201000000000000000","messages":[]`)
		return strings.NewReplacer("2024-02-03 04:05:06", at, `"open":false`, `"open":true`).Replace(closed)
	}
	r := of(t, Options{From: "modmail"}, "a.json",
		open("a", "2024-02-03 04:05:01")+open("b", "2024-02-03 04:05:30")+open("c", "2024-02-03 04:05:10"))
	r.ok(t)
	for _, line := range strings.Split(strings.TrimSpace(r.out), "\n")[1:] {
		if has := strings.Contains(line, "channel_id"); has != strings.Contains(line, `"modmail-b"`) {
			t.Errorf("%s", line)
		}
	}
	wants(t, r.report.Changed, "is open in the channel of a newer ticket", 2)
}

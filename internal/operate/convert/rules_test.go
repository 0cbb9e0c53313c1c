package convert

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const g1 = "500000000000000001"

// levelLine and the functions below return expected lines of a guild file.
func levelLine(user string, xp int64) string {
	return fmt.Sprintf(`{"record":"level","guild_id":"%s","user_id":"%s","total_xp":%d}`+"\n", g1, user, xp)
}

func walletLine(user string, balance int64) string {
	return fmt.Sprintf(`{"record":"wallet","guild_id":"%s","user_id":"%s","balance":%d}`+"\n", g1, user, balance)
}

// player returns one player of a leaderboard.
func player(id string, xp any) string { return fmt.Sprintf(`{"id":%s,"xp":%v,"level":0}`, id, xp) }

func players(list ...string) string {
	return `{"guild":{"id":"` + g1 + `"},"players":[` + strings.Join(list, ",") + `]}`
}

func quoted(s string) string { return `"` + s + `"` }

// why finds a finding by a part of its reason; nil if there is none.
func why(list []*Finding, part string) *Finding {
	for _, f := range list {
		if strings.Contains(f.Why, part) {
			return f
		}
	}
	return nil
}

// wants fails the test unless the reason was counted count times.
func wants(t *testing.T, list []*Finding, part string, count int64) *Finding {
	t.Helper()
	f := why(list, part)
	switch {
	case f == nil && count > 0:
		t.Fatalf("nothing %q is reported", part)
	case f != nil && f.Count != count:
		t.Errorf("%q is counted %d times, not %d", part, f.Count, count)
	}
	return f
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got\n%s\nwant\n%s", what, got, want)
	}
}

func TestIdsAreReadAsDigitsAndNeverAsFloatingNumbers(t *testing.T) {
	t.Parallel()
	r := of(t, Options{From: "mee6"}, "a.json", players(player("190320984123768833", 1), player(quoted("18446744073709551615"), 2), player(
		`" `+bo+` "`, 3)))
	same(t, "ids", r.ok(t), levelLine("190320984123768833", 1)+levelLine("18446744073709551615", 2)+levelLine(bo, 3))
	for id, want := range map[string]string{
		`1.90321E+17`:             "it is 1.90321E+17: the digits are lost; export again with the column as text",
		`190320984123768832.0`:    "the digits are lost",
		`"1.90321e17"`:            "the digits are lost",
		`"1,90321E+17"`:           "the digits are lost",
		`"ada"`:                   `must be an id of digits; it is "ada"`,
		`-5`:                      "must be an id of digits; it is -5",
		`"012"`:                   "must be an id of digits",
		`"18446744073709551616"`:  "must be an id of digits",
		`true`:                    "must be an id of digits; it is true",
		`{}`:                      "must be an id of digits; it is an object",
		`"190320984123768832.5a"`: "must be an id of digits",
		`"9.5.1"`:                 "must be an id of digits",
		`2E17`:                    "it is 2E17: the digits are lost",
	} {
		r := of(t, Options{From: "mee6"}, "a.json", players(player(id, 1)))
		if r.err == nil || !strings.Contains(r.err.Error(), "a.json: line 1: /players/0/id: ") || !strings.Contains(r.err.Error(), want) {
			t.Errorf("%s: %v, want %q", id, r.err, want)
		} else if strings.Contains(r.err.Error(), "lost") != strings.Contains(want, "lost") {
			t.Errorf("%s: %v", id, r.err)
		}
	}
}

// RELIABILITY.md, Input.
func TestTwentyIdsThatAllEndInZeroAreRefusedAndOneThatDoesNotLetsThemIn(t *testing.T) {
	t.Parallel()
	round := func(n int) (list []string) {
		for i := range n {
			list = append(list, player(quoted(fmt.Sprintf("1903209841237%04d0", i)), 1))
		}
		return list
	}
	const refusal = "these ids have been rounded"
	r := of(t, Options{From: "mee6", Guild: g1}, "a.json", players(round(20)...))
	if r.err == nil || !strings.Contains(r.err.Error(), refusal) || !strings.Contains(r.err.Error(), "a.json: line 1: /players/0/id: ") {
		t.Errorf("20 rounded ids: %v", r.err)
	}
	for name, list := range map[string][]string{
		"nineteen":          round(19),
		"one that is exact": append(round(25), player(quoted(ada), 1)),
		"one that is first": append([]string{player(quoted(ada), 1)}, round(25)...),
		"the same, again":   append(round(19), round(19)...),
		"with a short id":   append(round(19), player(quoted("12345678901234560"), 1), player(quoted("123456789012340"), 1)),
	} {
		if r := of(t, Options{From: "mee6", Guild: g1}, "a.json", players(list...)); r.err != nil {
			t.Errorf("%s: %v", name, r.err)
		}
	}
}

func TestNobodyIsNoMember(t *testing.T) {
	t.Parallel()
	for _, id := range []string{`"0"`, `0`, `""`, `" "`, `"default"`, `3553`, `"3553"`, `null`} {
		r := of(t, Options{From: "mee6"}, "a.json", players(player(id, 1), player(quoted(ada), 7)))
		same(t, id, r.ok(t), levelLine(ada, 7))
		wants(t, r.report.LeftOut, "about nobody", 1)
		if !strings.Contains(r.lost, `"path":"/players/0"`) || !strings.Contains(r.lost, `"xp":1`) {
			t.Errorf("%s: what was left out is %s", id, r.lost)
		}
	}
	// A missing moderator is replaced by --moderator, or by the guild's id.
	r := of(t, Options{From: "zeppelin", Guild: g1, Moderator: mo}, "a.json", zeppelinCases(zeppelinCase(1, 4, ada, "null",
		"2023-01-01 00:00:00")))
	if !strings.Contains(r.ok(t), `"moderator_id":"`+mo+`"`) {
		t.Errorf("got %s", r.out)
	}
	wants(t, r.report.Changed, "has no moderator", 1)
}

func TestXPAndCoinsBecomeWholeNumbersThatARecordCanHold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		xp   string
		want int64
		why  string
	}{
		{`12`, 12, ""},
		{`12.0`, 12, ""},
		{`1.2e3`, 1200, ""},
		{`"34"`, 34, ""},
		{`0`, 0, ""},
		{`9007199254740991`, maxWhole, ""},
		{`12.9`, 12, "fraction"},
		{`-1`, 0, "below 0"},
		{`-0.5`, 0, "below 0"},
		{`9007199254740992`, maxWhole, "above"},
		{
			`1e400`, maxWhole,
			"above",
		},
		{`1e-400`, 0, "fraction"},
		{`-1e400`, 0, "below 0"},
		{`0e999999999`, 0, ""},
		{`1e999999999`, maxWhole, "above"},
		{
			`1e-999999999`, 0,
			"fraction",
		},
		{`99999999999999999999`, maxWhole, "above"},
	} {
		r := of(t, Options{From: "mee6"}, "a.json", players(player(quoted(ada), c.xp)))
		same(t, c.xp, r.ok(t), levelLine(ada, c.want))
		if c.why == "" {
			if !r.report.Clean() {
				t.Errorf("%s: changed %v", c.xp, r.report.Changed)
			}
			continue
		}
		f := wants(t, r.report.Changed, c.why, 1)
		if shown := fmt.Sprint(f.First[0].Value); shown != strings.Trim(c.xp, `"`) {
			t.Errorf("%s: the report says it was %s", c.xp, shown)
		}
		if !strings.Contains(r.lost, `"value":`+c.xp) {
			t.Errorf("%s: what was changed is %s", c.xp, r.lost)
		}
	}
	for _, xp := range []string{`"12k"`, `null`, `true`, `""`, `"Infinity"`, `"1,250"`, `[1]`, `"0x10"`, `"1_000"`, `"1/2"`} {
		r := of(t, Options{From: "mee6"}, "a.json", players(player(quoted(ada), xp)))
		if r.err == nil || !strings.Contains(r.err.Error(), "/players/0/xp: must be a whole number; it is ") {
			t.Errorf("%s: %v", xp, r.err)
		}
	}
}

func TestAPocketMayBeWithoutABottom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cash, bank, balance string
		want                int64
		changed             string
	}{
		{`1200`, `50`, "", 1250, ""},
		{`1200`, `50`, "total", 1250, ""},
		{`1200`, `50`, "cash", 1200, ""},
		{`1200`, `50`, "bank", 50, ""},
		{`-300`, `100`, "", 0, "below 0"},
		{`-300`, `100`, "bank", 100, ""},
		{`-300`, `400`, "", 100, ""},
		{`"Infinity"`, `0`, "", maxWhole, "above"},
		{`null`, `5`, "", maxWhole, "above"},
		{`"Infinity"`, `-5`, "bank", 0, "below 0"},
		{`"-Infinity"`, `5`, "", 0, "below 0"},
		{`0.75`, `0.75`, "", 0, "fraction"},
		{`9007199254740991`, `1`, "", maxWhole, "above"},
		{`-5`, `"Infinity"`, "", maxWhole, "above"},
	} {
		file := fmt.Sprintf(`[{"user_id":%q,"cash":%s,"bank":%s,"total":77}]`, ada, c.cash, c.bank)
		r := of(t, Options{From: "unbelievaboat", Guild: g1, Balance: c.balance}, "a.json", file)
		what := c.cash + " and " + c.bank + " by " + c.balance
		same(t, what, r.ok(t), walletLine(ada, c.want))
		if c.changed == "" {
			if len(r.report.Changed) > 0 {
				t.Errorf("%s: changed %v", what, r.report.Changed[0])
			}
		} else if wants(t, r.report.Changed, c.changed, 1); !strings.Contains(r.lost, `"cash":`+c.cash) {
			t.Errorf("%s: what was changed is %s", what, r.lost)
		}
	}
}

func TestThousandsStandApartInTablesAndInQuotesOnly(t *testing.T) {
	t.Parallel()
	for cell, want := range map[string]int64{
		`"1,250"`: 1250, `"1,234,567"`: 1234567, `"12,345.0"`: 12345, `1250`: 1250, ` 12 `: 12,
		`"-1,250"`: 0,
	} {
		r := of(t, Options{From: "csv", Record: "wallet", Guild: g1}, "a.csv", "id;coins\n"+ada+";"+cell+"\n")
		same(t, cell, r.ok(t), walletLine(ada, want))
	}
	for _, cell := range []string{`"1,25"`, `"12,34,567"`, `"1234,567"`, `"1.250,00"`, `",250"`, `"1,"`, `"1 250"`, ``, `lots`} {
		r := of(t, Options{From: "csv", Record: "wallet", Guild: g1}, "a.csv", "id;Coins\n"+ada+";"+cell+"\n")
		if r.err == nil || !strings.HasPrefix(r.err.Error(), `a.csv: line 2: column "Coins": must be a whole number; it is "`) {
			t.Errorf("%s: %v", cell, r.err)
		}
	}
}

func TestInstantsAreReadInEveryFormThatBotsWrite(t *testing.T) {
	t.Parallel()
	for cell, want := range map[string]string{
		"2024-03-01T10:00:00Z": "2024-03-01T10:00:00Z", "2024-03-01T12:00:00+02:00": "2024-03-01T10:00:00Z",
		"2024-03-01 10:00:00":   "2024-03-01T10:00:00Z",
		"2024-03-01 10:00:00.5": "2024-03-01T10:00:00.500Z", "2024-03-01 10:00:00.789999": "2024-03-01T10:00:00.789Z",
		"2024-03-01 12:00:00+02:00": "2024-03-01T10:00:00Z", "2024-03-01 12:00:00.25 +02:00": "2024-03-01T10:00:00.250Z",
		"2024-03-01T10:00:00":      "2024-03-01T10:00:00Z",
		"2024-03-01 12:00:00+0200": "2024-03-01T10:00:00Z",
		"2024-03-01 10:00:00+00":   "2024-03-01T10:00:00Z", "2024-03-01 05:00:00.123456-05": "2024-03-01T10:00:00.123Z",
		"1709287200": "2024-03-01T10:00:00Z", "1709287200000": "2024-03-01T10:00:00Z", "1709287200.5": "2024-03-01T10:00:00.500Z",
		"99999999999": "2024-06-01T00:00:00Z", "100000000000": "1973-03-03T09:46:40Z", "-100000000": "1966-10-31T14:13:20Z",
		"2024-06-01T00:00:00.001Z": "2024-06-01T00:00:00Z",
		"0001-01-01 00:00:00":      "0001-01-01T00:00:00Z", "-62135596800": "0001-01-01T00:00:00Z",
		"9999-12-31 23:59:59": "2024-06-01T00:00:00Z", "253402300799000": "2024-06-01T00:00:00Z",
	} {
		r := of(t, Options{From: "csv", Record: "case", Guild: g1}, "a.csv", "id,type,moderator,time\n"+ada+",warn,"+mo+","+cell+"\n")
		if out := r.ok(t); !strings.Contains(out, `"created_at":"`+want+`"`) {
			t.Errorf("%s became %s", cell, out)
		}
		late := strings.HasPrefix(cell, "9999") || strings.HasPrefix(cell, "2534") || cell == "2024-06-01T00:00:00.001Z"
		if f := why(r.report.Changed, "lies after"); (f != nil) != late {
			t.Errorf("%s: changed %v", cell, r.report.Changed)
		}
		early := cell == "100000000000" || strings.HasPrefix(cell, "-") || strings.HasPrefix(cell, "0001")
		if f := why(r.report.Warnings, "before 2015"); (f != nil) != early {
			t.Errorf("%s: warnings %v", cell, r.report.Warnings)
		}
	}
	r := of(t, Options{From: "csv", Record: "case", Guild: g1, Timezone: "Europe/Berlin"}, "a.csv",
		"id,type,time\n"+ada+",warn,2024-03-01 10:00:00\n"+bo+",warn,2024-03-01 10:00:00Z\n")
	if out := r.ok(t); !strings.Contains(out, `"created_at":"2024-03-01T09:00:00Z"`) || !strings.Contains(out,
		`"created_at":"2024-03-01T10:00:00Z"`) {
		t.Errorf("in Berlin: %s", out)
	}
	for _, cell := range []string{
		"yesterday", "2024-02-30 10:00:00", "30.02.2024", "1e99", "9999999999999999999", "0000-01-01 00:00:00", "inf", "0x1p30",
		"9999-12-31 23:59:59-05:00", "253402300800000", "-62135596801",
	} {
		r := of(t, Options{From: "csv", Record: "case", Guild: g1}, "a.csv", "id,type,time\n"+ada+",warn,"+cell+"\n")
		if r.err == nil || !strings.HasPrefix(r.err.Error(), `a.csv: line 2: column "time": must be a date and time such as`) {
			t.Errorf("%s: %v", cell, r.err)
		}
	}
	r = of(t, Options{From: "csv", Record: "case", Guild: g1}, "a.csv", "id,type\n"+ada+",warn\n")
	if strings.Contains(r.ok(t), "created_at") {
		t.Errorf("without a time: %s", r.out)
	}
	wants(t, r.report.Warnings, "has no instant", 1)
}

func TestATextLosesZeroBytesAndIsCutWhereItIsTooLong(t *testing.T) {
	t.Parallel()
	reason := func(text string) result {
		b, _ := json.Marshal(text)
		return of(t, Options{From: "red", Guild: g1}, "a.json", `{"1354799444":{"CASES":{"`+g1+`":{"1":{"action_type":"warn","user":`+ada+
			`,"moderator":`+mo+
			`,"created_at":1700000000,"reason":`+string(b)+`}}}}}`)
	}
	got := func(r result) string {
		var c caseRecord
		if err := json.Unmarshal([]byte(r.ok(t)), &c); err != nil {
			t.Fatal(err)
		}
		return c.Reason
	}
	whole := strings.Repeat("ä", 1000)
	if r := reason(whole); got(r) != whole || !r.report.Clean() {
		t.Error("a text of 1000 characters was changed")
	}
	r := reason(whole + "b")
	same(t, "a long text", got(r), strings.Repeat("ä", 999)+"…")
	wants(t, r.report.Changed, "longer than 1000 characters", 1)
	if !strings.Contains(r.lost, whole+"b") || !strings.Contains(r.lost, `/1/reason"`) {
		t.Errorf("what was cut is %s", r.lost)
	}
	r = reason("a\x00b")
	same(t, "a zero byte", got(r), "ab")
	wants(t, r.report.Changed, "zero byte", 1)
	for _, blank := range []string{"", " \t\n", "\u200b\ufeff", "\x00 "} {
		same(t, "blank", got(reason(blank)), "")
	}
	r = of(t, Options{From: "modmail"}, "a.json", thread("a", `"title":"\ud83e","messages":[]`))
	wants(t, r.report.Changed, "half a character", 1)
	if !strings.Contains(r.ok(t), `"subject":"`+"\ufffd"+`"`) {
		t.Errorf("half a character became %s", r.out)
	}
}

// thread returns a document of Modmail with the required members and more.
func thread(key, more string) string {
	return `{"_id":"` + key + `","guild_id":"` + g1 + `","open":false,"created_at":"2024-02-03 04:05:06","closed_at":"2024-02-03 05:00:00",` +
		`"recipient":{"id":"` + bo + `"},` + more + "}\n"
}

func message(id, author, content string) string {
	b, _ := json.Marshal(content)
	return `{"timestamp":"2024-02-03 04:06:00","message_id":"` + id + `","author":{"id":"` + author +
		`","mod":true},"type":"thread_message","attachments":[],"content":` + string(b) + `}`
}

func TestAMessageThatIsTooLongGoesOnInFurtherEntries(t *testing.T) {
	t.Parallel()
	entries := func(content string) []messageRecord {
		r := of(t, Options{From: "modmail"}, "a.json", thread("a", `"messages":[`+message("1203000000000000001", mo, content)+`]`))
		var all []messageRecord
		for i, line := range strings.Split(strings.TrimSpace(r.ok(t)), "\n") {
			var m messageRecord
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				all = append(all, m)
			}
		}
		return all
	}
	if all := entries(strings.Repeat("ä", 4096)); len(all) != 1 {
		t.Errorf("4096 characters became %d entries", len(all))
	}
	text := strings.Repeat("ä", 4096) + strings.Repeat("b", 4096) + "c"
	all := entries(text)
	if len(all) != 3 || all[0].Content+all[1].Content+all[2].Content != text {
		t.Fatalf("8193 characters became %d entries", len(all))
	}
	for i, m := range all {
		if want := []string{"modmail-a-000001", "modmail-a-000001-2", "modmail-a-000001-3"}[i]; m.ID != want {
			t.Errorf("entry %d is %s, not %s", i, m.ID, want)
		}
		if (m.ChannelMessageID != "") != (i == 0) || !m.CreatedAt.Equal(all[0].CreatedAt.Time) {
			t.Errorf("entry %d is message %q of %s", i, m.ChannelMessageID, m.CreatedAt)
		}
	}
	// A piece that is blank would not be a valid entry.
	if all := entries(strings.Repeat("a", 4096) + strings.Repeat(" ", 4096) + "b"); len(all) != 2 || all[1].Content != "b" {
		t.Errorf("a blank piece: %d entries", len(all))
	}
	if all := entries(""); len(all) != 1 || all[0].Content != nothing {
		t.Errorf("nothing became %v", all)
	}
	last := ""
	for i := 1; i < 45; i++ {
		id := cond(i == 1, "x", "x-"+nth(i))
		if id <= last {
			t.Errorf("piece %d is %s, after %s", i, id, last)
		}
		last = id
	}
}

func TestTheFirstOfAMemberStandsAndTheOthersAreCounted(t *testing.T) {
	t.Parallel()
	r := of(t, Options{From: "mee6"}, "a.json", players(player(quoted(ada), 5), player(quoted(ada), 5)), "b.json", players(player(ada, 6),
		player(quoted(bo), 1)))
	same(t, "levels", r.ok(t), levelLine(ada, 5)+levelLine(bo, 1))
	if f := r.report.LeftOut[0]; f.Why != "came twice" || f.Count != 1 || f.First[0].Path != "/players/1" {
		t.Errorf("the same again: %+v", f)
	}
	wants(t, r.report.LeftOut, "with another value", 1)
	if !strings.Contains(r.lost, `"xp":6`) {
		t.Errorf("what was left out is %s", r.lost)
	}
	// An import refuses two cases, tickets or giveaways with the same id.
	c := zeppelinCase(1, 4, ada, "null", "2023-01-01 00:00:00")
	r = of(t, Options{From: "zeppelin", Guild: g1}, "a.json", zeppelinCases(c, c))
	if n := strings.Count(r.ok(t), "\n"); n != 1 {
		t.Errorf("a case that came twice became %d", n)
	}
	wants(t, r.report.LeftOut, "came twice", 1)
	r = of(t, Options{From: "modmail"}, "a.json", thread("a", `"messages":[]`)+thread("a", `"messages":[]`)+thread("b", `"messages":[]`))
	if n := strings.Count(r.ok(t), "\n"); n != 2 {
		t.Errorf("three threads of two keys became %d", n)
	}
	r = of(t, Options{From: "discord-giveaways"}, "a.json", "["+giveaway("1", "")+","+giveaway("1", "")+"]")
	wants(t, r.report.LeftOut, "came twice", 1)
	r = of(t, Options{From: "unbelievaboat", Guild: g1}, "a.json", `[{"user_id":"`+ada+`","cash":1,"bank":0},{"user_id":"`+ada+
		`","cash":2,"bank":0}]`)
	same(t, "wallets", r.ok(t), walletLine(ada, 1))
	// A person maintains a table, and has to decide which of two rows is right.
	r = of(t, Options{From: "csv", Record: "wallet", Guild: g1}, "a.csv", "id,coins\n"+ada+",1\n"+bo+",1\n"+ada+",1\n")
	if r.err == nil || r.err.Error() != `a.csv: line 4: column "id": member `+ada+
		` comes twice, first on line 2; leave one row of each member` {
		t.Errorf("two rows of one member: %v", r.err)
	}
}

// Two rows of one member may be in two files: then the error names the first file too.
func TestARowThatComesTwiceNamesTheFileOfTheFirst(t *testing.T) {
	t.Parallel()
	for record, c := range map[string][2]string{
		"wallet": {"id,coins\n" + ada + ",1\n", `b.csv: line 2: column "id": member ` + ada + ` comes twice, first on line 2 of a.csv`},
		"case": {
			"number,user_id,type\n7," + ada + ",warn\n", `b.csv: line 2: column "number": case 7 comes twice, first on line 2 of a.csv`,
		},
	} {
		r := of(t, Options{From: "csv", Record: record, Guild: g1}, "a.csv", c[0], "b.csv", c[0])
		if want := c[1] + "; leave one row of each " + cond(record == "case", "case", "member"); r.err == nil || r.err.Error() != want {
			t.Errorf("%v, want %s", r.err, want)
		}
	}
}

func TestUnknownMembersAreCountedByTheirPathAndShownWhole(t *testing.T) {
	t.Parallel()
	file := `{"guild":{"id":"` + g1 + `","shards":[1]},` + "\n" + `"season":{"a":{"b":1}},"players":[{"id":"` + ada +
		`","xp":1,"badges":{"gold":[1,"two"]}},` + "\n" +
		`{"id":"` + bo + `","xp":1,"badges":null}]}`
	r := of(t, Options{From: "mee6"}, "a.json", file)
	r.ok(t)
	if got := fmt.Sprint(r.report.Unknown); got != "map[/guild/shards:1 /players/*/badges:2 /season:1]" {
		t.Errorf("unknown are %s", got)
	}
	for _, line := range []string{
		`"line":2,"path":"/season","why":"unknown","value":{"a":{"b":1}}`,
		`"line":2,"path":"/players/0/badges","why":"unknown","value":{"gold":[1,"two"]}`,
		`"line":3,"path":"/players/1/badges","why":"unknown","value":null`,
	} {
		if !strings.Contains(r.lost, line) {
			t.Errorf("%s is not in %s", line, r.lost)
		}
	}
}

func TestWhatIsEmptyIsNotUnknownAndWhatIsOfAnotherShapeIs(t *testing.T) {
	t.Parallel()
	for notes, unknown := range map[string]string{
		`null`: "map[]", `[]`: "map[]", `{}`: "map[]", `[null]`: "map[]", `[{"body":null}]`: "map[]", `5`: "map[/cases/*/notes:1]",
		`"a"`:     "map[/cases/*/notes:1]",
		`{"a":1}`: "map[/cases/*/notes/a:1]", `[5]`: "map[/cases/*/notes/*:1]", `[{"x":[]}]`: "map[/cases/*/notes/*/x:1]",
	} {
		file := strings.Replace(zeppelinCases(zeppelinCase(1, 4, ada, quoted(mo), "2023-01-01 00:00:00")), `"notes":[]`, `"notes":`+notes, 1)
		r := of(t, Options{From: "zeppelin", Guild: g1}, "a.json", file)
		r.ok(t)
		same(t, notes, fmt.Sprint(r.report.Unknown), unknown)
	}
}

func giveaway(id, more string) string {
	return `{"messageId":"120400000000000000` + id + `","channelId":"1204000000000000000","guildId":"` + g1 +
		`","startAt":1706000000000,"winnerCount":1,"prize":"A hat"` +
		cond(strings.Contains(more, "endAt"), "", `,"endAt":1706086400000`) + cond(strings.Contains(more, `"ended"`), "", `,"ended":true`) +
		more + `}`
}

func zeppelinCase(number, kind int, user, mod, at string) string {
	return fmt.Sprintf(`{"case_number":%d,"user_id":"%s","mod_id":%s,"type":%d,"created_at":"%s","notes":[]}`, number, user, mod, kind, at)
}

func zeppelinCases(list ...string) string { return `{"cases":[` + strings.Join(list, ",\n") + `]}` }

func TestAReportNamesTheFirstPlacesAndDoesNotGrowWithTheInput(t *testing.T) {
	t.Parallel()
	var list []string
	for range 26 {
		list = append(list, player(quoted(ada), 1))
	}
	for i := range 1500 {
		list[0] = strings.Replace(list[0], "{", fmt.Sprintf(`{"new_%d":1,`, i), 1)
	}
	r := of(t, Options{From: "mee6"}, "a.json", players(list...))
	same(t, "levels", r.ok(t), levelLine(ada, 1))
	if f := wants(t, r.report.LeftOut, "came twice", 25); len(f.First) != 20 || f.First[0].Path != "/players/1" {
		t.Errorf("the first places are %v", f.First)
	}
	if n := r.report.Unknown["(others)"]; n != 500 || len(r.report.Unknown) != 1001 {
		t.Errorf("%d paths are unknown, %d others", len(r.report.Unknown), n)
	}
	if n := strings.Count(r.lost, `"why":"unknown"`); n != 1500 {
		t.Errorf("%d of 1500 unknown values are listed", n)
	}
}

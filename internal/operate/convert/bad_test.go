package convert

import (
	"archive/zip"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"
)

// zipped returns a zip with the given entries and comment.
func zipped(t testing.TB, comment string, entries ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(entries); i += 2 {
		w, err := z.Create(entries[i])
		if err == nil {
			_, err = w.Write([]byte(entries[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.SetComment(comment); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func utf16Of(s string) string {
	out := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(s)) {
		out = append(out, byte(u), byte(u>>8))
	}
	return string(out)
}

const oneTicket = `{"id":"1201000000000000001","createdById":"` + ada + `","createdAt":"2024-01-28T02:00:00.000Z"}`

// RELIABILITY.md, Input.
func TestAnErrorNamesFileLineAndPathAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	fixture := func(name string) string {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	mee6, wallet := Options{From: "mee6"}, Options{From: "csv", Record: "wallet", Guild: g1}
	comment := `{"originalGuildId":"` + g1 + `"}`
	for name, c := range map[string]struct {
		o          Options
		file, text string
		want       string
	}{
		"a number that is none": {
			mee6, "a.json", players(player(quoted(ada), 1), player(quoted(bo), `"12k"`)),
			`a.json: line 1: /players/1/xp: must be a whole number; it is "12k"`,
		},
		"on the middle line": {
			mee6, "a.json", "{\"guild\":{\"id\":\"" + g1 + "\"},\n\"players\":[\n{\"id\":\"" + ada + "\",\n\"xp\":\n\"x\"\n}\n]\n}",
			`a.json: line 5: /players/0/xp: must be a whole number; it is "x"`,
		},
		"on the middle line, CRLF": {
			mee6, "a.json", "{\"guild\":{\"id\":\"" + g1 + "\"},\r\n\"players\":[\r\n{\"id\":\"" + ada + "\",\r\n\"xp\":\"x\"}]}",
			`a.json: line 4: /players/0/xp: must be a whole number; it is "x"`,
		},
		"on the last line": {
			mee6, "a.json", "{\"guild\":{\"id\":\"" + g1 + "\"},\n\n\"players\":[]}\n\n{\"players\":[7]}",
			`a.json: line 5: /players/0: must be an object; it is 7`,
		},
		"in the second document": {
			mee6, "a.json", players(player(quoted(ada), 1)) + "\n" + players(player(quoted(bo), "true")),
			`a.json: line 2: /players/0/xp: must be a whole number; it is true`,
		},
		"a member is missing":    {mee6, "a.json", players(player(quoted(ada), 1), `{"id":"2"}`), `a.json: line 1: /players/1/xp: is missing`},
		"a list in place of one": {mee6, "a.json", players(`[1]`), `a.json: line 1: /players/0: must be an object; it is a list`},
		"a private leaderboard": {
			mee6, "a.json", `{"error":{"message":"no"},"status_code":401}`,
			`a.json: the leaderboard is private or not there (401); make it public and fetch it again`,
		},
		"another error": {
			mee6, "a.json", `{"status_code":500,"error":{}}`,
			`a.json: the leaderboard cannot be read (500); fetch it again`,
		},
		"another guild": {
			Options{From: "mee6", Guild: "7"},
			"a.json", players(player(quoted(ada), 1)),
			`a.json: line 1: /guild/id: is of guild ` + g1 + `, and --guild says 7; to take one guild's rows: --source-guild ID`,
		},
		"another guild than the source": {
			Options{From: "mee6", SourceGuild: "7"},
			"a.json", players(player(quoted(ada), 1)),
			`a.json: names guild ` + g1 + ` and not 7; if that is the one to take, say so: --source-guild ID`,
		},
		"only members of another": {
			Options{From: "mee6", Guild: "7"},
			"a.json", `{"players":[{"id":"1","xp":1,"guild_id":"8"}]}`,
			`a.json: line 1: /players/0/guild_id: is of guild 8, and --guild says 7; to take one guild's rows: --source-guild ID`,
		},
		"a guild that is no id": {
			mee6, "a.json", `{"guild":{"id":"x"},"players":[]}`,
			`a.json: line 1: /guild/id: must be an id of digits; it is "x"`,
		},
		"ends too early": {
			mee6, "a.json", "{\"guild\":{\"id\":\"" + g1 + "\"},\n\"players\":[{",
			`a.json: line 2: ends too early; fetch the file again`,
		},
		"is empty":               {mee6, "a.json", "", `a.json: is empty; fetch the file again`},
		"is blank":               {Options{From: "mee6", Guild: g1}, "a.json", " \n\n", `a.json: line 3: ends too early; fetch the file again`},
		"a comma too many":       {mee6, "a.json", "{\"players\":[\n1,]}", `a.json: line 2: /players/0: must be an object; it is 1`},
		"a comma before a brace": {mee6, "a.json", "{\"page\":1,\n}", `a.json: line 2: is not JSON: invalid character ',' at start of value`},
		"no comma": {
			mee6, "a.json", "{\"page\":1\n\"x\":1}",
			`a.json: line 2: is not JSON: invalid character '"' after object value (expecting ',' or '}')`,
		},
		"no colon": {
			mee6, "a.json", "{\"page\" 1}",
			`a.json: line 1: is not JSON: invalid character '1' after object name (expecting ':')`,
		},
		"no name": {mee6, "a.json", "{page:1}", `a.json: line 1: is not JSON: invalid character 'p' at start of value`},
		"no value": {
			mee6, "a.json", `{"page":nope}`,
			`a.json: line 1: is not JSON: invalid character 'o' in literal null (expecting 'u')`,
		},
		"a line break in a text": {
			mee6, "a.json", "{\"page\":\"a\nb\"}",
			`a.json: line 1: is not JSON: invalid character '\n' in string (expecting non-control character)`,
		},
		"an escape that is none": {mee6, "a.json", `{"page":"\x"}`, "a.json: line 1: is not JSON: invalid escape sequence `\\x` in string"},
		"given twice":            {mee6, "a.json", players(`{"id":"1","id":"2","xp":1}`), `a.json: line 1: member "id" must be given once`},
		"invalid UTF-8":          {mee6, "a.json", "{\"page\":\n\"\xff\"}", `a.json: line 2: is not valid UTF-8; save it as UTF-8`},
		"UTF-16":                 {mee6, "a.json", utf16Of(`{"players":[]}`), `a.json: line 1: is UTF-16; save it as UTF-8`},
		"UTF-16 without a mark":  {mee6, "a.json", utf16Of(`{"players":[]}`)[2:], `a.json: line 1: is UTF-16; save it as UTF-8`},
		"nothing in it": {
			mee6, "a.json", `{"guild":{"id":"` + g1 + `"},"players":[]}`,
			`a.json: there is nothing in it to write for guild ` + g1,
		},
		"all left out": {mee6, "a.json", players(player(`"0"`, 1)), `a.json: there is nothing in it to write for guild ` + g1 +
			`: 1 item about nobody: its member is deleted or not known`},

		"of Lurkr": {mee6, "a.json", fixture("lurkr.json"), `a.json: line 1: this looks like a Lurkr export: --from lurkr`},
		"of MEE6": {
			Options{From: "zeppelin", Guild: g1},
			"a.json", fixture("mee6.0.json"),
			`a.json: line 1: this looks like a MEE6 export: --from mee6`,
		},
		"of UnbelievaBoat": {
			mee6, "a.json", fixture("unbelievaboat.json"),
			`a.json: line 1: this looks like an UnbelievaBoat export: --from unbelievaboat`,
		},
		"of Zeppelin":     {mee6, "a.json", fixture("zeppelin.json"), `a.json: line 1: this looks like a Zeppelin export: --from zeppelin`},
		"of Red's modlog": {mee6, "a.json", fixture("red.ModLog.settings.json"), `a.json: line 1: this looks like a Red export: --from red`},
		"of Red's bank":   {mee6, "a.json", fixture("red.Bank.settings.json"), `a.json: line 1: this looks like a Red export: --from red`},
		"of Modmail":      {mee6, "a.json", fixture("modmail.json"), `a.json: line 1: this looks like a Modmail export: --from modmail`},
		"of Arcane": {
			Options{From: "lurkr", Guild: g1},
			"a.json", fixture("arcane.json"),
			`a.json: line 1: this looks like an Arcane export: --from arcane`,
		},
		"of giveaways": {
			Options{From: "arcane", Guild: g1},
			"a.json", fixture("discord-giveaways.json"),
			`a.json: line 1: this looks like a discord-giveaways export: --from discord-giveaways`,
		},
		"of nothing":       {mee6, "a.json", "\x01\xfe,\x80;\n", `a.json: line 1: is not JSON: invalid character '\x01' at start of value`},
		"of a table":       {mee6, "a.json", "id,xp\n1,2\n", "a.json: line 1: this looks like a table: --from csv"},
		"JSON for a table": {wallet, "a.csv", fixture("lurkr.json"), `a.csv: line 1: this looks like a Lurkr export: --from lurkr`},
		"a zip for a table": {
			wallet, "a.csv", zipped(t, "", "tickets.jsonl", ""),
			`a.csv: line 1: this looks like a Discord Tickets export: --from discord-tickets`,
		},
		"JSON for a zip": {
			Options{From: "discord-tickets", Guild: g1},
			"a.zip", fixture("mee6.0.json"),
			`a.zip: this looks like a MEE6 export: --from mee6`,
		},
		"no format at all": {mee6, "a.json", `{"hello":"world"}`, `a.json: line 1: holds nothing that mee6 has`},
		"no format, a first": {
			mee6, "a.json", `{"guild":{"id":"` + g1 + `"},"players":[{"name":"x"}]}`,
			`a.json: line 1: /players/0/id: is missing`,
		},

		"a cell that is no number": {
			wallet, "a.csv", "Name,id,Coins\n\n" + "ada," + ada + ",1\nbo," + bo + ",lots\n",
			`a.csv: line 4: column "Coins": must be a whole number; it is "lots"`,
		},
		"a cell of many lines": {
			wallet, "a.csv", "Name,id,Coins\r\n\"a\r\nb\"," + ada + ",1\r\nbo," + bo + ",lots\r\n",
			`a.csv: line 4: column "Coins": must be a whole number; it is "lots"`,
		},
		"no column for the member": {
			wallet, "a.csv", "Name,Coins\n",
			`a.csv: there is no column for user_id; the columns are Name, Coins. Say which: --map user_id=COLUMN`,
		},
		"no column for the coins": {wallet, "a.csv", "id,Name\n", `a.csv: there is no column for balance; the columns are id, Name. Say ` +
			`which: --map balance=COLUMN`},
		"two columns for one": {
			wallet, "a.csv", "Member id,User,coins\n",
			`a.csv: columns "Member id" and "User" could both be user_id. Say which: --map user_id=COLUMN`,
		},
		"a column that is not": {
			Options{From: "csv", Record: "wallet", Guild: g1, Map: []string{"balance=Gold"}},
			"a.csv", "id,coins\n",
			`a.csv: there is no column "Gold" for balance; the columns are id, coins`,
		},
		"too few cells": {
			wallet, "a.csv", "id,coins\n" + ada + "\n",
			`a.csv: line 2: has 1 cells and not 2; put quotes around a cell that holds the separator`,
		},
		"too many cells": {
			wallet, "a.csv", "id,coins\n" + ada + ",1,2\n",
			`a.csv: line 2: has 3 cells and not 2; put quotes around a cell that holds the separator`,
		},
		"a quote in a cell": {
			wallet, "a.csv", "id,coins\n" + ada + ",1\"2\n",
			`a.csv: line 2: a quote stands in the middle of a cell; put quotes around the whole cell and write each inside twice`,
		},
		"text behind a quote": {
			wallet, "a.csv", "id,coins\n\"" + ada + "\"x,1\n",
			`a.csv: line 2: a quote stands in the middle of a cell; put quotes around the whole cell and write each inside twice`,
		},
		"a quote that stays open": {wallet, "a.csv", "id,coins\n\"" + ada + ",1\n", `a.csv: line 3: ends too early; fetch the file again`},
		"a table in UTF-16":       {wallet, "a.csv", utf16Of("id,coins\n1,2\n"), `a.csv: line 1: is UTF-16; save it as UTF-8`},
		"a table in Latin-1": {
			wallet, "a.csv", "id,coins,Name\n" + ada + ",1,\xe4\n",
			`a.csv: line 2: is not valid UTF-8; save it as UTF-8`,
		},
		"a spreadsheet's ids": {
			wallet, "a.csv", "id,coins\n1.90321E+17,1\n",
			`a.csv: line 2: column "id": must be an id of digits; it is "1.90321E+17": the digits are lost; export again with the column as text`,
		},
		"a table that is empty": {wallet, "a.csv", "", `a.csv: is empty; fetch the file again`},
		"a heading alone":       {wallet, "a.csv", "id,coins\n", `a.csv: there is nothing in it to write for guild ` + g1},
		"a long line": {
			wallet, "a.csv", "id,coins\n" + ada + "," + strings.Repeat("1", 1<<20) + "\n",
			`a.csv: line 2: a line is longer than 1 MiB`,
		},
		"a long heading": {wallet, "a.csv", strings.Repeat("x", 1<<20+1), `a.csv: line 1: a line is longer than 1 MiB`},
		"no kind": {
			Options{From: "csv", Record: "case", Guild: g1},
			"a.csv", "id,type\n" + ada + ",\n",
			`a.csv: line 2: column "type": must name the kind of case; it is empty`,
		},

		"a zip without tickets": {
			Options{From: "discord-tickets"},
			"a.zip", zipped(t, comment, "settings.json", "{}"),
			`a.zip: there is no tickets.jsonl in it; export the server again, with tickets`,
		},
		"a zip of another": {
			Options{From: "discord-tickets", Guild: "7"},
			"a.zip", zipped(t, comment, "tickets.jsonl", oneTicket),
			`a.zip: comment: line 1: /originalGuildId: is of guild ` + g1 + `, and --guild says 7; to take one guild's rows: --source-guild ID`,
		},
		"a ticket without a member": {Options{From: "discord-tickets"}, "a.zip", zipped(t, comment, "tickets.jsonl", oneTicket+"\n"+
			`{"id":"1","createdAt":"x"}`), `a.zip: tickets.jsonl: line 2: /createdById: is missing`},
		"a message that is none": {
			Options{From: "discord-tickets"},
			"a.zip", zipped(t, comment, "tickets.jsonl", strings.TrimSuffix(
				oneTicket, "}")+`,"archivedMessages":[{"id":"1","authorId":"`+bo+`","content":"hello","createdAt":1700000000}]}`),
			`a.zip: tickets.jsonl: line 1: /archivedMessages/0/content: must be a message as JSON; it is "hello"`,
		},
		"a message's text": {
			Options{From: "discord-tickets"},
			"a.zip", zipped(t, comment, "tickets.jsonl", strings.TrimSuffix(
				oneTicket, "}")+`,"archivedMessages":[{"id":"1","authorId":"`+bo+`","content":"{\"content\":[]}","createdAt":1700000000}]}`),
			`a.zip: tickets.jsonl: line 1: /archivedMessages/0/content/content: must be a text; it is a list`,
		},
		"settings that are cut": {Options{From: "discord-tickets"}, "a.zip", zipped(t, comment, "settings.json", "{\n", "tickets.jsonl",
			oneTicket), `a.zip: settings.json: line 2: ends too early; fetch the file again`},
		"half a zip": {
			Options{From: "discord-tickets", Guild: g1},
			"a.zip", zipped(t, comment, "tickets.jsonl", oneTicket)[:60],
			`a.zip: is no zip that can be read; fetch the file again`,
		},

		"a global bank": {Options{From: "red", Guild: g1}, "a.json", `{"384734293238749":{"GLOBAL":{"is_global":true},"USER":{"` + ada +
			`":{"balance":1}}}}`, `a.json: line 1: /384734293238749/GLOBAL/is_global: the bank is global and belongs to no guild; if the guild ` +
			`is to get it, say so: --source-guild global`},
		"Red, another guild": {Options{From: "red", Guild: "7"}, "a.json", redCase("ban", ""), `a.json: names guild ` + g1 +
			` and not 7; if that is the one to take, say so: --source-guild ID`},
		"a thread's key": {Options{From: "modmail", Guild: g1}, "a.json", strings.Replace(thread("a", `"messages":[]`), `"_id":"a"`,
			`"_id":""`, 1), `a.json: line 1: /_id: must be a key of at most 40 characters; it is ""`},
		"a curve that is not": {
			Options{From: "red", Guild: g1},
			"a.json", `{"configs":{"` + g1 + `":{"users":{},"algorithm":{"base":-1}}}}`,
			`a.json: line 1: /configs/` + g1 + `/algorithm/base: must be a number above 0; it is -1`,
		},
		"too deep": {mee6, "a.json", `{"page":` + strings.Repeat("[", 200) + `}`, `a.json: line 1: nests deeper than 128 levels`},
		"a long number": {
			mee6, "a.json", `{"page":` + strings.Repeat("1", 2000) + `}`,
			`a.json: line 1: a number has more than 1000 digits`,
		},
	} {
		r := of(t, c.o, c.file, c.text)
		if r.err == nil || r.err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", name, r.err, c.want)
		}
	}
}

func TestACallThatCannotBeCarriedOutSaysWhichFlagIsWrong(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"--from: there is no format":                   {From: "carl"},
		"--balance means nothing for mee6":             {From: "mee6", Balance: "cash"},
		"--record means nothing for mee6":              {From: "mee6", Record: "wallet"},
		"--running means nothing for red":              {From: "red", Running: true},
		"--source-guild means nothing for zeppelin":    {From: "zeppelin", SourceGuild: "1"},
		"--guild: must be an id":                       {From: "mee6", Guild: "x"},
		"--moderator: must be an id":                   {From: "red", Moderator: "mo"},
		"--source-guild: must be an id":                {From: "mee6", SourceGuild: "global"},
		"--xp: must be one of keep, level":             {From: "mee6", XP: "both"},
		"--balance: must be one of total, cash, bank":  {From: "unbelievaboat", Guild: g1, Balance: "all"},
		"--numbers: must be one of keep, new":          {From: "zeppelin", Guild: g1, Numbers: "old"},
		"--curve: must be mee6, lurkr":                 {From: "mee6", Curve: "flat"},
		"--curve: must be mee6, lurkr, amari":          {From: "mee6", Curve: "total:1,x"},
		"--curve: must be mee6, lurkr, amari, ":        {From: "mee6", Curve: "total:9007199254740992"},
		"--curve: must be mee6, lurkr, amari, arcane":  {From: "mee6", Curve: "total:9007199254740991,-9007199254740992"},
		"--timezone: there is no time zone":            {From: "csv", Guild: g1, Record: "case", Timezone: "Berlin"},
		"the files of zeppelin name no guild":          {From: "zeppelin"},
		"--record: say what a row is":                  {From: "csv", Guild: g1},
		`--map "user": must be MEMBER=COLUMN`:          {From: "csv", Guild: g1, Record: "wallet", Map: []string{"user"}},
		`--map "level=x": must be MEMBER=COLUMN`:       {From: "csv", Guild: g1, Record: "wallet", Map: []string{"level=x"}},
		"--map: balance is given twice":                {From: "csv", Guild: g1, Record: "wallet", Map: []string{"balance=a", "balance=b"}},
		"--separator: must be":                         {From: "csv", Guild: g1, Record: "wallet", Separator: "|"},
		"--no-header: say which columns":               {From: "csv", Guild: g1, Record: "wallet", NoHeader: true},
		"--xp means nothing for --record wallet":       {From: "csv", Guild: g1, Record: "wallet", XP: "keep"},
		"--curve means nothing for --record case":      {From: "csv", Guild: g1, Record: "case", Curve: "mee6"},
		"--balance means nothing for --record level":   {From: "csv", Guild: g1, Record: "level", Balance: "cash"},
		"--moderator means nothing for --record level": {From: "csv", Guild: g1, Record: "level", Moderator: "1"},
		"--numbers means nothing for --record level":   {From: "csv", Guild: g1, Record: "level", Numbers: "new"},
		"--in-force means nothing for --record level":  {From: "csv", Guild: g1, Record: "level", InForce: "x"},
		"--case-type means nothing for --record level": {From: "csv", Guild: g1, Record: "level", CaseTypes: []string{"a=ban"}},
		`--case-type "a": must be NAME=TYPE`:           {From: "red", CaseTypes: []string{"a"}},
		`--case-type "a=jail": must be NAME=TYPE`:      {From: "red", CaseTypes: []string{"a=jail"}},
		`--case-type "=ban": must be NAME=TYPE`:        {From: "red", CaseTypes: []string{"=ban"}},
		"--xp level: tatsu has no levels":              {From: "tatsu", Guild: g1, XP: "level"},
		"--source-guild global: say which guild":       {From: "red", SourceGuild: "global"},
	} {
		r := of(t, o, "a", "id,xp\n1,1\n")
		if _, ok := errors.AsType[*UsageError](r.err); !ok || !strings.HasPrefix(r.err.Error(), want) {
			t.Errorf("%v, want a usage error: %s", r.err, want)
		}
	}
	for _, curve := range []string{"total:9007199254740991", "step:9007199254740991,-9007199254740991"} {
		if err := (Options{From: "mee6", Curve: curve}).Check(); err != nil {
			t.Errorf("%s: %v", curve, err)
		}
	}
	if _, _, err := Inputs([]string{"-", "-"}, nil); err == nil {
		t.Error("standard input was given twice")
	}
	if r := converted(t, Options{From: "mee6"}); r.err == nil || !strings.Contains(r.err.Error(), "name the files to read") {
		t.Errorf("without files: %v", r.err)
	}
	if _, _, err := Inputs([]string{t.TempDir()}, nil); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("a folder: %v", err)
	}
}

// RELIABILITY.md, Input.
func TestAValueHasABoundAndAZipNone(t *testing.T) {
	t.Parallel()
	comment := `{"originalGuildId":"` + g1 + `"}`
	long := func(n int) string {
		return zipped(t, comment, "tickets.jsonl", strings.TrimSuffix(oneTicket, "}")+`,"topic":"`+strings.Repeat("a", n)+`"}`+"\n")
	}
	r := of(t, Options{From: "discord-tickets"}, "a.zip", long(64<<20+128<<10))
	if r.err == nil || !strings.HasPrefix(r.err.Error(), "a.zip: tickets.jsonl: line 1: a ") || !strings.HasSuffix(r.err.Error(),
		"is longer than 64 MiB") {
		t.Errorf("a long value: %v", r.err)
	}
	// First with entries that compress a thousandfold, then with short lines.
	if r := of(t, Options{From: "discord-tickets"}, "a.zip", long(60<<20)); r.err != nil {
		t.Errorf("a zip that is packed well: %v", r.err)
	}
	r = of(t, Options{From: "mee6", Guild: g1}, "a.json", `{"players":[{"id":"`+ada+`","xp":1,"x":[`+strings.Repeat("1,", 1_000_000)+`1]}]}`)
	if r.err == nil || !strings.Contains(r.err.Error(), "holds more than 1,000,000 others") {
		t.Errorf("a crowd: %v", r.err)
	}
	for name, text := range map[string]string{
		"many":     `{"id":"` + ada + `","xp":1,"x":[` + strings.Repeat("1,", 990_000) + `1]}`,
		"deep":     `{"id":"` + ada + `","xp":1,"x":` + strings.Repeat("[", 120) + strings.Repeat("]", 120) + `}`,
		"a number": `{"id":"` + ada + `","xp":1` + strings.Repeat("0", 990) + `}`,
	} {
		if r := of(t, Options{From: "mee6", Guild: g1}, "a.json", players(text)); r.err != nil {
			t.Errorf("%s: %v", name, r.err)
		}
	}
	wide := "id,coins,Name\n" + ada + ",1," + strings.Repeat("x", 1<<20-100) + "\n"
	if r := of(t, Options{From: "csv", Record: "wallet", Guild: g1}, "a.csv", wide); r.err != nil {
		t.Errorf("a line that is long: %v", r.err)
	}
}

package convert

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestTheGuildMayBeLeftOutWhereTheFilesNameOne(t *testing.T) {
	t.Parallel()
	const a, b = "500000000000000001", "500000000000000002"
	page := func(guild, user string) string {
		return `{"players":[{"id":"` + user + `","xp":1}],"guild":{"id":"` + guild + `"}}`
	}
	r := of(t, Options{From: "mee6"}, "a.json", page(a, ada), "b.json", page(a, bo))
	if r.ok(t); !strings.HasPrefix(r.out, `{"record":"guild","id":"`+a+`"}`+"\n") || r.report.GuildID != a {
		t.Errorf("got %s", r.out)
	}
	r = of(t, Options{From: "mee6"}, "a.json", page(a, ada), "b.json", page(b, bo))
	if r.err == nil || r.err.Error() != "the files name several guilds, "+a+", "+b+"; say which: --guild ID" {
		t.Errorf("two guilds: %v", r.err)
	}
	r = of(t, Options{From: "mee6"}, "a.json", `{"players":[{"id":"`+ada+`","xp":1}]}`)
	if r.err == nil || r.err.Error() != "the files name no guild; say which is written: --guild ID" {
		t.Errorf("no guild: %v", r.err)
	}
	r = of(t, Options{From: "mee6", SourceGuild: b}, "a.json", page(a, ada))
	if r.err == nil || r.err.Error() != "a.json: names guild "+a+" and not "+b+"; if that is the one to take, say so: --source-guild ID" {
		t.Errorf("not that guild: %v", r.err)
	}
	if _, ok := errors.AsType[*UsageError](r.err); ok {
		t.Error("files of another guild are wrong usage; they are bad input")
	}
	// The community has moved to another guild.
	r = of(t, Options{From: "mee6", SourceGuild: b, Guild: a}, "a.json", page(b, ada))
	same(t, "moved", r.ok(t), levelLine(ada, 1))
	r = of(t, Options{From: "discord-giveaways", SourceGuild: g1}, "a.json", "["+giveaway("1", "")+","+strings.Replace(giveaway("2", ""), g1,
		b, 1)+"]")
	if out := r.ok(t); strings.Count(out, "\n") != 1 || !strings.Contains(out, `"guild_id":"`+g1+`"`) || !r.report.Clean() {
		t.Errorf("one of two guilds: %s", r.out)
	}
	if r.report.Files[0].Items != 1 {
		t.Errorf("%d items", r.report.Files[0].Items)
	}
}

func TestAFileOfAnotherGuildAmongOthersIsAnError(t *testing.T) {
	t.Parallel()
	page := func(guild string) string {
		return `{"players":[{"id":"` + ada + `","xp":1,"guild_id":"` + guild + `"}]}`
	}
	r := of(t, Options{From: "mee6", Guild: g1}, "a.json", page(g1), "b.json", page("7"))
	if r.err == nil || !strings.HasPrefix(r.err.Error(), "b.json: line 1: /players/0/guild_id: is of guild 7, and --guild says "+g1) {
		t.Errorf("got %v", r.err)
	}
}

func TestStandardInputIsReadAsOftenAsAFormatNeeds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o    Options
		file string
	}{
		"once": {Options{From: "lurkr", Guild: "500000000000000003"}, "lurkr"}, "twice": {Options{
			From:  "zeppelin",
			Guild: "500000000000000007",
		}, "zeppelin"},
		"to find the guild": {Options{From: "modmail"}, "modmail"}, "from its end": {Options{From: "discord-tickets"}, "discord-tickets"},
	} {
		text := readFixture(t, c.file+cond(c.file == "discord-tickets", ".zip", ".json"))
		c.o.At = june
		inputs, done, err := Inputs([]string{"-"}, strings.NewReader(text))
		defer done()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		var report *Report
		err = Run(t.Context(), c.o, inputs, &out, nil, noted(&report))
		if err != nil || out.String() != readFixture(t, c.file+".out.jsonl") {
			t.Errorf("%s: %v, %s", name, err, out.String())
		}
		if err == nil && (report.Files[0].Name != "standard input" || report.Files[0].Bytes != int64(len(text))) {
			t.Errorf("%s: %+v", name, report.Files[0])
		}
	}
}

// A path that is not a regular file, such as the pipe of a shell's <(…), is read like standard
// input; its content is copied only if the format has to read it twice.
func TestAPipeWithANameIsReadAsOftenAsAFormatNeeds(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	text := readFixture(t, "zeppelin.json")
	go func() { _ = os.WriteFile(pipe, []byte(text), 0o600) }()
	r := converted(t, Options{From: "zeppelin", Guild: "500000000000000007"}, pipe)
	if r.ok(t); r.out != readFixture(t, "zeppelin.out.jsonl") {
		t.Errorf("got %s", r.out)
	}
	inputs := []*Input{{src: strings.NewReader("x")}}
	if err := hold(inputs, false); err != nil || inputs[0].src == nil || inputs[0].file != nil {
		t.Errorf("what is read once was copied (%v)", err)
	}
}

// failing is a writer that fails after n bytes.
type failing struct{ n int }

func (f *failing) Write(p []byte) (int, error) {
	if f.n -= len(p); f.n < 0 {
		return 0, errors.New("the disk is full")
	}
	return len(p), nil
}

// stages stores how much was written after each write.
type stages struct {
	bytes.Buffer
	ends []int
}

func (s *stages) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	s.ends = append(s.ends, s.Len())
	return n, err
}

// A conversion that is killed cannot write an error. The bytes that it has written to a pipe end
// inside a record, so an import refuses them.
func TestWhatLeavesBeforeTheEndStopsWithinARecord(t *testing.T) {
	t.Parallel()
	var list []string
	for i := range 6000 {
		list = append(list, player(quoted(strconv.Itoa(190320984123768833+i*i)), i*i))
	}
	inputs, done, err := Inputs([]string{"-"}, strings.NewReader(players(list...)))
	defer done()
	if err != nil {
		t.Fatal(err)
	}
	var out stages
	var report *Report
	if err := Run(t.Context(), Options{From: "mee6", Guild: g1, At: june}, inputs, &out, nil, noted(&report)); err != nil {
		t.Fatal(err)
	}
	all, last := out.String(), len(out.ends)-1
	if last < 5 || strings.Count(all, "\n") != 6001 || !strings.HasSuffix(all, "}\n") {
		t.Fatalf("%d writes, %d lines", last+1, strings.Count(all, "\n"))
	}
	for _, end := range out.ends[:last] {
		if line := all[strings.LastIndexByte(all[:end], '\n')+1 : end]; line == "" || json.Valid([]byte(line)) {
			t.Errorf("after %d bytes the last line is %q", end, line)
		}
	}
}

func TestAFailedWriteAndACancelledRunEndInAnError(t *testing.T) {
	t.Parallel()
	run := func(ctx context.Context, out, lost *failing) error {
		inputs, done, err := Inputs([]string{"testdata/zeppelin.json"}, nil)
		defer done()
		if err != nil {
			t.Fatal(err)
		}
		var report *Report
		return Run(ctx, Options{From: "zeppelin", Guild: "7", At: june}, inputs, out, lost, noted(&report))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"the guild file":    run(t.Context(), &failing{10}, &failing{1 << 20}),
		"what was left out": run(t.Context(), &failing{1 << 20}, &failing{10}),
	} {
		if err == nil || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := run(ended, &failing{1 << 20}, &failing{1 << 20}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestATableIsReadAsProgramsAndPeopleWriteIt(t *testing.T) {
	t.Parallel()
	wallet, level := Options{From: "csv", Record: "wallet", Guild: g1}, Options{From: "csv", Record: "level", Guild: g1}
	with := func(o Options, change func(*Options)) Options { change(&o); return o }
	for name, c := range map[string]struct {
		o          Options
		file, want string
	}{
		"with a mark, CRLF and semicolons": {wallet, "\xef\xbb\xbfDiscord-ID;Total\r\n" + ada + ";5\r\n", walletLine(ada, 5)},
		"with tabs":                        {wallet, "member_id\tPOINTS\n" + ada + "\t5\n", walletLine(ada, 5)},
		"with quotes":                      {wallet, "\"user id\",\"a \"\"b\"\"\",money\n\"" + ada + "\",\"x,\ny\",\"5\"\n", walletLine(ada, 5)},
		"with blank lines and no end":      {wallet, "id,coins\n\n\r\n" + ada + ",5", walletLine(ada, 5)},
		"cash and bank":                    {wallet, "id,cash,bank,total\n" + ada + ",5,7,99\n", walletLine(ada, 12)},
		"the bank": {
			with(wallet, func(o *Options) { o.Balance = "bank" }), "id,cash,bank\n" + ada + ",5,7\n",
			walletLine(ada, 7),
		},
		"coins beside one pocket": {wallet, "id,cash,balance\n" + ada + ",5,7\n", walletLine(ada, 7)},
		"by number": {
			with(wallet, func(o *Options) { o.NoHeader, o.Map = true, []string{"user_id=2", "balance=1"} }),
			"5," + ada + "\n6," + bo + "\n", walletLine(ada, 5) + walletLine(bo, 6),
		},
		"by name where two fit": {with(wallet, func(o *Options) { o.Map = []string{"user_id=User"} }), "id,User,coins\n1," + ada +
			",5\n", walletLine(ada, 5)},
		"with a separator that was named": {
			with(wallet, func(o *Options) { o.Separator = ";" }), "id;a,b,c;coins\n" + ada + ";x;5\n",
			walletLine(ada, 5),
		},
		"tab by its name":              {with(wallet, func(o *Options) { o.Separator = "tab" }), "id\tcoins,,,\n" + ada + "\t5\n", ""},
		"XP":                           {level, "id,exp,lvl\n" + ada + ",254,1\n", levelLine(ada, 254)},
		"a level alone":                {level, "id,lvl\n" + ada + ",20\n", levelLine(ada, 23850)},
		"a level where XP are missing": {level, "id,xp,level\n" + ada + ",,20\n", levelLine(ada, 23850)},
		"the level and its progress": {with(level, func(o *Options) { o.XP, o.Curve = "level", "lurkr" }), "id,xp,level\n" + ada +
			",425,3\n", levelLine(ada, 622)},
		"the level of the XP": {
			with(level, func(o *Options) { o.XP, o.Curve = "level", "lurkr" }), "id,xp\n" + ada + ",425\n",
			levelLine(ada, 622),
		},
		"with MySQL's nothing": {wallet, "id,coins,updated_at,name\n" + ada + ",5,NULL,x\n" + bo + ",6,\\N,NULL\n", walletLine(ada, 5) +
			walletLine(bo, 6)},
		"when it changed": {wallet, "id,coins,updated_at\n" + ada + ",5,2024-03-01 10:00:00\n", strings.Replace(walletLine(ada,
			5), "}", `,"updated_at":"2024-03-01T10:00:00Z"}`, 1)},
	} {
		r := of(t, c.o, "a.csv", c.file)
		if c.want == "" {
			if r.err == nil || !strings.Contains(r.err.Error(), "there is no column for balance") {
				t.Errorf("%s: %v", name, r.err)
			}
			continue
		}
		same(t, name, r.ok(t), c.want)
	}
	r := of(t, with(level, func(o *Options) { o.XP, o.Curve = "level", "lurkr" }), "a.csv", "id,xp,level\n"+ada+",425,\n")
	if r.err == nil || r.err.Error() != `a.csv: line 2: column "level": must be a whole number; it is ""` {
		t.Errorf("a level that is missing: %v", r.err)
	}
	r = of(t, with(level, func(o *Options) { o.XP = "level" }), "a.csv", "id,xp\n"+ada+",425\n")
	if r.err == nil || !strings.Contains(r.err.Error(), "--xp level: there is no column for level") {
		t.Errorf("no level and no curve: %v", r.err)
	}
	r = of(t, wallet, "a.csv", "id,coins,Name,Name\n0,1,x,y\n"+ada+",1,x,y\n")
	r.ok(t)
	if got := fmt.Sprint(r.report.NoPlace); got != "map[/Name:4]" || !strings.Contains(r.lost, `"Name":"x","Name (2)":"y"`) {
		t.Errorf("no place: %s, lost: %s", got, r.lost)
	}
}

func TestAPageOfUnbelievaBoatThatIsMissingIsWarnedOf(t *testing.T) {
	t.Parallel()
	page := func(user string, of int) string {
		return fmt.Sprintf(`{"users":[{"user_id":%q,"cash":1,"bank":0}],"total_pages":%d}`, user, of)
	}
	o := Options{From: "unbelievaboat", Guild: g1}
	r := of(t, o, "a.json", page(ada, 3), "b.json", page(bo, 3))
	same(t, "two of three", r.ok(t), walletLine(ada, 1)+walletLine(bo, 1))
	wants(t, r.report.Warnings, "of 3 pages 2 were given", 1)
	if r := of(t, o, "a.json", page(ada, 2)+"\n"+page(bo, 2)); r.err != nil || len(r.report.Warnings) != 0 {
		t.Errorf("two of two: %v, %v", r.err, r.report.Warnings)
	}
}

func TestRedsFilesAreToldByWhatIsInThem(t *testing.T) {
	t.Parallel()
	bank := func(global bool) string {
		return fmt.Sprintf(`{"384734293238749":{"GLOBAL":{"is_global":%v},"USER":{"%s":{"balance":5}},"MEMBER":{"%s":{"%s":{"balance":7},"%s"`+
			`:{"balance":null}}},"GUILD":{"%s":{"currency":"shells"}}}}`,
			global, bo, g1, ada, cy, g1)
	}
	r := of(t, Options{From: "red"}, "a.json", bank(false))
	same(t, "a bank", r.ok(t), walletLine(ada, 7)+walletLine(cy, 0))
	wants(t, r.report.LeftOut, "is of the time when the bank was global", 1)
	if r.report.NoPlace["/384734293238749/GUILD/*/currency"] != 1 {
		t.Errorf("the currency: %v", r.report.NoPlace)
	}
	// The settings record comes before the other records, wherever the settings are in the file.
	r = of(t, Options{From: "red", Settings: true}, "a.json", bank(false))
	same(t, "with settings", r.ok(t), `{"record":"settings","guild_id":"`+g1+`","economy":{"currency_name":"shells"}}`+"\n"+walletLine(ada,
		7)+walletLine(cy, 0))
	r = of(t, Options{From: "red", SourceGuild: "global", Guild: g1}, "a.json", bank(true))
	same(t, "a global bank", r.ok(t), walletLine(bo, 5))
	// In the form from before schema 2.
	r = of(t, Options{From: "red"}, "a.json", `{"1354799444":{"GUILD":{"`+g1+`":{"cases":{"4":{"action_type":"kick","user":"`+ada+
		`","created_at":1700000000.25}}}}}}`)
	if !strings.Contains(r.ok(t), `"id":"red-4","number":4,`) || !strings.Contains(r.out, `"created_at":"2023-11-14T22:13:20.250Z"`) {
		t.Errorf("an old case: %s", r.out)
	}
	r = of(t, Options{From: "red"}, "a.json", `{"5757575755":{"MEMBER":{"`+g1+`":{"`+ada+`":{"warnings":{"x1":{"description":"a","mod":`+mo+
		`}}},"`+bo+`":{"status":""}}}}}`)
	if out := r.ok(t); strings.Contains(out, "created_at") || !strings.Contains(out, `"id":"red-warning-x1","user_id"`) {
		t.Errorf("a warning whose key is no message: %s", out)
	}
	if why(r.report.Warnings, "the same one may be there twice") != nil {
		t.Error("one file is taken for two")
	}
}

func TestTicketsOfDiscordTickets(t *testing.T) {
	t.Parallel()
	const bot = "155149108183695360"
	convert := func(tickets ...string) result {
		return of(t, Options{From: "discord-tickets"}, "a.zip", zipped(t, `{"originalGuildId":"`+g1+`"}`, "tickets.jsonl", strings.Join(tickets,
			"\n")))
	}
	ticket := func(id, more string) string {
		return `{"id":"120100000000000000` + id + `","createdById":"` + ada + `","createdAt":"2024-01-28T02:00:00.000Z"` + more + `}`
	}
	r := convert(ticket("1", `,"open":true,"number":7,"closedReason":"x","closedById":"`+mo+`","closedAt":"2024-01-28T02:00:00.000Z"`),
		ticket("2", `,"open":false,"number":7,"topic":" "`),
		ticket("1", ""), strings.Replace(ticket("3", ""), ada, "0", 1))
	same(t, "tickets", r.ok(t), `{"record":"ticket","guild_id":"`+g1+
		`","id":"discord-tickets-1201000000000000001","number":7,"status":"open","opener_id":"`+ada+
		`","channel_id":"1201000000000000001","created_at":"2024-01-28T02:00:00Z"}`+"\n"+
		`{"record":"ticket","guild_id":"`+g1+`","id":"discord-tickets-1201000000000000002","status":"closed","opener_id":"`+ada+
		`","created_at":"2024-01-28T02:00:00Z"}`+"\n")
	wants(t, r.report.Changed, "has a number that another ticket has", 1)
	wants(t, r.report.LeftOut, "came twice", 1)
	wants(t, r.report.LeftOut, "about nobody", 1)
	entry := func(content, author string) string {
		r := convert(ticket("1", `,"archivedUsers":[{"userId":"`+bot+`","bot":true},{"userId":"`+mo+
			`","bot":false}],"archivedMessages":[{"id":"1201000000000000009","authorId":"`+author+
			`","content":`+content+`,"createdAt":"2024-01-28T02:00:01.000Z"}]`))
		_, line, _ := strings.Cut(strings.TrimSuffix(r.ok(t), "\n"), "\n")
		return line
	}
	for author, kind := range map[string]string{ada: "opener", mo: "staff", bot: "bot", "default": "bot", "0": "staff"} {
		if line := entry(`"{\"content\":\"a\"}"`, author); !strings.Contains(line, `"author_type":"`+kind+`"`) || strings.Contains(line,
			"author_id") != (len(author) > 10) {
			t.Errorf("%s: %s", author, line)
		}
	}
	const full = `{"content":"a","attachments":[{"url":"u"},{"url":"https://cdn.example/v?x=1","size":1}],` +
		`"embeds":[{"title":"t","description":"d"},{"description":"e"},{"title":"f"},{"color":1}]}`
	for content, want := range map[string]string{
		full: `a\n[embed] t\nd\n[embed] e\n[embed] f\nu","channel_message_id":"1201000000000000009",` +
			`"attachments":[{"name":"v","url":"https://cdn.example/v?x=1","size":1}],"created_at`,
		`"{}"`: nothing,
	} {
		if line := entry(content, ada); !strings.Contains(line, `"content":"`+want+`"`) {
			t.Errorf("%s: %s", content, line)
		}
	}
	r = convert(ticket("1", `,"questionAnswers":[{"questionId":"q","value":"a"},{"questionId":"r","value":null},{"questionId":"s","value":`+
		`"b"}],"feedback":{"rating":3,"comment":null,"userId":"`+mo+`"}`))
	if out := r.ok(t); !strings.Contains(out, `"content":"q\na\n\ns\nb"`) || !strings.Contains(out,
		`"author_type":"staff","content":"[feedback 3/5]"}`) {
		t.Errorf("answers: %s", out)
	}
}

// A member next to a mapped one that the table does not name is reported as unknown, because a real
// export may contain data there.
func TestMembersBesideAMappedOneAreUnknown(t *testing.T) {
	t.Parallel()
	thread := func(closer string) result {
		return of(t, Options{From: "modmail"}, "a.json", `[{"_id":"a","guild_id":"`+g1+`","open":false,"created_at":"2024-02-03 04:06:00",`+
			`"closed_at":"2024-02-03 04:07:00","recipient":{"id":"`+bo+`"},"messages":[],"closer":`+closer+`}]`)
	}
	r := thread(`{"id":"` + mo + `","tag":"x","team":{"name":"y"}}`)
	if !strings.Contains(r.ok(t), `"closed_by_id":"`+mo+`"`) {
		t.Errorf("got %s", r.out)
	}
	for path, want := range map[string]int64{"/*/closer/tag": 1, "/*/closer/team": 1, "/*/closer/id": 0, "/*/closer": 0} {
		if got := r.report.Unknown[path]; got != want || len(r.report.NoPlace) > 0 {
			t.Errorf("%s is counted %d times: %v, unknown %v", path, got, r.report.NoPlace, r.report.Unknown)
		}
	}
}

func TestAListInTheWayOfAnObjectIsUnknown(t *testing.T) {
	t.Parallel()
	r := of(t, Options{From: "modmail"}, "a.json", `[{"_id":"a","guild_id":"`+g1+`","open":true,"created_at":"2024-02-03 04:06:00",`+
		`"recipient":{"id":"`+bo+`"},"messages":[{"timestamp":"2024-02-03 04:06:00","author":["x","y"],"content":"b","type":"note"}]}]`)
	if r.err != nil || r.report.Unknown["/*/messages/*/author/*"] != 2 || len(r.report.NoPlace) > 0 {
		t.Errorf("%v; %v", r.err, r.report)
	}
}

func TestAWarningsKeyMakesAnIDThatFits(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]bool{52: true, 53: false} {
		r := of(t, Options{From: "red", Guild: g1}, "a.json", `{"5757575755":{"MEMBER":{"`+g1+`":{"`+ada+
			`":{"warnings":{"1203000000000000000":{"mod":`+mo+`},"`+strings.Repeat("x", length)+`":{"mod":`+mo+`}}}}}}}`)
		if (r.err == nil) != want {
			t.Errorf("a key of %d characters: %v", length, r.err)
		}
	}
}

func TestThreadsAndNotesOfModmail(t *testing.T) {
	t.Parallel()
	o := Options{From: "modmail", Guild: g1}
	r := of(t, o, "a.json", `[{"_id":{"$oid":"65bdbbf2c3d4e5f6a7b8c9d0"},"guild_id":"`+g1+
		`","open":true,"channel_id":"1203000000000000000","bot_id":"155149108183695360",`+
		`"created_at":{"$date":{"$numberLong":"1706933106000"}},"closer":null,"recipient":{"id":{"$numberLong":"`+bo+`"}},"messages":[`+
		`{"timestamp":{"$date":"2024-02-03T04:06:00Z"},"message_id":{"$numberLong":"1203000000000000001"},"author":{"id":"155149108183695360"`+
		`,"mod":true},"content":"a"},`+
		`{"timestamp":"2024-02-03 04:06:00","message_id":"1203000000000000002","author":{"id":"`+bo+
		`","mod":false},"content":"","type":"system","attachments":["https://cdn.example/old.png"]},`+
		`{"timestamp":"2024-02-03 04:06:00","message_id":null,"author":{"id":"0","mod":false},"content":"b","type":"whisper"}]}]`)
	same(t, "a thread", r.ok(t), strings.NewReplacer(`"G"`, `"`+g1+`"`, "modmail-K", "modmail-65bdbbf2c3d4e5f6a7b8c9d0").Replace(
		strings.Join([]string{
			`{"record":"ticket","guild_id":"G","id":"modmail-K","status":"open","opener_id":"` + bo +
				`","channel_id":"1203000000000000000","created_at":"2024-02-03T04:05:06Z"}`,
			`{"record":"ticket_message","guild_id":"G","ticket_id":"modmail-K","id":"modmail-K-000001","kind":"message","author_id":"155149108183` +
				`695360","author_type":"bot","content":"a","channel_message_id":"1203000000000000001","created_at":"2024-02-03T04:06:00Z"}`,
			`{"record":"ticket_message","guild_id":"G","ticket_id":"modmail-K","id":"modmail-K-000002","kind":"note","author_id":"` + bo +
				`","author_type":"opener","content":"[attachment]","channel_message_id":"1203000000000000002","attachments":[{"name":"old.png",` +
				`"url":"https://cdn.example/old.png"}],"created_at":"2024-02-03T04:06:00Z"}`,
			`{"record":"ticket_message","guild_id":"G","ticket_id":"modmail-K","id":"modmail-K-000003","kind":"note","author_type":"opener","cont` +
				`ent":"b","created_at":"2024-02-03T04:06:00Z"}`,
			"",
		}, "\n")))
	wants(t, r.report.Changed, "is a kind of message that is not known", 1)
	if len(r.report.Unknown) > 0 {
		t.Errorf("unknown: %v", r.report.Unknown)
	}
	r = of(t, o, "notes.json", `{"_id":{"$oid":"65bd"},"recipient":"`+bo+`","author":{"id":"`+mo+
		`","name":"mo"},"message":"Be kind","message_id":"1173000000000000000"}`)
	same(t, "a note", r.ok(t), `{"record":"case","guild_id":"`+g1+`","id":"modmail-note-65bd","user_id":"`+bo+`","moderator_id":"`+mo+
		`","type":"note","reason":"Be kind","status":"active","created_at":"2023-11-11T20:43:13.286Z"}`+"\n")
}

func TestGiveawaysThatRunComeOnlyWhenAskedFor(t *testing.T) {
	t.Parallel()
	all := "[" + strings.Join([]string{
		giveaway("1", `,"hostedBy":"`+mo+`","winnerIds":["`+ada+`","`+ada+`","0","`+bo+`"]`),
		giveaway("2", `,"ended":false,"endAt":1800000000000,"hostedBy":"<@!`+mo+`>"`),
		giveaway("3", `,"ended":false,"endAt":1800000000000,"pauseOptions":{"isPaused":true},"hostedBy":"ada#0001"`),
		giveaway("4", `,"ended":false`), // its end is past
		giveaway("5", `,"endAt":null,"ended":false`),
		strings.Replace(giveaway("6", ""), `"winnerCount":1`, `"winnerCount":101`, 1),
		strings.Replace(giveaway("7", ""), "A hat", " ", 1),
		giveaway("8", `,"bonusEntries":"BigInt(process.exit(1))","exemptMembers":"() => true"`),
		giveaway("9", `,"hostedBy":"<@0>"`),
	}, ",") + "]"
	ids := func(r result) (s string) {
		for line := range strings.Lines(r.ok(t)) {
			s += wordAfter(line, `"id":"discord-giveaways-120400000000000000`) + wordAfter(line, `"status":"`) + " "
		}
		return s
	}
	r := of(t, Options{From: "discord-giveaways"}, "a.json", all)
	same(t, "by default", ids(r), "1ended 8ended 9ended ")
	wants(t, r.report.LeftOut, "has not ended; --running writes it", 4)
	if !strings.Contains(r.out, `"winners":["`+ada+`","`+bo+`"],"host_id":"`+mo+`"`) {
		t.Errorf("got %s", r.out)
	}
	r = of(t, Options{From: "discord-giveaways", Running: true}, "a.json", all)
	same(t, "with those that run", ids(r), "1ended 2active 3paused 8ended 9ended ")
	wants(t, r.report.LeftOut, "its time is over", 1)
	wants(t, r.report.LeftOut, "never ends", 1)
	wants(t, r.report.LeftOut, "more than 100 winners", 1)
	wants(t, r.report.LeftOut, "has no prize", 1)
	wants(t, r.report.Changed, "names no member as its host", 1)
	wants(t, r.report.Changed, "came twice among the winners", 2)
	if strings.Count(r.out, `"host_id":"`+mo+`"`) != 2 {
		t.Errorf("got %s", r.out)
	}
}

func TestAllNotesOfACaseOfZeppelinAreItsReason(t *testing.T) {
	t.Parallel()
	r := of(t, Options{From: "zeppelin", Guild: g1}, "a.json", zeppelinCases(strings.Replace(zeppelinCase(3, 4, ada, quoted(mo),
		"2023-01-01 00:00:00"), `"notes":[]`,
		`"notes":[{"body":"a"},{"body":" "},{"body":"`+strings.Repeat("b", 1000)+`"}]`, 1)))
	if !strings.Contains(r.ok(t), `"reason":"a\n\n`+strings.Repeat("b", 996)+`…"`) {
		t.Errorf("got %s", r.out)
	}
	if !strings.Contains(r.lost, `"path":"/cases/0/notes"`) || !strings.Contains(r.lost, `a\n\n`+strings.Repeat("b", 1000)+`"`) {
		t.Errorf("what was cut is %s", r.lost)
	}
}

// The package never runs what it reads and sends nothing: its imports contain no package that
// starts programs, opens connections or uses a database.
func TestThePackageCanReachNothingButFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files (%v)", len(files), err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			ours := strings.HasPrefix(path, "guildhall/") && !slices.Contains(
				[]string{"guildhall/internal/base/schema", "guildhall/internal/base/output", "guildhall/internal/contract"}, path)
			if path == "net" || strings.HasPrefix(path, "net/") || path == "os/exec" || path == "plugin" || path == "syscall" || strings.HasPrefix(
				path, "database/") || ours {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}

func TestWhatHasAnIdOfThePlatformIsDatedByItWhereNothingElseIs(t *testing.T) {
	t.Parallel()
	zip := zipped(t, `{"originalGuildId":"`+g1+`"}`, "tickets.jsonl", `{"id":"1201000000000000001","createdById":"`+ada+
		`","createdAt":null,"archivedMessages":[{"id":"1201000000000000009","authorId":"`+ada+`","content":"{}","createdAt":null}]}`)
	for want, r := range map[string]result{
		`"created_at":"2024-01-28T03:05:13.500Z"`: of(t, Options{From: "discord-tickets"}, "a.zip", zip),
		`"created_at":"2024-02-02T15:32:30.659Z"`: of(t, Options{From: "modmail"}, "a.json",
			thread("a", `"messages":[{"message_id":"1203000000000000001","author":{"id":"`+bo+`"},"content":"a"}]`)),
		`"created_at":"2024-02-05T09:46:09.238Z"`: of(t, Options{From: "discord-giveaways"}, "a.json",
			"["+strings.Replace(giveaway("1", ""), `"startAt":1706000000000,`, "", 1)+"]"),
	} {
		if out := r.ok(t); !strings.Contains(out, want) || strings.Count(out, `"created_at"`) != strings.Count(out, "\n") {
			t.Errorf("%s is not in %s", want, out)
		}
	}
}

// A player of another guild is skipped, and the players after it on the page are not.
func TestAPageOfMee6GoesOnBehindAPlayerOfAnotherGuild(t *testing.T) {
	t.Parallel()
	player := func(user, guild string) string {
		return fmt.Sprintf(`{"id":%q,"guild_id":%q,"xp":1}`, user, guild)
	}
	pages := `[{"page":0,"players":[` + player(ada, g1) + "," + player(cy, "500000000000000099") + "," + player(bo, g1) + `]}]`
	r := of(t, Options{From: "mee6", Guild: g1, SourceGuild: g1}, "pages.json", pages)
	if out := r.ok(t); !strings.Contains(out, ada) || !strings.Contains(out, bo) || strings.Contains(out, cy) {
		t.Errorf("got\n%s", out)
	}
}

// The report has the digest and the size of an unpacked data.json.
func TestTheReportOfTicketsBotKnowsAFileThatWasUnpacked(t *testing.T) {
	t.Parallel()
	data := `{"guild_id":` + g1 + `,"tickets":[{"id":1,"guild_id":` + g1 + `,"user_id":` + ada +
		`,"open":true,"open_time":"2024-01-01T00:00:00Z"}]}`
	r := of(t, Options{From: "tickets-bot", Guild: g1}, "data.json", data)
	r.ok(t)
	if f := r.report.Files[0]; f.Bytes != int64(len(data)) || f.SHA256 != fmt.Sprintf("%x", sha256.Sum256([]byte(data))) {
		t.Errorf("the file is reported as %+v", f)
	}
}

package convert

import (
	"fmt"
	"strings"
	"testing"
)

// readsToo lists the fixtures that other formats read rightly: Arcane's list is in the form
// of Lurkr's, Polaris has the arrays of MEE6's players, and JSON reads whatever has coins.
var readsToo = map[string]string{"lurkr.json": "arcane", "mee6.players.json": "polaris", "unbelievaboat.json": "json"}

func TestEachFormatSaysWhatTheFileOfAnotherLooksLike(t *testing.T) {
	t.Parallel()
	for _, g := range fixtures(t) {
		for _, name := range g.files {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				text := readFixture(t, name)
				for _, f := range formats {
					if f.name == g.o.From {
						continue
					}
					o := Options{From: f.name, Guild: g.guild(t), Record: cond(f.name == "csv" || f.name == "json", "wallet", "")}
					r := of(t, o, name, text)
					switch {
					case r.err == nil && readsToo[name] != f.name:
						t.Errorf("%s reads it: %s", f.name, r.out)
					case r.err != nil && !namesFormat(r.err.Error(), name, f.name, g.o.From):
						t.Errorf("%s says %v", f.name, r.err)
					}
				}
			})
		}
	}
}

// XP of MEE6 are all of a member's. Read as Arcane's, which are those within the level, 254 XP
// would become 100.
func TestAListOfMEE6IsNotArcanes(t *testing.T) {
	t.Parallel()
	const list = `[{"id":"` + ada + `","xp":254,"level":1,"detailed_xp":[154,155,254]}]`
	const want = "a.json: line 1: holds a list of objects with id, xp, level, detailed_xp; could be mee6 or polaris: say which bot it is from"
	if r := of(t, Options{From: "arcane", Guild: g1}, "a.json", list); r.err == nil || r.err.Error() != want {
		t.Errorf("arcane: %v, %s", r.err, r.out)
	}
	same(t, "mee6", of(t, Options{From: "mee6", Guild: g1}, "a.json", list).ok(t), levelLine(ada, 254))
}

// namesFormat reports whether the error of a format that does not fit a file names the one
// that does.
func namesFormat(err, file, from, right string) bool {
	switch {
	case from == "json": // format json reads any JSON, and its error lists the paths in the file
		return strings.Contains(err, ": --path PATH") || strings.HasSuffix(err, ": --from "+right)
	case right == "json":
		return strings.Contains(err, "; --from json reads any")
	case file == "mee6.players.json":
		return strings.HasSuffix(err, "holds a list of objects with id, xp; could be mee6 or polaris: say which bot it is from")
	}
	return strings.HasSuffix(err, ": --from "+right)
}

func TestWhatIsNamedTwiceOnACommandLineIsAnError(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"--in-force: name a file; - is one of the files to read": {From: "zeppelin", Guild: g1, InForce: "-"},
		`--case-type: "ban" is given twice`:                      {From: "zeppelin", Guild: g1, CaseTypes: []string{"ban=", "Ban=kick"}},
		"--map balance says where all coins are: leave out --balance, and --map for cash and bank": {
			From: "csv", Record: "wallet", Guild: g1, Map: []string{"balance=Gold", "cash=Cash"},
		},
	} {
		if err := o.Check(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestAColumnThatIsMappedStandsBeforeThoseThatAreFound(t *testing.T) {
	t.Parallel()
	o := Options{From: "csv", Record: "wallet", Guild: g1, Map: []string{"balance=Gold"}}
	same(t, "wallet", of(t, o, "a.csv", "id,cash,bank,Gold\n"+ada+",1,2,40\n").ok(t), walletLine(ada, 40))
	o.Map = []string{"balance=id"}
	same(t, "wallet", of(t, o, "a.csv", "id,user,Gold\n40,"+ada+",1\n").ok(t), walletLine(ada, 40))
	const want = `a.csv: column "1" is named for user_id and for another; give each its own --map`
	o.Map, o.NoHeader = []string{"balance=1", "user_id=1"}, true
	if r := of(t, o, "a.csv", ada+",1\n"); r.err == nil || r.err.Error() != want {
		t.Errorf("got %v, want %s", r.err, want)
	}
}

func TestTwoRowsWithTheNumberOfOneCaseAreAnError(t *testing.T) {
	t.Parallel()
	const want = `a.csv: line 3: column "number": case 7 comes twice, first on line 2; leave one row of each case`
	r := of(t, Options{From: "csv", Record: "case", Guild: g1}, "a.csv", "user,type,number\n"+ada+",warn,7\n"+bo+",ban,7\n")
	if r.err == nil || r.err.Error() != want {
		t.Errorf("got %v, want %s", r.err, want)
	}
}

// A file may have any number of long names. A report shortens them and lists only a few.
func TestAReportHasNoRoomForNamesWithoutEnd(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 1000)
	for name, text := range map[string]string{
		"a member":       players(`{"id":"` + ada + `","xp":"-1","` + long + `":1}`),
		"one beside it":  `{"` + long + `":1,"players":[` + player(quoted(ada), -1) + `]}`,
		"below no place": `{"guild":{"` + long + `":1},"players":[{"` + long + `":[1],"id":"` + ada + `","xp":1}]}`,
	} {
		r := of(t, Options{From: "mee6", Guild: g1}, "a.json", text)
		r.ok(t)
		var b strings.Builder
		if err := r.report.JSON(&b); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), long[:150]) || !strings.Contains(b.String(), long[:80]) {
			t.Errorf("%s: the report is %s", name, b.String())
		}
	}
	r := of(t, Options{From: "mee6", Guild: g1}, "a.json", players(`{"id":"`+ada+`","xp":1,"z":{"`+long+`":[{"x":1,"x":2}]}}`))
	if r.err == nil || len(r.err.Error()) > 300 {
		t.Errorf("the error is %v", r.err)
	}
}

func TestAMemberThatComesAgainAmongManyIsAnError(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, `"m%d":%d,`, i, i)
	}
	r := of(t, Options{From: "mee6", Guild: g1}, "a.json", players(`{"id":"`+ada+`",`+many.String()+`"xp":1,"m150":2}`))
	if r.err == nil || !strings.HasSuffix(r.err.Error(), `member "m150" must be given once`) {
		t.Errorf("got %v", r.err)
	}
	of(t, Options{From: "mee6", Guild: g1}, "a.json", players(`{"id":"`+ada+`",`+many.String()+`"xp":1}`)).ok(t)
}

// An object where a list is expected is an error, and so is a text where a boolean is expected.
func TestAListThatIsNoneAndATruthThatIsNoneAreErrors(t *testing.T) {
	t.Parallel()
	zip := func(more string) string {
		return zipped(t, `{"originalGuildId":"`+g1+`"}`, "tickets.jsonl", strings.TrimSuffix(oneTicket, "}")+more+"}")
	}
	warned := func(w string) string {
		return `{"5757575755":{"MEMBER":{"` + g1 + `":{"` + ada + `":{"warnings":` + w + `}}}}}`
	}
	for _, c := range []struct{ from, text, want string }{
		{"modmail", thread("a", `"messages":{"0":{}}`), `/messages: must be a list; it is an object`},
		{"modmail", thread("a", `"messages":"x"`), `/messages: must be a list; it is "x"`},
		{"modmail", strings.Replace(thread("a", `"messages":[]`), "false", `"true"`, 1), `/open: must be true or false; it is "true"`},
		{"modmail", thread("a", `"messages":[{"author":{"id":"`+bo+`","mod":1}}]`), `/messages/0/author/mod: must be true or false; it is 1`},
		{"red", warned(`[{"description":"Late"}]`), `/warnings: must be an object; it is a list`},
		{"red", `{"384734293238749":{"GLOBAL":{"is_global":"yes"}}}`, `/GLOBAL/is_global: must be true or false; it is "yes"`},
		{"discord-giveaways", "[" + giveaway("1", `,"ended":"true"`) + "]", `/0/ended: must be true or false; it is "true"`},
		{"discord-giveaways", "[" + giveaway("1", `,"pauseOptions":{"isPaused":0}`) + "]", `/isPaused: must be true or false; it is 0`},
		{"discord-tickets", zip(`,"open":1`), `/open: must be true or false; it is 1`},
		{
			"discord-tickets", zip(`,"archivedUsers":[{"userId":"` + bo + `","bot":"no"}]`),
			`/archivedUsers/0/bot: must be true or false; it is "no"`,
		},
	} {
		r := of(t, Options{From: c.from, Guild: g1, SourceGuild: ""}, "a.json", c.text)
		if r.err == nil || !strings.HasSuffix(r.err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.from, r.err, c.want)
		}
	}
}

func TestACurveOfPolarisWithoutLevelsIsAnError(t *testing.T) {
	t.Parallel()
	r := of(t, Options{From: "polaris", Guild: g1}, "a.json", `{"users":{"`+ada+`":{"xp":5}},`+"\n"+`"settings":{"curve":{"1":0}}}`)
	if r.err == nil || r.err.Error() != "a.json: line 2: /settings/curve: level 1 has to begin above 0 XP; name the curve with --curve" {
		t.Errorf("got %v", r.err)
	}
	of(t, Options{From: "polaris", Guild: g1, Curve: "mee6"}, "a.json", `{"users":{"`+ada+`":{"xp":5}},"settings":{"curve":{"1":0}}}`).ok(t)
}

// The members of an open ticket about its closing have no meaning. Such members are counted.
func TestWhatAStateLeavesWithoutMeaningIsCounted(t *testing.T) {
	t.Parallel()
	comment := `{"originalGuildId":"` + g1 + `"}`
	closed := `,"open":true,"closedById":"` + mo + `","closedReason":"Solved","closedAt":"2024-02-01T00:00:00Z"}`
	for _, c := range []struct {
		from, text string
		want       []string
	}{
		{
			"modmail", strings.Replace(thread("a", `"closer":{"id":"`+mo+`"},"close_message":"Thanks","messages":[`+
				message("7", mo, "a")+","+message("7", mo, "b")+"]"), "false", "true", 1),
			[]string{
				"/closer of a thread that is open", "/close_message of a thread that is open", "/closed_at of a thread that is open",
				"/message_id of a message that came before",
			},
		},
		{
			"discord-tickets", zipped(t, comment, "tickets.jsonl", strings.TrimSuffix(oneTicket, "}")+closed),
			[]string{
				"/closedById of a ticket that is open", "/closedReason of a ticket that is open", "/closedAt of a ticket that is open",
			},
		},
	} {
		r := of(t, Options{From: c.from, Guild: g1}, "a.json", c.text)
		r.ok(t)
		for _, path := range c.want {
			if r.report.NoPlace[path] != 1 {
				t.Errorf("%q is counted %d times in %v", path, r.report.NoPlace[path], r.report.NoPlace)
			}
		}
	}
}

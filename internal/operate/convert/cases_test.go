package convert

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// casesOf returns the cases of a table with user, type, time and end.
func casesOf(t *testing.T, o Options, rows string) (map[string]caseRecord, result) {
	t.Helper()
	o.From, o.Record, o.Guild, o.Moderator = "csv", "case", g1, mo
	r := of(t, o, "a.csv", "user,type,date,until,reason\n"+rows)
	all := map[string]caseRecord{}
	for line := range strings.Lines(r.ok(t)) {
		var c caseRecord
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		all[c.ID] = c
	}
	return all, r
}

func at(s *stamp) string {
	if s == nil {
		return ""
	}
	return s.String()
}

func TestWhatIsOverComesInAsOver(t *testing.T) {
	t.Parallel()
	all, r := casesOf(t, Options{}, strings.Join([]string{
		ada + ",ban,2024-01-01 00:00:00,,", // 1
		ada + ",mute,2024-01-01 00:00:00,,",
		ada + ",timeout,2024-01-01 00:00:00,,",
		ada + ",mute,2024-01-01 00:00:00,2024-06-01 00:00:00,", // 4: ends now
		ada + ",mute,2024-01-01 00:00:00,2024-06-01 00:00:01,",
		ada + ",ban,2024-01-01 00:00:00,2024-02-01 00:00:00,", // 6
		ada + ",ban,2024-01-01 00:00:00,2025-02-01 00:00:00,",
		ada + ",warn,2024-01-01 00:00:00,2024-02-01 00:00:00,", // 8
		ada + ",warn,2024-01-01 00:00:00,,",
		ada + ",kick,2024-01-01 00:00:00,,", // 10
	}, "\n"))
	for id, want := range map[string]string{
		"csv-1": "active", "csv-2": "expired", "csv-3": "expired", "csv-4": "expired", "csv-5": "active", "csv-6": "expired", "csv-7": "active",
		"csv-8": "expired", "csv-9": "active", "csv-10": "active",
	} {
		if got := all[id].Status; got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	wants(t, r.report.Warnings, "says no end and comes in as over", 2)
}

func TestAnUnbanEndsEveryBanBeforeIt(t *testing.T) {
	t.Parallel()
	all, r := casesOf(t, Options{}, strings.Join([]string{
		ada + ",unban,2024-03-01 00:00:00,,Appeal", // 1: before its ban in the file
		ada + ",ban,2024-01-01 00:00:00,,",         // 2
		ada + ",ban,2024-02-01 00:00:00,,",         // 3: also before 1
		ada + ",ban,2024-04-01 00:00:00,,",         // 4: after 1
		ada + ",mute,2024-02-15 00:00:00,2025-01-01 00:00:00,",
		bo + ",ban,2024-02-20 00:00:00,,",                    // 6: another member
		bo + ",unmute,2024-03-01 00:00:00,,",                 // 7: there is no mute to end
		cy + ",ban,2024-01-01 00:00:00,2024-01-15 00:00:00,", // 8: ended before 9
		cy + ",unban,2024-03-01 00:00:00,,",                  // 9
		dee + ",timeout,2024-01-01 00:00:00,2024-12-01 00:00:00,",
		dee + ",unmute,2024-02-01 00:00:00,,", // 11
		dee + ",unmute,2024-02-02 00:00:00,,", // 12: the second unmute
		mo + ",ban,2024-01-01 00:00:00,2024-03-01 00:00:00,",
		mo + ",unban,2024-03-01 00:00:00,,", // case 14 begins exactly when case 13 ends
	}, "\n"))
	for id, want := range map[string]string{
		"csv-2": "revoked 2024-03-01T00:00:00Z", "csv-3": "revoked 2024-03-01T00:00:00Z",
		"csv-4": "active ", "csv-5": "active ", "csv-6": "active ", "csv-8": "expired ",
		"csv-10": "revoked 2024-02-01T00:00:00Z", "csv-13": "expired ",
	} {
		if got := all[id].Status + " " + at(all[id].UpdatedAt); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	if got := at(all["csv-10"].ExpiresAt); got != "2024-12-01T00:00:00Z" {
		t.Errorf("a revoked timeout ends at %q", got)
	}
	if len(all) != 8 {
		t.Errorf("%d cases were written: %v", len(all), all)
	}
	if n := r.report.NoPlace["the reason of what ends a ban"]; n != 1 {
		t.Errorf("the reason of an unban is counted %d times: %v", n, r.report.NoPlace)
	}
	wants(t, r.report.LeftOut, "ends a mute that is not in the input", 1)
	wants(t, r.report.LeftOut, "ends a mute that was ended before", 1)
	wants(t, r.report.LeftOut, "ends a ban that was over already", 2)
	if !strings.Contains(r.lost, `"reason":"Appeal"`) {
		t.Errorf("the reason of the unban is lost: %s", r.lost)
	}
}

// An unban that ended a ban is stored in the ban's status, so a conversion with --strict accepts
// it.
func TestAnUnbanThatEndedABanIsNoChange(t *testing.T) {
	t.Parallel()
	file := `{"cases":[
		{"case_number":1,"user_id":"` + ada + `","mod_id":"` + mo + `","type":1,"created_at":"2024-01-01 00:00:00","notes":[]},
		{"case_number":2,"user_id":"` + ada + `","mod_id":"` + mo + `","type":2,"created_at":"2024-02-01 00:00:00",
		 "notes":[{"mod_id":"` + mo + `","body":"Appeal","created_at":"2024-02-01 00:00:00"}]}]}`
	r := of(t, Options{From: "zeppelin", Guild: "7", Strict: true}, "cases.json", file)
	if out := r.ok(t); strings.Count(out, "\n") != 1 || !strings.Contains(out, `"status":"revoked"`) {
		t.Errorf("written was %s", out)
	}
	for _, what := range []string{"moderator", "reason"} {
		if n := r.report.NoPlace["the "+what+" of what ends a ban"]; n != 1 {
			t.Errorf("the %s of the unban is counted %d times: %v", what, n, r.report.NoPlace)
		}
	}
	if !strings.Contains(r.lost, `"body":"Appeal"`) {
		t.Errorf("the reason of the unban is lost: %s", r.lost)
	}
	file = strings.Replace(file, `"type":1`, `"type":6`, 1)
	if r := of(t, Options{From: "zeppelin", Guild: "7", Strict: true}, "cases.json", file); !errors.Is(r.err, ErrStrict) {
		t.Errorf("an unban that ended nothing passes: %v", r.err)
	}
}

func TestWhatIsInForceHoldsNow(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "now.csv")
	file := "user_id,type,expires_at\n" + ada + ",mute,2030-01-01 00:00:00\n" + bo + ",timeout,\n" + cy + ",ban,2030-01-01 00:00:00\n" +
		dee + ",mute,2024-05-01 00:00:00\n" + mo + ",ban,\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	all, r := casesOf(t, Options{InForce: path}, strings.Join([]string{
		ada + ",mute,2024-02-01 00:00:00,,", // 1: the last mute
		ada + ",mute,2024-01-01 00:00:00,,",
		bo + ",mute,2024-01-01 00:00:00,,", // 3
		cy + ",ban,2024-01-01 00:00:00,,",  // 4
		cy + ",unban,2024-02-01 00:00:00,,",
		dee + ",mute,2024-01-01 00:00:00,,", // 6
	}, "\n"))
	for id, want := range map[string]string{
		"csv-1": "active 2030-01-01T00:00:00Z", "csv-2": "expired ", "csv-3": "active ", "csv-4": "active 2030-01-01T00:00:00Z",
		"csv-6": "expired 2024-05-01T00:00:00Z",
	} {
		if got := all[id].Status + " " + at(all[id].ExpiresAt); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	if f := wants(t, r.report.LeftOut, "holds now, but its case is not in the input", 1); f.First[0].File != path || f.First[0].Line != 6 {
		t.Errorf("the place is %+v", f.First[0])
	}
	for row, want := range map[string]string{
		ada + ",warn,\n":                       `line 2: column "type": must be ban, mute or timeout; it is "warn"`,
		ada + ",mute,soon\n":                   `line 2: column "expires_at": must be a date and time`,
		ada + ",mute,\n" + ada + ",timeout,\n": "comes twice",
		"ada,mute,\n":                          "must be an id of digits",
	} {
		if err := os.WriteFile(path, []byte("user_id,type,expires_at\n"+row), 0o600); err != nil {
			t.Fatal(err)
		}
		r := of(t, Options{From: "csv", Record: "case", Guild: g1, InForce: path}, "a.csv", "id,type\n"+ada+",mute\n")
		if r.err == nil || !strings.Contains(r.err.Error(), want) {
			t.Errorf("%q: %v, want %q", row, r.err, want)
		}
	}
	// The mute of the fixture, as in the document.
	if err := os.WriteFile(path, []byte("user_id,type,expires_at\n"+bo+",mute,2030-01-01 00:00:00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	z := converted(t, Options{From: "zeppelin", Guild: "500000000000000007", InForce: path}, "testdata/zeppelin.json")
	if !strings.Contains(z.ok(t), `"id":"zeppelin-3","number":3,"user_id":"`+bo+
		`","moderator_id":"500000000000000007","type":"mute","reason":"","status":"active","expires_at":"2030-01-01T00:00:00Z"`) {
		t.Errorf("got %s", z.out)
	}
}

func TestAKindThatGuildhallHasNotIsANoteThatNamesIt(t *testing.T) {
	t.Parallel()
	all, r := casesOf(t, Options{CaseTypes: []string{"Pardon=note", "spam =kick", "fine="}}, strings.Join([]string{
		ada + ",Softban,2024-01-01 00:00:00,,Clean up", ada + ",hackban,2024-01-01 00:00:00,,a", ada + ",tempban,2024-01-01 00:00:00,,a",
		ada + ",forceban,2024-01-01 00:00:00,,a", ada + ",WARNING,2024-01-01 00:00:00,,a", ada + ",tempmute,2024-01-01 00:00:00,,a",
		ada + ",jail time,2024-01-01 00:00:00,,a", ada + ",pardon,2024-01-01 00:00:00,,a", ada + ",Spam,2024-01-01 00:00:00,,a",
		ada + ",fine,2024-01-01 00:00:00,,a", ada + ",jail time,2024-01-01 00:00:00,,",
	}, "\n"))
	for id, want := range map[string]string{
		"csv-1": "kick [Softban] Clean up", "csv-2": "ban a", "csv-3": "ban a", "csv-4": "ban a", "csv-5": "warn a", "csv-6": "mute a",
		"csv-7": "note [jail time] a", "csv-8": "note a", "csv-9": "kick a", "csv-11": "note [jail time]",
	} {
		if got := all[id].Type + " " + all[id].Reason; got != want {
			t.Errorf("%s is %q, want %q", id, got, want)
		}
	}
	wants(t, r.report.Changed, `"softban" became a kick`, 1)
	wants(t, r.report.Changed, `"jail time" became a note`, 2)
	wants(t, r.report.LeftOut, "--case-type leaves out", 1)
	for kind, want := range map[string]string{
		"smute": "mute", "vmute": "mute", "cmute": "mute", "voiceban": "mute", "filterban": "ban", "vkick": "note", "filterhit": "note",
		"unwarned": "note",
	} {
		r := of(t, Options{From: "red", Guild: g1}, "a.json", redCase(kind, ""))
		if !strings.Contains(r.ok(t), `"type":"`+want+`"`) {
			t.Errorf("%s became %s", kind, r.out)
		}
	}
	for _, kind := range []string{"sunmute", "vunmute", "cunmute", "voiceunban", "unmute", "unban"} {
		r := of(t, Options{From: "red", Guild: g1}, "a.json", redCase(kind, `,"9":{"action_type":"warn","user":`+ada+`,"created_at":1700000000}`))
		wants(t, r.report.LeftOut, "is not in the input", 1)
	}
}

func redCase(kind, more string) string {
	return `{"1354799444":{"CASES":{"` + g1 + `":{"1":{"action_type":"` + kind + `","user":` + ada + `,"moderator":` + mo +
		`,"created_at":1700000000}` + more + `}}}}`
}

func TestCasesKeepTheirNumbersOrGetTheGuildsNextOnes(t *testing.T) {
	t.Parallel()
	table := "case id;user;type\n7;" + ada + ";warn\n;" + bo + ";warn\n"
	r := of(t, Options{From: "csv", Record: "case", Guild: g1}, "a.csv", table)
	if out := r.ok(t); !strings.Contains(out, `"id":"csv-7","number":7,`) || !strings.Contains(out, `"id":"csv-row-2","user_id"`) {
		t.Errorf("got %s", out)
	}
	r = of(t, Options{From: "csv", Record: "case", Guild: g1, Numbers: "new"}, "a.csv", table)
	if out := r.ok(t); !strings.Contains(out, `"id":"csv-7","user_id"`) || strings.Contains(out, `"number"`) {
		t.Errorf("got %s", out)
	}
	r = converted(t, Options{From: "discord-tickets", Numbers: "new"}, "testdata/discord-tickets.zip")
	if strings.Contains(r.ok(t), `"number"`) {
		t.Errorf("got %s", r.out)
	}
	// The numbers of cases without numbers continue in the second file.
	r = of(t, Options{From: "csv", Record: "case", Guild: g1}, "a.csv", "user,type\n"+ada+",warn\n", "b.csv", "user,type\n"+bo+",warn\n")
	if out := r.ok(t); !strings.Contains(out, `"id":"csv-1"`) || !strings.Contains(out, `"id":"csv-2"`) {
		t.Errorf("got %s", out)
	}
	wants(t, r.report.Changed, "number", 0)
	r = of(t, Options{From: "csv", Record: "case", Guild: g1}, "a.csv", "number,user,type,moderator\n4503599627370495,"+ada+",warn,"+mo+"\n")
	if out := r.ok(t); !strings.Contains(out, `"number":4503599627370495`) {
		t.Errorf("got %s", out)
	}
	for heads, want := range map[string]string{
		"moderator": `column "moderator": must be an id of digits`, "date": `column "date": must be a date and time`,
	} {
		r := of(t, Options{From: "csv", Record: "case", Guild: g1}, "a.csv", "user,type,"+heads+"\n"+ada+",warn,mo#1\n")
		if r.err == nil || !strings.Contains(r.err.Error(), want) {
			t.Errorf("%s: %v", heads, r.err)
		}
	}
	undated := strings.Replace(zeppelinCases(zeppelinCase(1, 4, ada, "null", "x")), `"x"`, "{}", 1)
	r = of(t, Options{From: "zeppelin", Guild: g1}, "a.json", undated)
	if r.err == nil || !strings.Contains(r.err.Error(), "/cases/0/created_at: must be a date and time") {
		t.Errorf("an object as an instant: %v", r.err)
	}
	for _, number := range []string{"0", "-1", "1.5", "x", "4503599627370496"} {
		r := of(t, Options{From: "csv", Record: "case", Guild: g1}, "a.csv", "number,user,type\n"+number+","+ada+",warn\n")
		if r.err == nil || !strings.Contains(r.err.Error(), `column "number": must be a whole number`) {
			t.Errorf("%s: %v", number, r.err)
		}
	}
}

func TestCasesOfOneInstantOrOfNoneAreTakenInTheOrderOfTheFile(t *testing.T) {
	t.Parallel()
	const same = ",2024-01-01 00:00:00,,\n"
	all, r := casesOf(t, Options{}, ada+",ban"+same+ada+",unban"+same+bo+",unban"+same+bo+",ban"+same)
	if all["csv-1"].Status != "revoked" || all["csv-4"].Status != "active" {
		t.Errorf("got %+v", all)
	}
	wants(t, r.report.LeftOut, "ends a ban that is not in the input", 1)
	all, _ = casesOf(t, Options{}, ada+",ban,,,\n"+ada+",unban,,,\n"+bo+",unban,,,\n"+bo+",ban,,,\n")
	if c := all["csv-1"]; c.Status != "revoked" || c.UpdatedAt != nil || c.CreatedAt != nil || all["csv-4"].Status != "active" {
		t.Errorf("without instants: %+v", all)
	}
}

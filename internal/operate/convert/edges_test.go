package convert

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestAnIdOfThePlatformTellsWhenItWasGiven(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"1201000000000000001": "2024-01-28T03:05:13.500Z", "100000000000000": "2015-01-01T06:37:21.857Z",
		"99999999999999": "", "7": "", "99999999999999999999999": "",
	} {
		if at := mintedAt(id); (at == nil) != (want == "") || at != nil && at.String() != want {
			t.Errorf("%s was given at %v, want %s", id, at, want)
		}
	}
	zip := zipped(t, `{"originalGuildId":"`+g1+`"}`, "tickets.jsonl", strings.Replace(oneTicket, "2024-01", "x", 1))
	r := of(t, Options{From: "discord-tickets"}, "a.zip", zip)
	if r.err == nil || !strings.Contains(r.err.Error(), "/createdAt: must be a date") {
		t.Errorf("an instant that is none: %v", r.err)
	}
}

func TestAReportShowsValuesThatAreShort(t *testing.T) {
	t.Parallel()
	for _, digits := range []int{100, 101} {
		number := "-" + strings.Repeat("7", digits-1)
		r := of(t, Options{From: "mee6"}, "a.json", players(player(quoted(ada), quoted(number))))
		r.ok(t)
		if was := r.report.Changed[0].First[0].Value; (was == nil) != (digits > 100) {
			t.Errorf("of %d characters it shows %v", digits, was)
		}
	}
	r := of(t, Options{From: "mee6"}, "a.json", players(player(quoted(ada), -7)))
	if r.ok(t); r.report.Changed[0].First[0].Value != json.Number("-7") {
		t.Errorf("a number is shown as %v", r.report.Changed[0].First[0].Value)
	}
}

// A table may have any number of columns, but a report counts at most a thousand paths separately.
func TestAReportTellsAThousandPathsApart(t *testing.T) {
	t.Parallel()
	for _, columns := range []int{1000, 1001, 1500} {
		heads, cells := "id,coins", ada+",1"
		for i := range columns {
			heads, cells = heads+fmt.Sprintf(",c%d", i), cells+","
		}
		r := of(t, Options{From: "csv", Record: "wallet", Guild: g1}, "a.csv", heads+"\n"+cells+"\n"+strings.Replace(cells, ada, bo, 1)+"\n")
		r.ok(t)
		if n := r.report.NoPlace["(others)"]; n != int64(2*(columns-1000)) || len(r.report.NoPlace) != 1000+min(columns-1000, 1) ||
			r.report.NoPlace["/c7"] != 2 {
			t.Errorf("of %d columns %d are told apart, and %d are others", columns, len(r.report.NoPlace), n)
		}
	}
	var names strings.Builder
	for i := range 1001 {
		fmt.Fprintf(&names, `"c%d":1,`, i)
	}
	r := of(t, Options{From: "mee6"}, "a.json", players(
		"{"+names.String()+`"id":"`+ada+`","xp":1}`, "\n{"+names.String()+`"id":"`+bo+`","xp":1}`))
	r.ok(t)
	if n := r.report.Unknown["(others)"]; n != 2 || r.report.Unknown["/players/*/c7"] != 2 {
		t.Errorf("unknown are %d others, and %d of one name", n, r.report.Unknown["/players/*/c7"])
	}
	if at := r.report.unknownFirst["/players/*/c7"]; at.Line != 1 || at.Path != "/players/0/c7" {
		t.Errorf("the first place is %+v", at)
	}
}

func TestWhatIsUnknownIsListedOnceThoughTheInputIsReadTwice(t *testing.T) {
	t.Parallel()
	text := strings.Replace(zeppelinCases(zeppelinCase(1, 4, ada, quoted(mo), "2023-01-01 00:00:00")), `"notes"`, `"mood":"bad","notes"`, 1)
	r := of(t, Options{From: "zeppelin", Guild: g1}, "a.json", text)
	if r.ok(t); strings.Count(r.lost, `"unknown"`) != 1 || r.report.Unknown["/cases/*/mood"] != 1 {
		t.Errorf("listed is %s, counted %v", r.lost, r.report.Unknown)
	}
}

func TestWhatStandsWhereAListHasToBeIsNoList(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"7", `"x"`, "null", "true", "{}"} {
		r := of(t, Options{From: "mee6", Guild: g1}, "a.json", `{"guild":{"id":"`+g1+`"},"players":`+list+"}")
		if r.err == nil || r.err.Error() != "a.json: line 1: holds nothing that mee6 has" {
			t.Errorf("%s: %v", list, r.err)
		}
	}
	// An object without a place in a guild file counts as one value.
	r := of(t, Options{From: "mee6", Guild: g1}, "a.json", `{"player":{"a":1,"b":{"c":2}},`+players(player(quoted(ada), 1))[1:])
	if r.ok(t); r.report.NoPlace["/player"] != 1 {
		t.Errorf("no place: %v", r.report.NoPlace)
	}
}

func TestADiskThatIsFullInTheMiddleIsAnError(t *testing.T) {
	t.Parallel()
	var list []string
	for i := range 3000 {
		list = append(list, player(quoted(fmt.Sprint(190320984123768832+i)), i))
	}
	inputs, done, err := Inputs([]string{"-"}, strings.NewReader(players(list...)))
	defer done()
	if err != nil {
		t.Fatal(err)
	}
	var report *Report
	err = Run(t.Context(), Options{From: "mee6", Guild: g1, At: june}, inputs, &failing{10}, nil, noted(&report))
	if err == nil || !strings.Contains(err.Error(), "the disk is full") || report != nil {
		t.Errorf("got %v, and the report %+v", err, report)
	}
}

func TestWhatSaysNothingIsNotUnknown(t *testing.T) {
	t.Parallel()
	for text, unknown := range map[string]int64{`7`: 1, `"x"`: 1, `true`: 1, `""`: 1, `null`: 0, `{}`: 0, `[]`: 0} {
		r := of(t, Options{From: "mee6"}, "a.json", strings.TrimSuffix(players(player(quoted(ada), 1)), "}")+`,"players":`+text+"}")
		r.ok(t)
		if n := r.report.Unknown["/players"]; n != unknown || strings.Count(r.lost, `"unknown"`) != int(unknown) {
			t.Errorf("%s: unknown is %v, and listed %s", text, r.report.Unknown, r.lost)
		}
	}
	// A value that is cut off by the end of the input does not count as a value.
	r := of(t, Options{From: "mee6", Guild: g1}, "a.json", `{"players":"x`)
	if r.err == nil || r.err.Error() != "a.json: line 1: ends too early; fetch the file again" {
		t.Errorf("cut: %v", r.err)
	}
}

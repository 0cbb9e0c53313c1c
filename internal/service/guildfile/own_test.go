package guildfile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/guildfile"
	"guildhall/internal/service/removal"
	"guildhall/internal/service/transfer"
)

const listing = `{"record":"network_listing","user_id":"666","trust_score":3,"report_count":12,"category":"scam","severity":"high",` +
	`"first_reported_at":"2023-01-01T00:00:00Z","last_reported_at":"2024-01-01T00:00:00Z"}`

// livedIn returns a guild that its bot, integrators, members and imports have filled with things of
// every kind and in every state that a guild file can contain.
func livedIn(t *testing.T) *apitest.API {
	t.Helper()
	back := apitest.New(t)
	bot := back.Bot(t).In(back.Guild)
	id := func(id string) apitest.Arg { return apitest.Path("id", id) }
	records := func(list ...string) {
		t.Helper()
		bot.Do(t, "writeRecords", `{"tell":false,"records":[`+strings.Join(list, ",")+`]}`).Want(t, 200, "")
	}
	back.Do(t, "createWebhookEndpoint", `{"delivery":"pull","events":["case.created"]}`).Want(t, 201, "")
	records(
		`{"record":"guild","name":"Harbour","icon_url":"https://cdn.example/1.png","owner_id":"77","member_count":12,"locale":"de"}`,
		`{"record":"settings","economy":{"currency_name":"stars"},"tickets":{"require_close_reason":true},"timezone":"Europe/Berlin"}`,
		`{"record":"case","id":"warned","user_id":"42","moderator_id":"77","type":"warn","reason":"spam <b>","metadata":{"a":"<b>","b":""}}`,
		`{"record":"case","id":"timed","user_id":"42","moderator_id":"77","type":"timeout","expires_at":"2040-01-01T00:00:00Z"}`,
		`{"record":"case","id":"gone","user_id":"42","moderator_id":"77","type":"ban","status":"deleted","created_at":"2020-01-01T00:00:00Z"}`,
		`{"record":"wallet","user_id":"42","balance":9007199254740991}`, `{"record":"wallet","user_id":"43","balance":0}`,
		`{"record":"member","user_id":"42","name":"Mara","joined_at":"2024-01-01T00:00:00Z","left_at":"2024-02-01T00:00:00Z",`+
			`"metadata":{"a":"b"}}`,
		`{"record":"level","user_id":"42","total_xp":4675}`, `{"record":"level","user_id":"43","total_xp":0}`,
		`{"record":"reference","reference":"order <4711> ~"}`,
		`{"record":"ticket","id":"mirrored","opener_id":"42","channel_id":"700","subject":"Roles","metadata":{"a":"b"}}`,
		`{"record":"ticket_message","ticket_id":"mirrored","channel_message_id":"901","author_type":"opener","author_id":"42","content":" "}`,
		`{"record":"ticket","id":"over","opener_id":"43","status":"closed","close_reason":"Done","closed_by_id":"77"}`,
		`{"record":"ticket","id":"live","opener_id":"42","channel_id":"701"}`,
		`{"record":"giveaway","id":"later","prize":"A hat","channel_id":"5","status":"scheduled","starts_at":"2039-01-01T00:00:00Z",`+
			`"ends_at":"2040-01-01T00:00:00Z"}`,
		`{"record":"giveaway","id":"runs","prize":"A hat","channel_id":"5","ends_at":"2040-01-01T00:00:00Z"}`,
		`{"record":"giveaway_entry","giveaway_id":"runs","user_id":"42","entries":3}`,
		`{"record":"giveaway","id":"rests","prize":"A hat","channel_id":"5","status":"paused","ends_at":"2040-01-01T00:00:00Z"}`,
		`{"record":"giveaway","id":"past","prize":"A hat","channel_id":"5","status":"ended","winners":["42"],"metadata":{"a":"b"}}`,
		`{"record":"giveaway_entry","giveaway_id":"past","user_id":"42"}`, `{"record":"giveaway_entry","giveaway_id":"past","user_id":"43"}`,
		`{"record":"giveaway","id":"drawn","prize":"A hat","channel_id":"5","ends_at":"2040-01-01T00:00:00Z"}`,
	)
	back.Do(t, "createCase", `{"type":"note","user_id":"42","moderator_id":"77","reason":"Quiet since"}`).Want(t, 201, "")
	back.Do(t, "updateCase", `{"reason":"spam","metadata":{"b":null}}`, id("warned")).Want(t, 200, "")
	back.Do(t, "adjustBalance", `{"user_id":"44","delta":7,"reference":"order-1"}`).Want(t, 200, "")
	back.Do(t, "adjustXp", `{"user_id":"44","delta":300}`).Want(t, 200, "")
	back.Do(t, "createTicketMessage", `{"content":"On it.","author_id":"77"}`, id("live")).Want(t, 201, "")
	back.Do(t, "claimTicket", `{"user_id":"77"}`, id("live")).Want(t, 200, "")
	back.Do(t, "closeTicket", `{"reason":"Done","author_id":"77"}`, id("live")).Want(t, 200, "")
	back.Do(t, "reopenTicket", `{"author_id":"77"}`, id("live")).Want(t, 200, "")
	back.Do(t, "disqualifyFromGiveaway", `{"user_ids":["99"]}`, id("runs")).Want(t, 200, "")
	back.Do(t, "rerollGiveaway", "", id("past")).Want(t, 200, "")
	back.Do(t, "endGiveaway", "", id("drawn")).Want(t, 202, "")
	ours := back.Do(t, "createGiveaway", `{"prize":"Two hats","channel_id":"5","ends_at":"2040-01-01T00:00:00Z","winner_count":2}`).
		Want(t, 201, "").Str(t, "data.id")
	records(`{"record":"giveaway_entry","giveaway_id":"`+ours+`","user_id":"42","entries":2}`,
		`{"record":"giveaway_entry","giveaway_id":"`+ours+`","user_id":"43"}`,
		`{"record":"giveaway_entry","giveaway_id":"`+ours+`","user_id":"44"}`)
	back.Do(t, "endGiveaway", "", id(ours)).Want(t, 202, "")
	dbtest.Exec(t, back.DB(), `UPDATE giveaways SET pot = 'frozen' WHERE id = $1`, ours) // as if its reactions had been read
	if err := giveaways.Draw(context.Background(), back.DB(), back.Guild, ours); err != nil {
		t.Fatal(err)
	}
	back.Do(t, "rerollGiveaway", `{"reason":"Left."}`, id(ours)).Want(t, 200, "")
	bot.Do(t, "forgetMember", `{"cases":true}`, apitest.Path("userId", "43")).Want(t, 202, "")
	if err := removal.Members(context.Background(), back.DB()); err != nil {
		t.Fatal(err)
	}
	imported(t, back.DB(), listing)
	return back
}

// kindsMoved lists the kinds in a guild file that contains everything.
var kindsMoved = []string{
	"guild", "settings", "case", "case_change", "member", "wallet", "reference", "level", "ticket", "ticket_message",
	"giveaway", "giveaway_entry", "disqualification", "giveaway_draw", "network_listing",
}

// RELIABILITY.md, Operation.
func TestAGuildsOwnExportChangesNothing(t *testing.T) {
	t.Parallel()
	api := livedIn(t)
	before := exported(t, api.DB(), api.Guild)
	lines := strings.Split(before+listing, "\n")
	rows := dbtest.Value[string](t, api.DB(), everyRow)
	for _, dry := range []bool{true, false} {
		for _, how := range []transfer.Balances{transfer.Keep, transfer.Set, transfer.Higher} {
			got := update(t, api, guildfile.Update{Balances: how, DryRun: dry}, lines...)
			for _, kind := range kindsMoved {
				if o := got[kind]; o.Unchanged == 0 || o.Created+o.Updated+o.Kept != 0 {
					t.Errorf("dry %v, balances %s: %s has %+v", dry, how, kind, o)
				}
			}
		}
	}
	if after := exported(t, api.DB(), api.Guild); after != before {
		t.Errorf("the export differs: %s", firstDifference(before, after))
	}
	if after := dbtest.Value[string](t, api.DB(), everyRow); after != rows {
		t.Errorf("what no export shows differs: %s", firstDifference(rows, after))
	}
	if n := len(imports(t, api)); n != 0 {
		t.Errorf("the audit log has %d lines of imports that changed nothing", n)
	}
}

// everyRow selects the data of giveaways and guilds that no export contains.
const everyRow = `
	SELECT (SELECT string_agg(g::text, E'\n' ORDER BY id) FROM giveaways g) || (SELECT string_agg(g::text, E'\n' ORDER BY id) FROM guilds g)
		|| (SELECT string_agg(t::text, E'\n' ORDER BY id) FROM tickets t)`

func imports(t *testing.T, api *apitest.API) []audit.Row {
	t.Helper()
	lines, err := audit.List(t.Context(), api.DB().Reader(), api.Guild, audit.Filter{Action: audit.GuildImported}, 10)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// One thing of each kind differs from the stored one.
func TestAnExportThatWasEditedChangesWhatDiffers(t *testing.T) {
	t.Parallel()
	api := livedIn(t)
	lines := strings.Split(exported(t, api.DB(), api.Guild)+listing, "\n")
	edits := map[string]func(map[string]any) bool{
		"guild":    set("name", "Haven"),
		"settings": set("timezone", "Europe/Paris"),
		"case":     set("reason", "mended"),
		"wallet":   set("balance", 11),
		"level":    set("total_xp", 12),
		"ticket":   set("subject", "mended"),
		"ticket_message": func(r map[string]any) bool {
			return r["kind"] == "message" && set("content", "mended")(r)
		},
		"giveaway": set("prize", "Three hats"),
		"giveaway_entry": func(r map[string]any) bool {
			return r["giveaway_id"] == "runs" && set("entries", 9)(r)
		},
	}
	edited := slices.Clone(lines)
	for kind, edit := range edits {
		if !editOne(t, edited, kind, edit) {
			t.Fatalf("the export has no %s to edit", kind)
		}
	}
	edited = append(edited, `{"record":"reference","guild_id":"`+api.Guild+`","reference":"order-2"}`)
	dry := update(t, api, guildfile.Update{Balances: transfer.Set, DryRun: true}, edited...)
	got := update(t, api, guildfile.Update{Balances: transfer.Set}, edited...)
	if fmt.Sprint(got) != fmt.Sprint(dry) {
		t.Errorf("the dry run says %v, the import %v", dry, got)
	}
	for _, kind := range kindsMoved {
		want := guildfile.Outcome{Record: kind, Unchanged: got[kind].Unchanged}
		switch {
		case edits[kind] != nil:
			want.Updated = 1
		case kind == "reference":
			want.Created = 1
		}
		if got[kind] != want {
			t.Errorf("it did %+v, want %+v", got[kind], want)
		}
	}
	after := exported(t, api.DB(), api.Guild)
	for _, text := range []string{
		`"Haven"`, `"Europe/Paris"`, `"mended"`, `"balance":11`, `"total_xp":12`, `"Three hats"`, `"entries":9`, `"order-2"`,
	} {
		if !strings.Contains(after, text) {
			t.Errorf("the export afterwards lacks %s", text)
		}
	}
	if told := imports(t, api); len(told) != 1 || told[0].After == nil || *told[0].After != `{"records": 10}` {
		t.Errorf("the audit log has %+v", told)
	}
}

func set(member string, value any) func(map[string]any) bool {
	return func(r map[string]any) bool { r[member] = value; return true }
}

// editOne edits the first record of a kind for which edit returns true.
func editOne(t *testing.T, lines []string, kind string, edit func(map[string]any) bool) bool {
	t.Helper()
	for i, line := range lines {
		var record map[string]any
		if line == "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if record["record"] != kind || !edit(record) {
			continue
		}
		text, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		lines[i] = string(text)
		return true
	}
	return false
}

// Draws and network listings are never changed by an import.
func TestADrawOrAListingThatDiffersIsRefused(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	imported(t, d, everything)
	var draw string
	for line := range strings.Lines(exported(t, d, "1")) {
		if strings.Contains(line, `"giveaway_draw"`) {
			draw = line
		}
	}
	const round, user = `giveaway_draw: round 2 of giveaway "g-1" of guild 1 is there already and never changes, but the line differs in `,
		`network_listing: user 666 is there already and never changes, but the line differs in `
	change := func(line, from, to string) string {
		if !strings.Contains(line, from) {
			t.Fatalf("%s has no %s", line, from)
		}
		return strings.Replace(line, from, to, 1)
	}
	for line, want := range map[string]string{
		change(draw, `"reason":"Left."`, `"reason":null`):                                            round + "reason",
		change(draw, `"drawn":["43"],"replaced":["41"]`, `"drawn":["42"],"replaced":[]`):             round + "drawn, replaced",
		change(listing, `"trust_score":3`, `"trust_score":4`):                                        user + "trust_score",
		change(listing, `"category":"scam","severity":"high"`, `"category":"spam","severity":"low"`): user + "category, severity",
	} {
		for _, dry := range []bool{true, false} {
			_, err := guildfile.Update{Balances: transfer.Keep, DryRun: dry}.Run(t.Context(), d, strings.NewReader("\n"+line), nil)
			if err == nil || err.Error() != "line 2: "+want {
				t.Errorf("dry %v: %v, want line 2: %s", dry, err, want)
			}
		}
	}
	third, another := change(draw, `"round":2`, `"round":3`), change(listing, `"666"`, `"667"`)
	// A member that a line leaves out does not differ, and a thing that occurs twice is created
	// once.
	for file, want := range map[string]guildfile.Outcome{
		change(draw, `"reason":"Left.",`, ``): {Record: "giveaway_draw", Unchanged: 1},
		third + third + draw:                  {Record: "giveaway_draw", Created: 1, Unchanged: 2},
		another + "\n" + listing:              {Record: "network_listing", Created: 1, Unchanged: 1},
	} {
		for _, dry := range []bool{true, false} {
			got, err := guildfile.Update{Balances: transfer.Keep, DryRun: dry}.Run(t.Context(), d, strings.NewReader(file), nil)
			if err != nil || !slices.Equal(got, []guildfile.Outcome{want}) {
				t.Errorf("dry %v: %+v %v, want %+v for\n%s", dry, got, err, want, file)
			}
		}
	}
	if n := dbtest.Value[int](t, d, `SELECT rounds FROM giveaways WHERE id = 'g-1'`); n != 3 {
		t.Errorf("the giveaway is in round %d, want 3", n)
	}
}

// The entries of an imported giveaway that is over are frozen, whichever kind of import it was.
func TestGiveawaysThatAreOverAreFrozenByAnUpdateToo(t *testing.T) {
	t.Parallel()
	const file = `{"record":"guild","id":"1"}
{"record":"giveaway","guild_id":"1","id":"over","prize":"x","channel_id":"5","status":"ended","winners":["42"]}
{"record":"giveaway_entry","guild_id":"1","giveaway_id":"over","user_id":"42"}
{"record":"giveaway","guild_id":"1","id":"ours","prize":"x","channel_id":"5","status":"drawing","source":"api"}
{"record":"giveaway","guild_id":"1","id":"theirs","prize":"x","channel_id":"5","status":"drawing"}
{"record":"giveaway","guild_id":"1","id":"runs","prize":"x","channel_id":"5"}
`
	const want = "ours gathering t, over frozen t, runs open f, theirs frozen t"
	for _, updates := range []bool{false, true} {
		d := dbtest.New(t).DB
		if !updates {
			imported(t, d, file)
		} else if _, err := (guildfile.Update{Balances: transfer.Keep}).Run(t.Context(), d, strings.NewReader(file), nil); err != nil {
			t.Fatal(err)
		}
		if got := dbtest.Value[string](t, d, `
			SELECT string_agg(concat_ws(' ', id, pot, drawing_at IS NOT NULL), ', ' ORDER BY id) FROM giveaways`); got != want {
			t.Errorf("updates %v: %s, want %s", updates, got, want)
		}
		_, err := guildfile.Update{Balances: transfer.Keep}.Run(t.Context(), d,
			strings.NewReader(`{"record":"giveaway_entry","guild_id":"1","giveaway_id":"over","user_id":"43"}`), nil)
		if err == nil || !strings.Contains(err.Error(), "giveaway has ended") {
			t.Errorf("updates %v: a late entry: %v", updates, err)
		}
	}
}

// A line without a number gets one that no other line of its batch uses, wherever that line is.
func TestNumbersThatAreGivenAreNobodyElses(t *testing.T) {
	t.Parallel()
	const file = `{"record":"guild","id":"1"}
{"record":"case","guild_id":"1","id":"free","user_id":"2","moderator_id":"3","type":"warn"}
{"record":"case","guild_id":"1","id":"given","user_id":"2","moderator_id":"3","type":"warn","number":1}
{"record":"ticket","guild_id":"1","id":"free","opener_id":"2"}
{"record":"ticket","guild_id":"1","id":"given","opener_id":"2","number":1}
`
	for _, updates := range []bool{false, true} {
		d := dbtest.New(t).DB
		if !updates {
			imported(t, d, file)
		} else if _, err := (guildfile.Update{Balances: transfer.Keep}).Run(t.Context(), d, strings.NewReader(file), nil); err != nil {
			t.Fatal(err)
		}
		got := dbtest.Value[string](t, d, `
			SELECT string_agg(id || ' ' || number, ', ' ORDER BY number)
			FROM (SELECT id, number FROM cases UNION ALL SELECT id, number FROM tickets) numbered`)
		if want := "given 1, given 1, free 2, free 2"; got != want {
			t.Errorf("updates %v: %s, want %s", updates, got, want)
		}
	}
}

// A draw of a file counts among the rounds of its giveaway, of which there are a thousand.
func TestARoundThatAFileGivesLeavesRoomForThoseThatFollow(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	hash := strings.Repeat("0", 64)
	file := func(round string) string {
		of := `"guild_id":"` + api.Guild + `"`
		return `{"record":"giveaway",` + of + `,"id":"g","prize":"x","channel_id":"5","status":"ended","winners":["42"]}
			{"record":"giveaway_entry",` + of + `,"giveaway_id":"g","user_id":"42"}
			{"record":"giveaway_entry",` + of + `,"giveaway_id":"g","user_id":"43"}
			{"record":"giveaway_draw",` + of + `,"giveaway_id":"g","round":` + round +
			`,"seed":"` + hash + `","entries_hash":"` + hash + `","entry_count":2}`
	}
	const most = 1000
	_, err := guildfile.Import(t.Context(), api.DB(), strings.NewReader(file(fmt.Sprint(most+1))), nil)
	if want := "line 4: giveaway_draw: round must be an integer, at least 1, at most " + fmt.Sprint(most); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	imported(t, api.DB(), file(fmt.Sprint(most-1)))
	api.Do(t, "rerollGiveaway", "", apitest.Path("id", "g")).Want(t, 200, "")
	api.WantEvent(t, "giveaway.rerolled", "")
	api.Do(t, "listGiveawayDraws", "", apitest.Path("id", "g")).Want(t, 200, fmt.Sprintf(`{"data":[{"round":%d},{"round":%d}]}`, most-1, most))
	api.Do(t, "rerollGiveaway", "", apitest.Path("id", "g")).WantError(t, 422, "too_many_rerolls")
}

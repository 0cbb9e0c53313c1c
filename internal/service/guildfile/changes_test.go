package guildfile_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/cases"
	"guildhall/internal/service/guildfile"
	"guildhall/internal/service/removal"
)

// recordedChange is a change of a case as listCaseChanges shows it.
type recordedChange struct {
	At       string
	Origin   struct{ Type string }
	AuthorID *string `json:"author_id"`
	Changes  []struct {
		Field         string
		Before, After *string
	}
}

func changesOf(t *testing.T, back *apitest.API, id string) []recordedChange {
	t.Helper()
	var page struct{ Data []recordedChange }
	back.Do(t, "listCaseChanges", "", apitest.Path("id", id), apitest.Query("per_page", "100")).
		Want(t, 200, `{"has_more":false}`).Into(t, &page)
	return page.Data
}

// textsOf returns the members of a case that changes name, as changes show them.
func textsOf(t *testing.T, back *apitest.API, id string) map[string]string {
	t.Helper()
	var answer struct{ Data map[string]any }
	back.Do(t, "getCase", "", apitest.Path("id", id)).Want(t, 200, "").Into(t, &answer)
	texts := map[string]string{"at": fmt.Sprint(answer.Data["updated_at"])}
	for _, field := range []string{"reason", "expires_at", "status", "type", "user_id", "moderator_id"} {
		if value, ok := answer.Data[field].(string); ok {
			texts[field] = value
		}
	}
	for name, value := range answer.Data["metadata"].(map[string]any) {
		texts["metadata."+name] = value.(string)
	}
	return texts
}

// leadTo fails the test unless changes, applied to the first state of a case, give the case.
func leadTo(t *testing.T, back *apitest.API, id string, first map[string]string, list []recordedChange) {
	t.Helper()
	state := maps.Clone(first)
	for i, c := range list {
		if (len(c.Changes) == 0) != (i == 0) {
			t.Errorf("change %d has %d differences", i, len(c.Changes))
		}
		for _, d := range c.Changes {
			if was, had := state[d.Field]; had != (d.Before != nil) || had && was != *d.Before {
				t.Errorf("change %d of %s begins with %v, but it was %q", i, d.Field, d.Before, was)
			}
			delete(state, d.Field)
			if d.After != nil {
				state[d.Field] = *d.After
			}
		}
		state["at"] = c.At
	}
	if is := textsOf(t, back, id); !maps.Equal(is, state) {
		t.Errorf("the changes lead to\n%v, the case is\n%v", state, is)
	}
}

// history is a case whose changes are made and forgotten at random.
type history struct {
	r         *rand.Rand
	back, bot *apitest.API
	id        string
	first     map[string]string // its first state
}

// RELIABILITY.md, Guilds. API, records, files, expiry and forgetting each change a case: its
// changes, applied to its first state, give the case, and the last bears its updated_at.
func TestTheChangesOfACaseLeadToTheCase(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			back := apitest.New(t)
			h := history{r: rand.New(rand.NewPCG(seed, 1)), back: back, bot: back.Bot(t).In(back.Guild), id: "c"}
			const made = `"id":"c","user_id":"42","moderator_id":"7","type":"warn","reason":"r","metadata":{"a":"1"}`
			switch seed % 3 {
			case 0:
				h.bot.Do(t, "writeRecords", `{"records":[{"record":"case",`+made+`}]}`).Want(t, 200, "")
			case 1:
				imported(t, back.DB(), `{"record":"case","guild_id":"`+back.Guild+`",`+made+`}`)
			default:
				h.id = back.Do(t, "createCase", `{"user_id":"42","moderator_id":"7","type":"warn","reason":"r","metadata":{"a":"1"}}`).
					Want(t, 201, "").Str(t, "data.id")
			}
			h.first = textsOf(t, back, h.id)
			for range 25 {
				h.change(t)
			}
			leadTo(t, back, h.id, h.first, changesOf(t, back, h.id))
			h.moves(t)
			h.forgetsItsMember(t)
		})
	}
}

// change changes the case by one of its doors, or forgets somebody whom the case has named.
func (h *history) change(t *testing.T) {
	t.Helper()
	n := h.r.IntN(4)
	member := []string{
		fmt.Sprintf(`"reason":"reason %d"`, n), fmt.Sprintf(`"metadata":{"a":"%d","b":null}`, n), fmt.Sprintf(`"metadata":{"b":"%d"}`, n),
		fmt.Sprintf(`"expires_at":"2040-01-01T00:00:0%d.000Z"`, n), `"expires_at":null`,
	}
	more := append(member, fmt.Sprintf(`"user_id":"4%d"`, n), fmt.Sprintf(`"moderator_id":"8%d"`, n),
		fmt.Sprintf(`"user_id":"4%d","moderator_id":"8%d"`, h.r.IntN(4), h.r.IntN(4)),
		[]string{`"type":"ban"`, `"type":"mute"`}[n%2], []string{`"status":"active"`, `"status":"revoked"`}[n%2])
	record := func(members string) {
		h.bot.Do(t, "writeRecords", `{"records":[{"record":"case","id":"`+h.id+`",`+members+`}]}`).Want(t, 200, "")
	}
	switch h.r.IntN(6) {
	case 0:
		h.back.Do(t, "updateCase", `{`+member[h.r.IntN(len(member))]+`,"author_id":"77"}`, apitest.Path("id", h.id)).Want(t, 200, "")
	case 1, 2:
		record(`"author_id":"78",` + more[h.r.IntN(len(more))])
	case 3:
		update(t, h.back, guildfile.Update{}, `{"record":"case","guild_id":"`+h.back.Guild+`","id":"`+h.id+`",`+more[h.r.IntN(len(more))]+`}`)
	case 4:
		h.forgets(t, []string{"42", "43", "7", "81", "77"}[h.r.IntN(5)])
	default:
		record(`"status":"active","expires_at":"` + time.Now().UTC().Add(-time.Hour).Truncate(time.Second).Format(time.RFC3339) + `"`)
		if err := cases.Expire(t.Context(), h.back.DB()); err != nil {
			t.Fatal(err)
		}
	}
}

// forgets has the guild forget a member, but not their cases. The member stays where the case
// still names them, and nowhere else.
func (h *history) forgets(t *testing.T, member string) {
	t.Helper()
	h.bot.Do(t, "forgetMember", "", apitest.Path("userId", member)).Want(t, 202, "")
	if err := removal.Members(t.Context(), h.back.DB()); err != nil {
		t.Fatal(err)
	}
	is, current := textsOf(t, h.back, h.id), 0
	for _, field := range []string{"user_id", "moderator_id"} {
		if is[field] == member {
			current++
			continue
		}
		if h.first[field] == member {
			h.first[field] = "1"
		}
	}
	list := changesOf(t, h.back, h.id)
	named := 0
	for _, c := range list {
		for _, d := range c.Changes {
			if d.After != nil && *d.After == member {
				named++
			}
			if d.Before != nil && *d.Before == member {
				t.Errorf("%s was forgotten, and %s still begins with them", member, d.Field)
			}
			if d.Before != nil && *d.Before == "1" && h.first[d.Field] == member { // the case is about them again
				h.first[d.Field] = "1"
			}
		}
		if c.AuthorID != nil && *c.AuthorID == member {
			t.Errorf("%s was forgotten, and is still the author of a change", member)
		}
	}
	if named > current {
		t.Errorf("%s was forgotten, and %d changes still set the case to them, want %d", member, named, current)
	}
}

// forgetsItsMember has the guild forget the member of the case with their cases. The changes
// lead from a case without texts to the case.
func (h *history) forgetsItsMember(t *testing.T) {
	t.Helper()
	h.bot.Do(t, "forgetMember", `{"cases":true}`, apitest.Path("userId", textsOf(t, h.back, h.id)["user_id"])).Want(t, 202, "")
	if err := removal.Members(t.Context(), h.back.DB()); err != nil {
		t.Fatal(err)
	}
	first := maps.Clone(h.first)
	maps.DeleteFunc(first, func(field, _ string) bool { return strings.HasPrefix(field, "metadata.") })
	first["user_id"], first["reason"] = "1", ""
	leadTo(t, h.back, h.id, first, changesOf(t, h.back, h.id))
}

// moves exports the guild and imports it elsewhere: the changes are there.
func (h *history) moves(t *testing.T) {
	t.Helper()
	file := exported(t, h.back.DB(), h.back.Guild)
	other := apitest.New(t)
	dbtest.Exec(t, other.DB(), `DELETE FROM guilds`)
	imported(t, other.DB(), file)
	is, want := storedChanges(t, other.DB(), h.id), changesOf(t, h.back, h.id)
	if len(is) == len(want)-1 { // a case that an import had brought
		want = want[1:]
	}
	if !reflect.DeepEqual(is, want) {
		t.Errorf("the changes arrive as\n%+v, want\n%+v", is, want)
	}
	update(t, other, guildfile.Update{}, strings.Split(strings.TrimSpace(file), "\n")...)
}

// storedChanges reads the changes of a case in the form of recordedChange.
func storedChanges(t *testing.T, d *db.DB, id string) (list []recordedChange) {
	t.Helper()
	text := dbtest.Value[string](t, d, `
		SELECT coalesce(jsonb_agg(jsonb_build_object('At', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'Origin', origin,
			'author_id', author_id, 'Changes', changes) ORDER BY at), '[]')::text FROM case_changes WHERE case_id = $1`, id)
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// A case that a moderator, a token, a file and its expiry have changed reads back as its creation
// and these four changes.
func TestACaseChangedByFourReadsBackAsFourChanges(t *testing.T) {
	t.Parallel()
	back := apitest.New(t)
	id := back.Do(t, "createCase", `{"user_id":"42","moderator_id":"7","type":"warn","reason":"r"}`).Want(t, 201, "").Str(t, "data.id")
	ends := time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15:04:05.000Z")
	back.Bot(t).In(back.Guild).Do(t, "writeRecords", `{"records":[{"record":"case","id":"`+id+`","expires_at":"`+ends+`","author_id":"8"}]}`).
		Want(t, 200, "")
	back.Do(t, "updateCase", `{"reason":"s"}`, apitest.Path("id", id)).Want(t, 200, "")
	update(t, back, guildfile.Update{}, `{"record":"case","guild_id":"`+back.Guild+`","id":"`+id+`","metadata":{"appeal":"no"}}`)
	if err := cases.Expire(t.Context(), back.DB()); err != nil {
		t.Fatal(err)
	}
	back.Do(t, "listCaseChanges", "", apitest.Path("id", id)).Want(t, 200, `{"has_more":false,"data":[
		{"origin":{"type":"api"},"author_id":null,"changes":[]},
		{"origin":{"type":"bot"},"author_id":"8","changes":[{"field":"expires_at","before":null,"after":"`+ends+`"}]},
		{"origin":{"type":"api"},"author_id":null,"changes":[{"field":"reason","before":"r","after":"s"}]},
		{"origin":{"type":"system"},"author_id":null,"changes":[{"field":"metadata.appeal","before":null,"after":"no"}]},
		{"origin":{"type":"system"},"author_id":null,"changes":[{"field":"status","before":"active","after":"expired"}]}]}`)
}

// A file brings the changes of the cases that it inserts. A case that is there keeps its own:
// the import is one change of it.
func TestChangesComeWithTheirCase(t *testing.T) {
	t.Parallel()
	from, to := apitest.New(t), apitest.New(t)
	dbtest.Exec(t, to.DB(), `DELETE FROM guilds`)
	bot := from.Bot(t).In(from.Guild)
	writes := func(reason string) {
		bot.Do(t, "writeRecords", `{"records":[{"record":"case","id":"c","user_id":"42","moderator_id":"7","type":"ban",
			"reason":"`+reason+`"}]}`).Want(t, 200, "")
	}
	file := func() []string { return strings.Split(strings.TrimSpace(exported(t, from.DB(), from.Guild)), "\n") }
	imported(t, to.DB(), file()[0])
	writes("a")
	writes("b")

	for _, dry := range []bool{true, false} {
		if o := update(t, to, guildfile.Update{DryRun: dry}, file()...)["case_change"]; o.Created != 2 || o.Unchanged != 0 {
			t.Errorf("dry %v: of the changes of a new case %+v", dry, o)
		}
	}
	want := storedChanges(t, from.DB(), "c")
	if is := storedChanges(t, to.DB(), "c"); !reflect.DeepEqual(is, want) {
		t.Errorf("the changes arrive as\n%+v, want\n%+v", is, want)
	}

	writes("c")
	writes("d")
	for _, dry := range []bool{true, false} {
		if o := update(t, to, guildfile.Update{DryRun: dry}, file()...)["case_change"]; o.Created != 0 || o.Unchanged != 4 {
			t.Errorf("dry %v: of the changes of a case that is there %+v", dry, o)
		}
	}
	is := storedChanges(t, to.DB(), "c")
	if !reflect.DeepEqual(is[:2], want) || len(is) != 3 {
		t.Fatalf("the changes are\n%+v, want these and one more:\n%+v", is, want)
	}
	if last := is[2]; last.Origin.Type != "system" || len(last.Changes) != 1 ||
		*last.Changes[0].Before != "b" || *last.Changes[0].After != "d" {
		t.Errorf("the import is the change %+v", last)
	}
}

package members_test

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/guildfile"
	"guildhall/internal/service/transfer"
)

func TestMain(m *testing.M) { apitest.Main(m, "Members") }

func who(user string) apitest.Arg { return apitest.Path("userId", user) }

// writeMembers writes records of members with a new bot key.
func writeMembers(t testing.TB, a *apitest.API, rest string, records ...string) *apitest.Response {
	t.Helper()
	return write(t, a.Bot(t, a.Guild).In(a.Guild), rest, records...)
}

// write writes records of members.
func write(t testing.TB, bot *apitest.API, rest string, records ...string) *apitest.Response {
	t.Helper()
	for i, r := range records {
		records[i] = `{"record":"member",` + r + `}`
	}
	return bot.Do(t, "writeRecords", `{`+rest+`"records":[`+strings.Join(records, ",")+`]}`)
}

func TestAMemberIsToldOfAndRead(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	writeMembers(t, api, "", `"user_id":"42","name":"Mara","avatar_url":"https://cdn.example.com/m.png","joined_at":"2026-05-20T17:02:00Z"`).
		Want(t, 200, `{"data":[{"record":"member","id":"42","number":null,"result":"created"}]}`)
	const mara = `{"user_id":"42","name":"Mara","avatar_url":"https://cdn.example.com/m.png",
		"joined_at":"2026-05-20T17:02:00.000Z","left_at":null,"metadata":{}}`
	api.Do(t, "getMember", "", who("42")).Want(t, 200, `{"data":`+mara+`}`)
	api.WantEvent(t, "member.joined", `{"data":{"member":`+mara+`,"changed":["name","avatar_url","joined_at"]}}`)

	writeMembers(t, api, "", `"user_id":"42","name":"Mara"`).Want(t, 200, `{"data":[{"result":"unchanged"}]}`)
	api.WantNoEvent(t)
	writeMembers(t, api, "", `"user_id":"42","name":"Mara K.","left_at":"2026-06-01T00:00:00Z"`).
		Want(t, 200, `{"data":[{"result":"updated"}]}`)
	api.WantEvent(t, "member.left", `{"data":{"member":{"name":"Mara K.","left_at":"2026-06-01T00:00:00.000Z"},"changed":["name","left_at"]}}`)
	writeMembers(t, api, "", `"user_id":"42","joined_at":"2026-05-21T00:00:00Z"`).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	api.WantEvent(t, "member.updated", `{"data":{"changed":["joined_at"]}}`)
	writeMembers(t, api, "", `"user_id":"42","joined_at":"2026-06-02T00:00:00Z"`).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	api.WantEvent(t, "member.joined", `{"data":{"changed":["joined_at"]}}`)
	writeMembers(t, api, "", `"user_id":"42","joined_at":null,"left_at":"2026-05-01T00:00:00Z","name":null`).
		Want(t, 200, `{"data":[{"result":"updated"}]}`)
	api.WantEvent(t, "member.updated", `
		{"data":{"member":{"name":null,"joined_at":"2026-06-02T00:00:00.000Z","left_at":"2026-06-01T00:00:00.000Z"},"changed":["name"]}}`)

	writeMembers(t, api, "", `"user_id":"43"`, `"user_id":"44","joined_at":"2026-05-01T00:00:00Z","left_at":"2026-05-02T00:00:00Z"`).
		Want(t, 200, "")
	api.WantEvent(t, "member.updated", `{"data":{"member":{"user_id":"43"},"changed":[]}}`)
	api.WantEvent(t, "member.updated", `{"data":{"member":{"user_id":"44"},"changed":["joined_at","left_at"]}}`)
	writeMembers(t, api, `"tell":false,`, `"user_id":"45","joined_at":"2026-05-01T00:00:00Z"`).Want(t, 200, "")
	api.WantNoEvent(t)
	api.Do(t, "getMember", "", who("46")).WantError(t, 404, "not_found")
	api.Do(t, "getMember", "", who("Mara")).WantError(t, 400, "invalid_request")
	api.Next(t).Do(t, "getMember", "", who("42")).WantError(t, 404, "not_found")
	api.As(t, "guild:read").Do(t, "getMember", "", who("42")).WantError(t, 403, "insufficient_scope")
	writeMembers(t, api, "", `"user_id":"42","if_updated_at":null`).WantError(t, 400, "invalid_request")
}

// A name or avatar that the platform shows is never refused; it is stored as far as it fits.
func TestWhatThePlatformShowsIsKeptAsFarAsItFits(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	for i, c := range []struct{ given, want string }{
		{`"name":""`, `"name":null`},
		{`"name":" \u3000\t"`, `"name":null`},
		{`"name":"  Mara  "`, `"name":"Mara"`},
		{`"name":"` + strings.Repeat("é", 130) + `"`, `"name":"` + strings.Repeat("é", 100) + `"`},
		{`"avatar_url":"http://cdn.example.com/m.png"`, `"avatar_url":null`},
		{`"avatar_url":"https://cdn.example.com/` + strings.Repeat("a", 500) + `"`, `"avatar_url":null`},
		{`"avatar_url":"https://cdn.example.com/a b"`, `"avatar_url":null`},
		{`"avatar_url":"a picture"`, `"avatar_url":null`},
		{`"avatar_url":"https://cdn.example.com/m.png"`, `"avatar_url":"https://cdn.example.com/m.png"`},
	} {
		user := fmt.Sprint(100 + i)
		writeMembers(t, api, `"tell":false,`, `"user_id":"`+user+`",`+c.given).Want(t, 200, `{"data":[{"result":"created"}]}`)
		api.Do(t, "getMember", "", who(user)).Want(t, 200, `{"data":{`+c.want+`}}`)
	}
}

// An instant in the future counts as now if it changes whether the member is present. Otherwise it
// is ignored, so that a bot with a fast clock does not change the member with each record.
func TestAnInstantThatLiesAheadIsNowOrSaysNothing(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	ahead := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	results := func(member, at string) string {
		return writeMembers(t, api, "", `"user_id":"42","`+member+`":"`+at+`"`).Want(t, 200, "").All(t, "result")[0]
	}
	var got []string
	for _, member := range []string{"joined_at", "joined_at", "left_at", "left_at", "joined_at", "joined_at"} {
		time.Sleep(2 * time.Millisecond)
		got = append(got, results(member, ahead))
	}
	if want := []string{"created", "unchanged", "updated", "unchanged", "updated", "unchanged"}; !slices.Equal(got, want) {
		t.Errorf("the records are %v, want %v", got, want)
	}
	if dbtest.Value[bool](t, api.DB(), `SELECT joined_at > now() OR left_at > now() OR joined_at <= left_at FROM members`) {
		t.Error("an instant of the member lies ahead, or the member is not present")
	}
}

func TestMembersAreListed(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	writeMembers(t, api, `"tell":false,`,
		`"user_id":"1","name":"Ada","joined_at":"2026-05-01T00:00:00Z","metadata":{"shop.id":"C:1"}`,
		`"user_id":"2","name":"ÉMILE","joined_at":"2026-05-01T00:00:00Z","left_at":"2026-05-02T00:00:00Z","metadata":{"shop.id":"C:1"}`,
		`"user_id":"3","name":"émilie"`,
		`"user_id":"4","left_at":"2026-05-02T00:00:00Z"`,
		`"user_id":"5","name":"adam"`).Want(t, 200, "")
	at := api.Do(t, "getMember", "", who("3")).Str(t, "data.updated_at")
	for query, want := range map[string]string{
		"":                                    "1 2 3 4 5",
		"per_page=2&page=2":                   "3 4",
		"present=true":                        "1 3 5",
		"present=false":                       "2 4",
		"name=ADA":                            "1 5",
		"name=%C3%A9mili":                     "3",
		"name=%C3%89MIL":                      "2 3",
		"name=%C3%A9mil&present=false":        "2",
		"user_ids=5,1,9,5":                    "1 5",
		"user_ids=1,2,4&present=false":        "2 4",
		"updated_since=2026-01-01T00:00:00Z":  "1 2 3 4 5",
		"metadata=shop.id:C:1":                "1 2",
		"metadata=shop.id:C:1&present=true":   "1",
		"metadata=shop.id:C:1&present=false":  "2",
		"metadata=shop.id:C":                  "",
		"updated_since=2126-01-01T00:00:00Z":  "",
		"updated_since=" + at + "&per_page=1": "1",
	} {
		var args []apitest.Arg
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		for name := range values {
			args = append(args, apitest.Query(name, values.Get(name)))
		}
		got := strings.Join(api.Do(t, "listMembers", "", args...).Want(t, 200, "").All(t, "user_id"), " ")
		if got != want {
			t.Errorf("%s lists %q, want %q", query, got, want)
		}
	}
	api.Do(t, "listMembers", "", apitest.Query("user_ids", "1")).Want(t, 200, `{"page":1,"per_page":100,"has_more":false}`)
	many := strings.TrimSuffix(strings.Repeat("7,", 101), ",")
	for query, place := range map[string]string{
		"user_ids=": "user_ids", "user_ids=1,,2": "user_ids", "user_ids=1,x": "user_ids", "user_ids=1, 2": "user_ids",
		"user_ids=" + many: "user_ids", "user_ids=1&page=1": "page", "user_ids=1&per_page=5": "per_page", "user_ids=1&name=a": "name",
		"name=a&metadata=b:c": "metadata", "metadata=b:c&updated_since=2026-01-01T00:00:00Z": "updated_since", "metadata=b": "metadata",
		"name=a&updated_since=2026-01-01T00:00:00Z": "updated_since", "name=": "name", "present=yes": "present", "present=1": "present",
		"metadata.x=1": "metadata.x", "page=0": "page",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		answer := api.Raw(t, "GET", "/api/v1/members?"+values.Encode(), "").WantError(t, 400, "invalid_request")
		if message := answer.Str(t, "error.message"); !strings.Contains(message, "query "+place) {
			t.Errorf("%s: %s", query, message)
		}
	}
	api.Do(t, "listMembers", "", apitest.Query("present", "yes")).WantError(t, 400, "invalid_request")
	api.As(t, "members:write").Do(t, "listMembers", "").WantError(t, 403, "insufficient_scope")
}

func TestTheMetadataOfAMemberIsChanged(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	api.Do(t, "updateMember", `{"metadata":{"shop.customer_id":"C-1","a":"b"}}`, who("42")).
		Want(t, 200, `{"data":{"user_id":"42","name":null,"joined_at":null,"metadata":{"shop.customer_id":"C-1","a":"b"}}}`)
	api.WantEvent(t, "member.updated", `{"data":{"member":{"user_id":"42"},"changed":["metadata"]}}`)
	api.Do(t, "updateMember", `{"metadata":{"a":null}}`, who("42")).Want(t, 200, `{"data":{"metadata":{"shop.customer_id":"C-1"}}}`)
	api.WantEvent(t, "member.updated", `{"data":{"changed":["metadata"]}}`)
	api.Do(t, "updateMember", `{"metadata":{"a":null}}`, who("42")).Want(t, 200, `{"data":{"metadata":{"shop.customer_id":"C-1"}}}`)
	api.WantNoEvent(t)
	writeMembers(t, api, "", `"user_id":"42","name":"Mara","metadata":{"bot.nick":"M"}`).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	api.WantEvent(t, "member.updated", `
		{"data":{"member":{"metadata":{"shop.customer_id":"C-1","bot.nick":"M"}},"changed":["name","metadata"]}}`)

	names := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(`"n%d":"v"`, i)
		}
		return `{` + strings.Join(list, ",") + `}`
	}
	api.Do(t, "updateMember", `{"metadata":`+names(48)+`}`, who("42")).Want(t, 200, "")
	api.Do(t, "updateMember", `{"metadata":{"x":"y"}}`, who("42")).WantError(t, 422, "too_much_metadata")
	writeMembers(t, api, "", `"user_id":"42","metadata":{"x":"y"}`).WantError(t, 422, "too_much_metadata")
	for _, body := range []string{
		``, `{}`, `{"metadata":null}`, `{"metadata":{"A":"b"}}`, `{"metadata":{"a":1}}`, `{"name":"x","metadata":{}}`,
		`{"metadata":` + names(101) + `}`,
	} {
		api.Do(t, "updateMember", body, who("42")).WantError(t, 400, "invalid_request")
	}
	api.As(t, "members:read").Do(t, "updateMember", `{"metadata":{}}`, who("42")).WantError(t, 403, "insufficient_scope")
}

// The same set of facts leads to the same members in any order and if repeated, whether it comes
// from the first import, the gateway or a file.
func TestInstantsEndTheSameInAnyOrder(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot, guild := api.Bot(t, api.Guild).In(api.Guild), 0
	rapid.Check(t, func(rt *rapid.T) {
		guild++
		day := func(label string) string {
			n := rapid.IntRange(0, 8).Draw(rt, label)
			if n == 0 {
				return "null"
			}
			return fmt.Sprintf(`"2026-05-%02dT00:00:00.000Z"`, n)
		}
		type fact struct{ user, joined, left string }
		var facts []fact
		latest := map[string]*[2]string{}
		for range rapid.IntRange(1, 4).Draw(rt, "facts") {
			f := fact{fmt.Sprintf("%d%03d", 1+rapid.IntRange(0, 2).Draw(rt, "user"), guild), day("joined"), day("left")}
			facts = append(facts, f)
			if latest[f.user] == nil {
				latest[f.user] = &[2]string{"null", "null"}
			}
			for i, at := range []string{f.joined, f.left} {
				if l := &latest[f.user][i]; at != "null" && (*l == "null" || at > *l) {
					*l = at
				}
			}
		}
		for _, f := range append(rapid.Permutation(facts).Draw(rt, "order"), rapid.Permutation(facts).Draw(rt, "again")...) {
			record := fmt.Sprintf(`"user_id":"%s","joined_at":%s,"left_at":%s`, f.user, f.joined, f.left)
			switch rapid.IntRange(0, 2).Draw(rt, "door") {
			case 0:
				write(t, bot, `"tell":false,`, record).Want(t, 200, "")
			case 1:
				write(t, bot, "", record).Want(t, 200, "")
			case 2:
				line := strings.NewReader(`{"record":"member","guild_id":"` + api.Guild + `",` + record + "}\n")
				if _, err := (guildfile.Update{Balances: transfer.Keep}).Run(context.Background(), api.DB(), line, nil); err != nil {
					rt.Fatal(err)
				}
			}
		}
		for user, want := range latest {
			api.Do(t, "getMember", "", who(user)).Want(t, 200, fmt.Sprintf(`{"data":{"joined_at":%s,"left_at":%s}}`, want[0], want[1]))
		}
	})
	var before, after bytes.Buffer
	for i, out := range []*bytes.Buffer{&before, &after} {
		if err := guildfile.Export(t.Context(), api.DB(), api.Guild, out); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			break
		}
		if _, err := (guildfile.Update{Balances: transfer.Keep}).Run(t.Context(), api.DB(), bytes.NewReader(before.Bytes()), nil); err != nil {
			t.Fatal(err)
		}
	}
	if before.String() != after.String() {
		t.Errorf("an export that is imported again changes members:\n%s\n%s", before.String(), after.String())
	}
}

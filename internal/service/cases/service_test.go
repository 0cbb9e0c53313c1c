package cases_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/cases"
)

func TestMain(m *testing.M) { apitest.Main(m, "Cases") }

// stored inserts a case into the client's guild.
func stored(t testing.TB, a *apitest.API, id, typ, status, user, createdAt string) {
	t.Helper()
	dbtest.Exec(t, a.DB(), `
			WITH next AS (UPDATE guilds SET last_case = last_case + 1 WHERE id = $1 RETURNING last_case)
			INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, status, source, created_at, updated_at)
			SELECT $1, $2, last_case, $3, '8', $4, '', $5, 'bot', $6, $6 FROM next`,
		a.Guild, id, user, typ, status, createdAt)
}

// ids returns the ids of a list, joined.
func ids(t testing.TB, a *apitest.Response) string {
	t.Helper()
	return strings.Join(a.Want(t, 200, ``).All(t, "id"), " ")
}

func TestCreateCase(t *testing.T) {
	t.Parallel()

	t.Run("files the case under the guild's next number", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t)
		made := api.Do(t, "createCase", `{"user_id":"42","moderator_id":"7","type":"warn","reason":"  Spam in #general\n🎉 "}`)
		made.Want(t, 201, `{"data":{"number":1,"user_id":"42","moderator_id":"7","type":"warn","reason":"  Spam in #general\n🎉 ",
			"status":"active","expires_at":null,"source":"api"}}`)
		id := made.Str(t, "data.id")
		if got, want := made.Header.Get("Location"), "/api/v1/cases/"+id; got != want {
			t.Errorf("Location is %q, want %q", got, want)
		}
		if created, updated := made.Str(t, "data.created_at"), made.Str(t, "data.updated_at"); created != updated {
			t.Errorf("created at %s, updated at %s", created, updated)
		}
		api.WantEvent(t, "case.created", `{"origin":{"type":"api"},"data":{"id":"`+id+`","number":1,"type":"warn","status":"active"}}`)
		if got := api.Do(t, "getCase", "", apitest.Path("id", id)).Want(t, 200, ``); string(got.Body) != string(made.Body) {
			t.Errorf("created %s, read %s", made.Body, got.Body)
		}
		api.Do(t, "createCase", `{"user_id":"42","moderator_id":"7","type":"note","reason":"x"}`).
			Want(t, 201, `{"data":{"number":2,"type":"note"}}`)
		api.Next(t).Do(t, "createCase", `{"user_id":"42","moderator_id":"7","type":"note","reason":"x"}`).Want(t, 201, `{"data":{"number":1}}`)
	})
	t.Run("takes a thousand code points of reason and no more", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t)
		for _, unit := range []string{"a", "é", "🎉"} {
			fits, _ := json.Marshal(strings.Repeat(unit, 1000))
			api.Do(t, "createCase", `{"user_id":"42","moderator_id":"7","type":"note","reason":`+string(fits)+`}`).
				Want(t, 201, `{"data":{"reason":`+string(fits)+`}}`)
			api.WantEvent(t, "case.created", `{"data":{"reason":`+string(fits)+`}}`)
			long, _ := json.Marshal(strings.Repeat(unit, 1001))
			api.Do(t, "createCase", `{"user_id":"42","moderator_id":"7","type":"note","reason":`+string(long)+`}`).
				WantError(t, 400, "invalid_request")
		}
		// A JSON escape counts as the character that it stands for: a surrogate pair is one
		// character.
		escaped := `{"user_id":"42","moderator_id":"7","type":"note","reason":"` + strings.Repeat(`\ud83c\udf89`, 1000) + `"}`
		api.Do(t, "createCase", escaped).Want(t, 201, `{"data":{"reason":"`+strings.Repeat("🎉", 1000)+`"}}`)
	})
	t.Run("refuses everything else", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t)
		for _, body := range []string{
			`{"user_id":"42","moderator_id":"7","type":"ban","reason":"x"}`,
			`{"user_id":"42","moderator_id":"7","type":"note"}`,
			`{"user_id":"42","moderator_id":"7","type":"note","reason":""}`,
			`{"user_id":"42","moderator_id":"7","type":"note","reason":" \t\u200b\ufeff\u00a0"}`,
			`{"user_id":"42","moderator_id":"7","type":"note","reason":"a\u0000b"}`,
			`{"user_id":"42","moderator_id":"7","type":"note","reason":"a\ud800b"}`,
			`{"user_id":"0","moderator_id":"7","type":"note","reason":"x"}`,
			`{"user_id":42,"moderator_id":"7","type":"note","reason":"x"}`,
			`{"user_id":"42","type":"note","reason":"x"}`,
			`{"user_id":"42","moderator_id":"7","type":"note","reason":"x","status":"deleted"}`,
			`{"user_id":"42","moderator_id":"7","type":"note","reason":"x","expires_at":"2026-02-30T00:00:00Z"}`,
			`{"user_id":"42","moderator_id":"7","type":"note","reason":"x","metadata":{"Upper":"x"}}`,
			`{"user_id":"42","moderator_id":"7","type":"note","reason":"x","metadata":{"":"x"}}`,
			`{"user_id":"42","moderator_id":"7","type":"note","reason":"x","metadata":{"n":1}}`,
			`{"user_id":"42","moderator_id":"7","type":"note","reason":"x","metadata":[]}`,
			`{"user_id":"42","moderator_id":"7","type":"note","reason":"x","metadata":{"a":"` + strings.Repeat("x", 501) + `"}}`,
			`{"user_id":"42","moderator_id":"7","type":"note","reason":"x","metadata":{"` + strings.Repeat("n", 41) + `":""}}`,
			`[]`, `null`, `"x"`, ``,
		} {
			if got := api.Do(t, "createCase", body); got.Status != 400 || got.Code() != "invalid_request" {
				t.Errorf("%s: got %d %s", body, got.Status, got.Body)
			}
		}
		if got := ids(t, api.Do(t, "listCases", "")); got != "" {
			t.Errorf("refused requests left the cases %s", got)
		}
		api.WantNoEvent(t)
	})
	t.Run("files one case for one key", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t)
		const body = `{"user_id":"42","moderator_id":"7","type":"note","reason":"x"}`
		first := api.Key("k").Do(t, "createCase", body).Want(t, 201, ``)
		api.Key("k").Do(t, "createCase", body).WantReplayOf(t, first)
		if got, want := ids(t, api.Do(t, "listCases", "")), first.Str(t, "data.id"); got != want {
			t.Errorf("the cases are %s, want %s", got, want)
		}
		api.WantEvent(t, "case.created", ``)
		api.WantNoEvent(t)
	})
}

func TestGetCase(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	next := api.Next(t)
	stored(t, api, "ban-1", "ban", "revoked", "42", "2026-01-02T03:04:05.678999Z")
	stored(t, api, "same-id", "note", "deleted", "42", "2026-01-02T00:00:00Z")
	stored(t, next, "same-id", "mute", "active", "42", "2026-01-02T00:00:00Z")
	stored(t, next, "theirs", "note", "active", "42", "2026-01-02T00:00:00Z")

	t.Run("shows what the bot made, too", func(t *testing.T) {
		t.Parallel()
		api.Do(t, "getCase", "", apitest.Path("id", "ban-1")).Want(t, 200, `{"data":{"id":"ban-1","number":1,"type":"ban",
			"status":"revoked","reason":"","source":"bot","created_at":"2026-01-02T03:04:05.678Z"}}`)
	})
	t.Run("keeps guilds apart", func(t *testing.T) {
		t.Parallel()
		api.Do(t, "getCase", "", apitest.Path("id", "same-id")).Want(t, 200, `{"data":{"type":"note"}}`)
		next.Do(t, "getCase", "", apitest.Path("id", "same-id")).Want(t, 200, `{"data":{"type":"mute"}}`)
		theirs := api.Do(t, "getCase", "", apitest.Path("id", "theirs")).WantError(t, 404, "not_found")
		absent := api.Do(t, "getCase", "", apitest.Path("id", "absent")).WantError(t, 404, "not_found")
		if string(theirs.Body) != string(absent.Body) {
			t.Errorf("another guild's case answers %s, an absent one %s", theirs.Body, absent.Body)
		}
	})
	t.Run("says how to find a case by its number", func(t *testing.T) {
		t.Parallel()
		number := api.Do(t, "getCase", "", apitest.Path("id", "248")).WantError(t, 404, "not_found")
		if message := number.Str(t, "error.message"); !strings.Contains(message, "GET /cases?number=248 ") {
			t.Errorf("a number in place of an id answers %q", message)
		}
	})
	t.Run("wants no query", func(t *testing.T) {
		t.Parallel()
		api.Do(t, "getCase", "", apitest.Path("id", "ban-1"), apitest.Query("x", "")).WantError(t, 400, "invalid_request")
	})
}

func TestListCases(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.Scopes("cases:read"))
	next := api.Next(t)
	// Two cases with the same instant are ordered by id.
	stored(t, api, "a", "note", "active", "42", "2026-01-01T00:00:00Z")
	stored(t, api, "b", "warn", "active", "42", "2026-01-02T00:00:00Z")
	stored(t, api, "c", "warn", "expired", "43", "2026-01-02T00:00:00Z")
	stored(t, api, "d", "ban", "deleted", "42", "2026-01-03T00:00:00.000001Z")
	stored(t, api, "e", "note", "revoked", "44", "2026-01-04T00:00:00Z")
	stored(t, next, "x", "note", "active", "42", "2026-01-05T00:00:00Z")

	for _, c := range []struct {
		name, want string
		args       []apitest.Arg
	}{
		{"everything of the guild, newest first, deleted ones too", "e d c b a", nil},
		{"a member's", "d b a", []apitest.Arg{apitest.Query("user_id", "42")}},
		{"a member without any", "", []apitest.Arg{apitest.Query("user_id", "99999999999999999999")}},
		{"a type", "c b", []apitest.Arg{apitest.Query("type", "warn")}},
		{"a status", "b a", []apitest.Arg{apitest.Query("status", "active")}},
		{"deleted ones", "d", []apitest.Arg{apitest.Query("status", "deleted")}},
		{"a type and a status", "c", []apitest.Arg{apitest.Query("type", "warn"), apitest.Query("status", "expired")}},
		{"a type and a status that do not meet", "", []apitest.Arg{apitest.Query("type", "ban"), apitest.Query("status", "active")}},
		{"a member, a type", "b", []apitest.Arg{apitest.Query("user_id", "42"), apitest.Query("type", "warn")}},
		{"a member, a status", "b a", []apitest.Arg{apitest.Query("user_id", "42"), apitest.Query("status", "active")}},
		{"all filters", "b", []apitest.Arg{
			apitest.Query("user_id", "42"), apitest.Query("type", "warn"),
			apitest.Query("status", "active"), apitest.Query("since", "2026-01-01T00:00:00.5Z"),
		}},
		{"since, inclusive", "e d c b", []apitest.Arg{apitest.Query("since", "2026-01-02T01:00:00+01:00")}},
		{"since, to the microsecond", "e d", []apitest.Arg{apitest.Query("since", "2026-01-03T00:00:00.000001Z")}},
		{"since, a microsecond later", "e", []apitest.Arg{apitest.Query("since", "2026-01-03T00:00:00.000002Z")}},
		{"since before everything", "e d c b a", []apitest.Arg{apitest.Query("since", "0001-01-01T00:00:00Z")}},
		{"since after everything", "", []apitest.Arg{apitest.Query("since", "9999-12-31T23:59:59Z")}},
		{"until, exclusive", "c b a", []apitest.Arg{apitest.Query("until", "2026-01-03T00:00:00.000001Z")}},
		{"since and until", "c b", []apitest.Arg{apitest.Query("since", "2026-01-02T00:00:00Z"), apitest.Query("until", "2026-01-03T00:00:00Z")}},
		{"a moderator's", "e d c b a", []apitest.Arg{apitest.Query("moderator_id", "8")}},
		{"a moderator without any", "", []apitest.Arg{apitest.Query("moderator_id", "9")}},
		{"a moderator, a type, a status", "c", []apitest.Arg{
			apitest.Query("moderator_id", "8"), apitest.Query("type", "warn"), apitest.Query("status", "expired"),
		}},
		{"a member, a moderator", "d b a", []apitest.Arg{apitest.Query("moderator_id", "8"), apitest.Query("user_id", "42")}},
		{"a member, another moderator", "", []apitest.Arg{apitest.Query("moderator_id", "9"), apitest.Query("user_id", "42")}},
		{"changes, in their order, inclusive", "b c d e", []apitest.Arg{apitest.Query("updated_since", "2026-01-02T00:00:00Z")}},
		{"changes of a member until", "a b", []apitest.Arg{
			apitest.Query("updated_since", "2026-01-01T00:00:00Z"), apitest.Query("user_id", "42"), apitest.Query("until", "2026-01-03T00:00:00Z"),
		}},
		{"changes with all filters", "c", []apitest.Arg{
			apitest.Query("updated_since", "2026-01-01T00:00:00Z"), apitest.Query("user_id", "43"), apitest.Query("moderator_id", "8"),
			apitest.Query("type", "warn"), apitest.Query("status", "expired"), apitest.Query("since", "2026-01-02T00:00:00Z"),
		}},
		{"the second page of changes", "c d", []apitest.Arg{
			apitest.Query("updated_since", "2026-01-01T00:00:00Z"), apitest.Query("page", "2"), apitest.Query("per_page", "2"),
		}},
		{"far past the end", "", []apitest.Arg{apitest.Query("page", "100000"), apitest.Query("per_page", "100")}},
		{"the second page of two", "c b", []apitest.Arg{apitest.Query("page", "2"), apitest.Query("per_page", "2")}},
		{"a page past the end", "", []apitest.Arg{apitest.Query("page", "4"), apitest.Query("per_page", "2")}},
		{
			"the second page of a type", "b",
			[]apitest.Arg{apitest.Query("page", "2"), apitest.Query("per_page", "1"), apitest.Query("type", "warn")},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := ids(t, api.Do(t, "listCases", "", c.args...)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	t.Run("says whether more follow", func(t *testing.T) {
		t.Parallel()
		for size, more := range map[int]bool{1: true, 4: true, 5: false, 6: false, 100: false} {
			api.Do(t, "listCases", "", apitest.Query("per_page", fmt.Sprint(size))).
				Want(t, 200, fmt.Sprintf(`{"page":1,"per_page":%d,"has_more":%t}`, size, more))
		}
		api.Do(t, "listCases", "", apitest.Query("page", "3"), apitest.Query("per_page", "2")).Want(t, 200, `{"has_more":false}`)
	})
	t.Run("refuses unknown values and names", func(t *testing.T) {
		t.Parallel()
		for _, q := range [][2]string{
			{"type", "Warn"},
			{"type", "kickban"},
			{"type", ""},
			{"status", "open"},
			{"user_id", "0"},
			{"user_id", "abc"},
			{"since", "yesterday"},
			{"since", "2026-02-30T00:00:00Z"},
			{"since", "2026-01-01T00:00:00"},
			{"since", "2026-01-01T00:00:60Z"},
			{"page", "0"},
			{"page", "100001"},
			{"page", "1.5"},
			{"per_page", "0"},
			{"per_page", "101"},
			{"per_page", "abc"},
			{"moderator_id", "eight"},
			{"until", "tomorrow"},
			{"updated_since", "2026-02-30T00:00:00Z"},
			{"userid", "8"},
		} {
			if got := api.Do(t, "listCases", "", apitest.Query(q[0], q[1])); got.Status != 400 || got.Code() != "invalid_request" {
				t.Errorf("%s=%s: got %d %s", q[0], q[1], got.Status, got.Body)
			}
		}
		api.Do(t, "listCases", "", apitest.Query("type", "note"), apitest.Query("type", "warn")).WantError(t, 400, "invalid_request")
	})
}

func TestUpdateCase(t *testing.T) {
	t.Parallel()

	t.Run("edits what is there and leaves what is absent", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t)
		stored(t, api, "c", "ban", "active", "42", "2026-01-02T00:00:00Z")
		at := apitest.Path("id", "c")
		api.Do(t, "updateCase", `{"expires_at":"2031-02-03T04:05:06.123456+02:00"}`, at).
			Want(t, 200, `{"data":{"expires_at":"2031-02-03T02:05:06.123Z","reason":"","status":"active","type":"ban",`+
				`"created_at":"2026-01-02T00:00:00.000Z"}}`)
		api.WantEvent(t, "case.updated",
			`{"origin":{"type":"api"},"data":{"id":"c","expires_at":"2031-02-03T02:05:06.123Z","changed":["expires_at"]}}`)
		api.Do(t, "updateCase", `{"reason":"again"}`, at).Want(t, 200, `{"data":{"reason":"again","expires_at":"2031-02-03T02:05:06.123Z"}}`)
		api.WantEvent(t, "case.updated", `{"data":{"reason":"again","changed":["reason"]}}`)
		api.Do(t, "updateCase", `{"expires_at":null,"reason":"last"}`, at).Want(t, 200, `{"data":{"reason":"last","expires_at":null}}`)
		api.WantEvent(t, "case.updated", `{"data":{"expires_at":null,"changed":["reason","expires_at"]}}`)
		got := api.Do(t, "getCase", "", at).Want(t, 200, `{"data":{"reason":"last","expires_at":null,"source":"bot","number":1}}`)
		if got.Str(t, "data.updated_at") < "2026-11" {
			t.Errorf("updated_at is %s", got.Str(t, "data.updated_at"))
		}
	})
	t.Run("is told of an expiry like of an edit", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t)
		stored(t, api, "c", "mute", "active", "42", "2026-01-02T00:00:00Z")
		at := apitest.Path("id", "c")
		api.Do(t, "updateCase", `{"expires_at":"2026-01-03T00:00:00Z"}`, at).Want(t, 200, `{"data":{"status":"active"}}`)
		api.WantEvent(t, "case.updated", `{"data":{"changed":["expires_at"]}}`)
		for range 2 {
			if err := cases.Expire(context.Background(), api.DB()); err != nil {
				t.Fatal(err)
			}
		}
		got := api.Do(t, "getCase", "", at).Want(t, 200, `{"data":{"status":"expired"}}`)
		api.WantEvent(t, "case.updated", `{"guild_id":"`+api.Guild+`","timestamp":"`+got.Str(t, "data.updated_at")+`",
			"origin":{"type":"system","token_id":null,"key_id":null},
			"data":{"id":"c","status":"expired","updated_at":"`+got.Str(t, "data.updated_at")+`","changed":["status"]}}`)
		api.WantNoEvent(t)
	})
	t.Run("does nothing when nothing differs", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t)
		stored(t, api, "c", "ban", "active", "42", "2026-01-02T00:00:00Z")
		at := apitest.Path("id", "c")
		api.Do(t, "updateCase", `{"expires_at":null}`, at).Want(t, 200, `{"data":{"updated_at":"2026-01-02T00:00:00.000Z"}}`)
		api.WantNoEvent(t)
		first := api.Do(t, "updateCase", `{"reason":"x","expires_at":"2031-01-01T00:00:00.0000019Z"}`, at).Want(t, 200, ``)
		api.WantEvent(t, "case.updated", `{"data":{"changed":["reason","expires_at"]}}`)
		again := api.Do(t, "updateCase", `{"reason":"x","expires_at":"2031-01-01T01:00:00.000001+01:00"}`, at)
		if string(again.Body) != string(first.Body) {
			t.Errorf("the same edit again answers %s, the first %s", again.Body, first.Body)
		}
		api.Do(t, "updateCase", `{"reason":"y","expires_at":"2031-01-01T00:00:00.000001Z"}`, at).Want(t, 200, ``)
		api.WantEvent(t, "case.updated", `{"data":{"changed":["reason"]}}`)
		api.WantNoEvent(t)
	})
	t.Run("never changes the status, not even with an expiry in the past", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t)
		for _, status := range []string{"active", "expired", "revoked"} {
			stored(t, api, status, "warn", status, "42", "2026-01-02T00:00:00Z")
			at := apitest.Path("id", status)
			for _, instant := range []string{"2001-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z"} {
				api.Do(t, "updateCase", `{"expires_at":"`+instant+`"}`, at).Want(t, 200, `{"data":{"status":"`+status+`"}}`)
				want := strings.Replace(instant, ":00Z", ":00.000Z", 1)
				want = strings.Replace(want, ".999999999Z", ".999Z", 1)
				api.WantEvent(t, "case.updated", `{"data":{"expires_at":"`+want+`"}}`)
				api.Do(t, "getCase", "", at).Want(t, 200, `{"data":{"status":"`+status+`","expires_at":"`+want+`"}}`)
			}
		}
	})
	t.Run("refuses a deleted case", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t)
		stored(t, api, "c", "note", "deleted", "42", "2026-01-02T00:00:00Z")
		api.Do(t, "updateCase", `{"reason":"x"}`, apitest.Path("id", "c")).WantError(t, 422, "case_deleted")
		api.Do(t, "updateCase", `{"expires_at":null}`, apitest.Path("id", "c")).WantError(t, 422, "case_deleted")
		api.Do(t, "getCase", "", apitest.Path("id", "c")).Want(t, 200, `{"data":{"reason":"","updated_at":"2026-01-02T00:00:00.000Z"}}`)
		api.WantNoEvent(t)
	})
	t.Run("knows no case of another guild", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t)
		next := api.Next(t)
		stored(t, next, "theirs", "note", "active", "42", "2026-01-02T00:00:00Z")
		theirs := api.Do(t, "updateCase", `{"reason":"x"}`, apitest.Path("id", "theirs")).WantError(t, 404, "not_found")
		absent := api.Do(t, "updateCase", `{"reason":"x"}`, apitest.Path("id", "absent")).WantError(t, 404, "not_found")
		if string(theirs.Body) != string(absent.Body) {
			t.Errorf("another guild's case answers %s, an absent one %s", theirs.Body, absent.Body)
		}
		next.Do(t, "getCase", "", apitest.Path("id", "theirs")).Want(t, 200, `{"data":{"reason":""}}`)
		api.WantNoEvent(t)
		next.WantNoEvent(t)
	})
	t.Run("refuses everything else", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t)
		stored(t, api, "c", "note", "active", "42", "2026-01-02T00:00:00Z")
		long, _ := json.Marshal(strings.Repeat("🎉", 1001))
		for _, body := range []string{
			`{}`, ``, `null`, `[]`,
			`{"reason":null}`, `{"reason":""}`, `{"reason":" "}`, `{"reason":` + string(long) + `}`, `{"reason":7}`,
			`{"status":"revoked"}`, `{"type":"note"}`, `{"reason":"x","status":"active"}`,
			`{"expires_at":""}`, `{"expires_at":7}`, `{"expires_at":"never"}`, `{"expires_at":"2026-01-01"}`,
			`{"expires_at":"2026-02-30T00:00:00Z"}`, `{"expires_at":"2026-12-31T23:59:60Z"}`, `{"expires_at":"2026-01-01T00:00:00"}`,
			`{"expires_at":"10000-01-01T00:00:00Z"}`, `{"expires_at":"0000-01-01T00:00:00Z"}`, `{"expires_at":"9999-12-31T23:59:59-01:00"}`,
		} {
			if got := api.Do(t, "updateCase", body, apitest.Path("id", "c")); got.Status != 400 || got.Code() != "invalid_request" {
				t.Errorf("%s: got %d %s", body, got.Status, got.Body)
			}
		}
		api.Do(t, "getCase", "", apitest.Path("id", "c")).
			Want(t, 200, `{"data":{"reason":"","expires_at":null,"updated_at":"2026-01-02T00:00:00.000Z"}}`)
		api.WantNoEvent(t)
	})
	t.Run("takes a thousand code points of reason", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t)
		stored(t, api, "c", "note", "active", "42", "2026-01-02T00:00:00Z")
		fits, _ := json.Marshal(strings.Repeat("🎉", 1000))
		api.Do(t, "updateCase", `{"reason":`+string(fits)+`}`, apitest.Path("id", "c")).Want(t, 200, `{"data":{"reason":`+string(fits)+`}}`)
		api.WantEvent(t, "case.updated", `{"data":{"reason":`+string(fits)+`}}`)
	})
}

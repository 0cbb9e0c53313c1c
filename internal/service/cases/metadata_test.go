package cases_test

import (
	"fmt"
	"strings"
	"testing"

	"guildhall/internal/server/api/apitest"
)

func TestMetadataIsKeptWithACase(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	id := api.Do(t, "createCase", `{"user_id":"42","moderator_id":"7","type":"note","reason":"x","metadata":{"a.b_c-1":"","gone":null}}`).
		Want(t, 201, `{"data":{"metadata":{"a.b_c-1":""}}}`).Str(t, "data.id")
	api.WantEvent(t, "case.created", `{"data":{"metadata":{"a.b_c-1":""}}}`)
	at := apitest.Path("id", id)

	api.Do(t, "updateCase", `{"metadata":{"x":"1"}}`, at).Want(t, 200, `{"data":{"metadata":{"a.b_c-1":"","x":"1"}}}`)
	api.WantEvent(t, "case.updated", `{"data":{"metadata":{"a.b_c-1":"","x":"1"},"changed":["metadata"]}}`)
	after := api.Do(t, "updateCase", `{"metadata":{"a.b_c-1":null,"absent":null},"reason":"y"}`, at).
		Want(t, 200, `{"data":{"metadata":{"x":"1"}}}`)
	api.WantEvent(t, "case.updated", `{"data":{"metadata":{"x":"1"},"changed":["reason","metadata"]}}`)
	for _, same := range []string{`{"metadata":{}}`, `{"metadata":{"x":"1","absent":null}}`, `{"metadata":null,"reason":"y"}`} {
		if got := api.Do(t, "updateCase", same, at).Want(t, 200, ``); string(got.Body) != string(after.Body) {
			t.Errorf("%s: got %s, want %s", same, got.Body, after.Body)
		}
	}
	api.Do(t, "updateCase", `{"metadata":null}`, at).WantError(t, 400, "invalid_request")
	api.WantNoEvent(t)
}

func TestMoreMetadataThanACaseCanHaveIsRefused(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	const head = `{"user_id":"42","moderator_id":"7","type":"note","reason":"x","metadata":`
	members := func(from, to int, value string) string {
		var list []string
		for i := from; i < to; i++ {
			list = append(list, fmt.Sprintf(`"n%d":%s`, i, value))
		}
		return "{" + strings.Join(list, ",") + "}"
	}
	long := `"` + strings.Repeat("x", 500) + `"`
	api.Do(t, "createCase", head+members(0, 17, long)+`}`).WantError(t, 422, "too_much_metadata")
	api.Do(t, "createCase", head+members(0, 21, `"a"`)+`}`).WantError(t, 422, "too_much_metadata")
	api.Do(t, "createCase", head+members(0, 41, `"a"`)+`}`).WantError(t, 400, "invalid_request")
	api.WantNoEvent(t)
	at := apitest.Path("id", api.Do(t, "createCase", head+members(0, 20, `"a"`)+`}`).Want(t, 201, ``).Str(t, "data.id"))
	before := api.Do(t, "getCase", "", at)
	api.Do(t, "updateCase", `{"metadata":{"more":"b"},"reason":"y"}`, at).WantError(t, 422, "too_much_metadata")
	api.Do(t, "updateCase", `{"metadata":`+members(0, 17, long)+`}`, at).WantError(t, 422, "too_much_metadata")
	if got := api.Do(t, "getCase", "", at); string(got.Body) != string(before.Body) {
		t.Errorf("refused edits left %s of %s", got.Body, before.Body)
	}
	// One call may remove all twenty names and add twenty others.
	api.Do(t, "updateCase", `{"metadata":`+strings.TrimSuffix(members(0, 20, `null`), "}")+`,`+members(20, 40, `"b"`)[1:]+`}`, at).
		Want(t, 200, `{"data":{"metadata":`+members(20, 40, `"b"`)+`}}`)
}

func TestACaseIsFoundByItsNumber(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	stored(t, api, "first", "ban", "active", "42", "2026-01-02T00:00:00Z")
	stored(t, api, "second", "note", "deleted", "43", "2026-01-03T00:00:00Z")
	stored(t, api.Next(t), "theirs", "note", "active", "42", "2026-01-03T00:00:00Z")
	for _, c := range []struct {
		want    string
		queries []apitest.Arg
	}{
		{"first", []apitest.Arg{apitest.Query("number", "1")}},
		{"second", []apitest.Arg{apitest.Query("number", "2")}},
		{"", []apitest.Arg{apitest.Query("number", "3")}},
		{"", []apitest.Arg{apitest.Query("number", "1"), apitest.Query("user_id", "43")}},
		{"", []apitest.Arg{apitest.Query("number", "1"), apitest.Query("type", "note")}},
		{"first", []apitest.Arg{apitest.Query("number", "1"), apitest.Query("status", "active"), apitest.Query("moderator_id", "8")}},
		{"", []apitest.Arg{apitest.Query("number", "1"), apitest.Query("since", "2026-01-02T00:00:01Z")}},
		{"first", []apitest.Arg{apitest.Query("number", "1"), apitest.Query("updated_since", "2026-01-01T00:00:00Z")}},
		{"", []apitest.Arg{apitest.Query("number", "2"), apitest.Query("page", "2")}},
	} {
		if got := ids(t, api.Do(t, "listCases", "", c.queries...)); got != c.want {
			t.Errorf("%v: got %q, want %q", c.queries, got, c.want)
		}
	}
	api.Do(t, "listCases", "", apitest.Query("number", "0")).WantError(t, 400, "invalid_request")
}

func TestACaseCanBeMadeWithItsExpiry(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	const head = `{"user_id":"42","moderator_id":"7","type":"warn","reason":"x","expires_at":`
	made := api.Do(t, "createCase", head+`"2040-01-02T03:04:05.5+01:00"}`).
		Want(t, 201, `{"data":{"status":"active","expires_at":"2040-01-02T02:04:05.500Z"}}`)
	api.WantEvent(t, "case.created", `{"data":{"id":"`+made.Str(t, "data.id")+`","expires_at":"2040-01-02T02:04:05.500Z"}}`)
	api.Do(t, "createCase", head+`null}`).Want(t, 201, `{"data":{"expires_at":null}}`)
	api.Do(t, "createCase", head+`"2020-01-01T00:00:00Z"}`).
		Want(t, 201, `{"data":{"status":"active","expires_at":"2020-01-01T00:00:00.000Z"}}`)
}

// A list is narrowed by one value of the metadata, which is compared as a whole, beside all
// other filters and in each order.
func TestCasesAreListedByTheirMetadata(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	file := func(in *apitest.API, kind, values string) string {
		return in.Do(t, "createCase", `{"user_id":"42","moderator_id":"7","type":"`+kind+`","reason":"x","metadata":`+values+`}`).
			Want(t, 201, "").Str(t, "data.id")
	}
	a, b := file(api, "note", `{"shop.order":"4711"}`), file(api, "warn", `{"shop.order":"4711","url":"https://x.example:1/a,b"}`)
	file(api, "note", `{"shop.order":"47110","empty":""}`)
	file(api, "note", `{"order":"4711"}`)
	file(api, "note", `{}`)
	file(api.Next(t), "note", `{"shop.order":"4711"}`)
	for value, want := range map[string]string{
		"shop.order:4711": b + " " + a, "shop.order:471": "", "shop.order:": "", "order:4711 ": "",
		"url:https://x.example:1/a,b": b, "none:1": "",
	} {
		if got := ids(t, api.Do(t, "listCases", "", apitest.Query("metadata", value))); got != want {
			t.Errorf("%q lists %q, want %q", value, got, want)
		}
	}
	api.Do(t, "listCases", "", apitest.Query("metadata", "empty:")).Want(t, 200, `{"data":[{"metadata":{"empty":""}}],"has_more":false}`)
	both := apitest.Query("metadata", "shop.order:4711")
	for _, c := range []struct {
		want string
		args []apitest.Arg
	}{
		{a + " " + b, []apitest.Arg{apitest.Query("updated_since", "2020-01-01T00:00:00Z")}},
		{"", []apitest.Arg{apitest.Query("updated_since", "2099-01-01T00:00:00Z")}},
		{b, []apitest.Arg{
			apitest.Query("type", "warn"), apitest.Query("user_id", "42"), apitest.Query("moderator_id", "7"), apitest.Query("status", "active"),
		}},
		{a, []apitest.Arg{apitest.Query("number", "1")}},
		{"", []apitest.Arg{apitest.Query("user_id", "43")}},
		{"", []apitest.Arg{apitest.Query("until", "2020-01-01T00:00:00Z")}},
		{a, []apitest.Arg{apitest.Query("page", "2"), apitest.Query("per_page", "1")}},
	} {
		if got := ids(t, api.Do(t, "listCases", "", append(c.args, both)...)); got != c.want {
			t.Errorf("%v lists %q, want %q", c.args, got, c.want)
		}
	}
	api.Do(t, "updateCase", `{"metadata":{"shop.order":null}}`, apitest.Path("id", b)).Want(t, 200, "")
	if got := ids(t, api.Do(t, "listCases", "", both)); got != a {
		t.Errorf("after a change it lists %q, want %q", got, a)
	}
}

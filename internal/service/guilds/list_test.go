package guilds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/guildfile"
	"guildhall/internal/service/transfer"
)

// told returns the list of a bot key's guilds, each with its status.
func told(t *testing.T, key *apitest.API, args ...apitest.Arg) (list []string) {
	t.Helper()
	a := key.Do(t, "listBotGuilds", "", args...).Want(t, 200, "")
	ids, statuses := a.All(t, "id"), a.All(t, "status")
	for i := range ids {
		list = append(list, ids[i]+" "+statuses[i])
	}
	return list
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestABotListsItsGuildsInTheOrderOfTheirLastChange(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.AddGuilds(t, api.DB(), "1", "2", "3")
	for i, id := range []string{api.Guild, "1", "2", "3"} {
		dbtest.Exec(t, api.DB(), `UPDATE guilds SET updated_at = timestamptz '2026-01-01' + $2 * interval '1 second' WHERE id = $1`, id, i)
	}
	wide, narrow := api.Bot(t), api.Bot(t, "2", api.Guild, "404")
	us := api.Guild + " active"
	same(t, "all", told(t, wide), us, "1 active", "2 active", "3 active")
	same(t, "those of a key that names some", told(t, narrow), us, "2 active")
	same(t, "from an instant on", told(t, wide, apitest.Query("updated_since", "2026-01-01T00:00:02Z")), "2 active", "3 active")
	same(t, "the same of some", told(t, narrow, apitest.Query("updated_since", "2026-01-01T00:00:01Z")), "2 active")
	second := []apitest.Arg{apitest.Query("per_page", "1"), apitest.Query("page", "2")}
	same(t, "a page", told(t, wide, second...), "1 active")
	same(t, "a page of some", told(t, narrow, second...), "2 active")
	wide.Do(t, "listBotGuilds", "", apitest.Query("per_page", "3")).Want(t, 200, `{"data":[{"name":"The Test Guild"},{},{}],"has_more":true}`)
	deep := []apitest.Arg{apitest.Query("per_page", "100"), apitest.Query("page", "11")}
	same(t, "a page past the end", told(t, wide, deep...))
	same(t, "the same of some", told(t, narrow, deep...))
	same(t, "with a header that names another", told(t, narrow.In("3")), us, "2 active")
	api.Do(t, "listBotGuilds", "").WantError(t, 403, "insufficient_scope")
	wide.Do(t, "listBotGuilds", "", apitest.Query("updated_since", "yesterday")).WantError(t, 400, "invalid_request")
}

func TestEachChangeOfAGuildMovesItBehindTheReader(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	key := api.Bot(t)
	us := api.Guild
	record := func(guild, text string) {
		t.Helper()
		key.In(guild).Do(t, "writeRecords", `{"records":[{"record":"guild"`+text+`}]}`).Want(t, 200, "")
	}
	record("1", "")
	record("2", `,"name":"Guild 2"`)
	imported := func(guild, name string) {
		t.Helper()
		line := fmt.Sprintf(`{"record":"guild","id":"%s","name":"%s"}`, guild, name)
		if _, err := guildfile.Import(t.Context(), api.DB(), strings.NewReader(line), nil); err != nil {
			t.Fatal(err)
		}
	}
	updated := func(guild, name string) {
		t.Helper()
		line := fmt.Sprintf(`{"record":"guild","id":"%s","name":"%s"}`, guild, name)
		if _, err := (guildfile.Update{Balances: transfer.Keep}).Run(t.Context(), api.DB(), strings.NewReader(line), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what string
		do   func()
		want []string
	}{
		{"a name", func() { record("1", `,"name":"New"`) }, []string{us + " active", "2 active", "1 active"}},
		{"an owner", func() { record(us, `,"owner_id":"7"`) }, []string{"2 active", "1 active", us + " active"}},
		{"the same", func() { record("2", `,"name":"Guild 2"`) }, []string{"2 active", "1 active", us + " active"}},
		{"members", func() { record("2", `,"member_count":9`) }, []string{"2 active", "1 active", us + " active"}},
		{"one that is made", func() { record("4", "") }, []string{"2 active", "1 active", us + " active", "4 active"}},
		{"one that comes in", func() { imported("5", "Five") }, []string{"2 active", "1 active", us + " active", "4 active", "5 active"}},
		{
			"one that a file makes", func() { updated("6", "Six") },
			[]string{"2 active", "1 active", us + " active", "4 active", "5 active", "6 active"},
		},
		{
			"one that a file changes", func() { updated("4", "Four") },
			[]string{"2 active", "1 active", us + " active", "5 active", "6 active", "4 active"},
		},
		{
			"one that leaves", func() { key.In("1").Do(t, "removeGuild", "").Want(t, 202, "") },
			[]string{"2 active", us + " active", "5 active", "6 active", "4 active", "1 leaving"},
		},
		{
			"another that leaves", func() { key.In("5").Do(t, "removeGuild", "").Want(t, 202, "") },
			[]string{"2 active", us + " active", "6 active", "4 active", "1 leaving", "5 leaving"},
		},
		{
			"one that is taken back", func() { record("1", "") },
			[]string{"2 active", us + " active", "6 active", "4 active", "5 leaving", "1 active"},
		},
	} {
		before := key.Do(t, "listBotGuilds", "")
		c.do()
		same(t, c.what, told(t, key), c.want...)
		if after := key.Do(t, "listBotGuilds", "").All(t, "updated_at"); slices.Max(after) > "2100" {
			t.Errorf("%s: %v, after %s", c.what, after, before.Body)
		}
	}
	dbtest.Exec(t, api.DB(), `UPDATE guilds SET updated_at = now() + interval '1 hour' WHERE id = '2'`)
	ahead := key.Do(t, "listBotGuilds", "").All(t, "updated_at")
	record("2", `,"name":"Later"`)
	if after := key.Do(t, "listBotGuilds", "").All(t, "updated_at"); slices.Max(after) <= slices.Max(ahead) {
		t.Errorf("the instant of a guild's change does not rise: %v, then %v", ahead, after)
	}
}

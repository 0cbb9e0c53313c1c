package api_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/guildfile"
)

// twins creates two guilds on one server with the same content and the same ids, so that only the
// guild distinguishes them.
func twins(t *testing.T, server *apitest.API) (one, other string) {
	t.Helper()
	one, other = guildfile.DemoGuild, "402187554310020097"
	var file bytes.Buffer
	if err := guildfile.Demo(&file); err != nil {
		t.Fatal(err)
	}
	own := slices.DeleteFunc(strings.SplitAfter(file.String(), "\n"), func(line string) bool {
		return strings.Contains(line, `"network_listing"`) // listings are shared by all guilds
	})
	for _, guild := range []string{one, other} {
		lines := strings.NewReader(strings.ReplaceAll(strings.Join(own, ""), one, guild))
		if _, err := guildfile.Import(context.Background(), server.DB(), lines, nil); err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(t, server.DB(), `
			INSERT INTO webhook_endpoints (guild_id, id, url, events, enabled, secret, secret_preview)
			VALUES ($1, 'hook', 'https://127.0.0.1:9/', '{case.created}', false, '', '')`, guild)
	}
	return one, other
}

func queryTables(t *testing.T, server *apitest.API) (tables []string, err error) {
	t.Helper()
	err = server.DB().Reader().SelectContext(t.Context(), &tables, `
		SELECT c.relname::text
		FROM pg_attribute a
		JOIN pg_class c ON c.oid = a.attrelid
		WHERE a.attname = 'guild_id' AND c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
		ORDER BY 1`)
	return tables, err
}

// named returns arguments for an operation that name things which exist in both guilds.
func named(t *testing.T, server *apitest.API, op apitest.Operation, guild string) (args []apitest.Arg) {
	t.Helper()
	things := map[string]string{
		"Cases": `SELECT min(id) FROM cases WHERE guild_id = $1`, "Webhooks": `SELECT min(id) FROM webhook_endpoints WHERE guild_id = $1`,
		"Tickets":   `SELECT min(id) FROM tickets WHERE guild_id = $1 AND status = 'open'`,
		"Giveaways": `SELECT min(id) FROM giveaways WHERE guild_id = $1 AND status = 'active'`,
	}
	for part := range strings.SplitSeq(op.Path, "/") {
		switch name, ok := strings.CutPrefix(part, "{"); {
		case ok && name == "userId}":
			id := dbtest.Value[string](t, server.DB(), `SELECT min(user_id) FROM wallets WHERE guild_id = $1`, guild)
			args = append(args, apitest.Path("userId", id))
		case ok && things[op.Spec.Tags[0]] != "":
			id := dbtest.Value[string](t, server.DB(), `SELECT coalesce((`+things[op.Spec.Tags[0]]+`), 'none')`, guild)
			args = append(args, apitest.Path(strings.TrimSuffix(name, "}"), id))
		case ok:
			args = append(args, apitest.Path(strings.TrimSuffix(name, "}"), "42"))
		}
	}
	return args
}

// Calls every operation with two bot keys, one for one of two guilds, one for both. Both guilds
// contain the same ids, and a write has the same idempotency key in each guild and for each bot key.
func TestNothingThatAKeyDoesInOneGuildTouchesAnother(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	one, other := twins(t, server)
	narrow, wide := server.Bot(t, one), server.Bot(t)
	all := everyState(t, server)
	state := func(t *testing.T, guild string) string {
		t.Helper()
		return dbtest.Value[string](t, server.DB(), all, guild)
	}
	done := 0
	each(t, func(t *testing.T, op apitest.Operation) {
		if op.ID == "removeGuild" || op.ID == "forgetMemberEverywhere" || op.ID == "listBotGuilds" { // these are called last
			return
		}
		if overAll(op) { // the packages of their tags test them
			return
		}
		// The calls in a guild follow each other, so that the state of the other guild is read once
		// before them.
		states := make(map[string]string)
		for _, c := range []struct {
			key        *apitest.API
			in, beside string
			serves     bool
		}{{narrow, one, other, true}, {wide, one, other, true}, {narrow, other, one, false}, {wide, other, one, true}} {
			for i, body := range bodies(t, op) {
				args := named(t, server, op, c.in)
				if states[c.beside] == "" {
					states[c.beside] = state(t, c.beside)
				}
				view := c.key.In(c.in)
				if op.Method != "GET" {
					view = view.Key(fmt.Sprint(op.ID, "-", i))
				}
				a := view.Do(t, op.ID, body, args...)
				// A reference in the guild makes the other key's repeat a replay too.
				referred := c.key == wide && c.in == one && strings.Contains(body, `"reference"`)
				switch {
				case op.ID == "getHealth":
					a.Want(t, 200, "")
				case !c.serves:
					a.WantError(t, 404, "not_found")
					if state(t, c.in) != states[c.in] {
						t.Error("a guild that the key does not serve has changed")
					}
				case a.Status == 401 || a.Status == 403 || a.Header.Get("Idempotent-Replay") != "" && !referred:
					t.Errorf("in guild %s it answered %d: %s", c.in, a.Status, a.Body)
				case a.Status < 300 && op.Method != "GET":
					done++
				}
				if strings.Contains(string(a.Body), c.beside) {
					t.Errorf("the answer in guild %s names guild %s: %s", c.in, c.beside, a.Body)
				}
				if state(t, c.beside) != states[c.beside] {
					t.Errorf("done in guild %s, it changed guild %s", c.in, c.beside)
				}
				if c.serves {
					states[c.in] = ""
				}
			}
		}
	})
	beside := state(t, other)
	if list := narrow.Do(t, "listBotGuilds", "").Want(t, 200, "").All(t, "id"); !slices.Equal(list, []string{one}) {
		t.Errorf("a key of one guild lists %v", list)
	}
	if list := wide.Do(t, "listBotGuilds", "").Want(t, 200, "").All(t, "id"); !slices.Contains(list, one) || !slices.Contains(list, other) {
		t.Errorf("a key of every guild lists %v", list)
	}
	narrow.Do(t, "forgetMemberEverywhere", "", apitest.Path("userId", "7")).Want(t, 202, "")
	narrow.In(other).Do(t, "removeGuild", "").WantError(t, 404, "not_found")
	narrow.In(one).Do(t, "removeGuild", "").Want(t, 202, `{"data":{"guild_id":"`+one+`"}}`)
	if state(t, other) != beside {
		t.Error("a key has had its guild forget a member and leave, and another guild has changed")
	}
	wide.In(other).Do(t, "getGuild", "").Want(t, 200, "")
	if least := len(apitest.Operations()) - 8; done < least {
		t.Errorf("only %d calls wrote something; want %d at least", done, least)
	}
}

// overAll reports whether an operation is a bot key's and spans all its guilds.
func overAll(op apitest.Operation) bool {
	return op.Spec.Tags[0] == "Streams" || op.Spec.Tags[0] == "Work"
}

package api_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

// TestRandomCallsOfTwoKeysStayInTheirGuild calls random operations with random bodies from the
// document, with one of two bot keys, in one of two guilds that contain the same ids, with few
// idempotency keys, and sometimes with a guild that the key may not use. No call changes the other
// guild, and a response is replayed only for the same bot key, guild and idempotency key. The flag
// -rapid.checks sets the number of sequences.
func TestRandomCallsOfTwoKeysStayInTheirGuild(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	one, other := twins(t, server)
	narrow, wide := server.Bot(t, one), server.Bot(t)
	var operations []apitest.Operation
	given := make(map[string][]string)
	for _, op := range apitest.Operations() {
		if op.ID == "removeGuild" || op.ID == "forgetMemberEverywhere" || op.ID == "listBotGuilds" || op.ID == "getHealth" || overAll(op) {
			continue // operations over several guilds or none
		}
		operations = append(operations, op)
		given[op.ID] = bodies(t, op)
	}
	all := everyState(t, server)
	state := func(guild string) string { return dbtest.Value[string](t, server.DB(), all, guild) }
	sequences, kept, repeated := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		sequences++
		asked := make(map[string]string) // bot key, guild and idempotency key -> the first request with them
		in, beside := one, other
		if rapid.Bool().Draw(rt, "in the other guild") {
			in, beside = other, one
		}
		args := make(map[string][]apitest.Arg) // the arguments of each operation, the same throughout a sequence
		before := state(beside)
		for range 12 {
			op := operations[rapid.IntRange(0, len(operations)-1).Draw(rt, "operation")]
			body := rapid.SampledFrom(given[op.ID]).Draw(rt, "body")
			view := narrow
			if rapid.Bool().Draw(rt, "the key of every guild") {
				view = wide
			}
			guild := in
			if rapid.IntRange(0, 7).Draw(rt, "header") == 0 {
				guild = rapid.SampledFrom([]string{"", "0", "nonsense", "999999999999999999", in + "," + in}).Draw(rt, "names")
			}
			if _, ok := args[op.ID]; !ok {
				args[op.ID] = named(t, server, op, in)
			}
			name := fmt.Sprint(sequences, "-", rapid.IntRange(1, 3).Draw(rt, "idempotency key"))
			wrong := guild != in || view == narrow && in == other
			if op.Method != "GET" {
				name = view.Token + " " + guild + " " + name
				view = view.Key(name[strings.LastIndex(name, " ")+1:])
			}
			a, err := view.In(guild).Try(op, body, args[op.ID]...)
			if err != nil {
				rt.Fatal(err)
			}
			request := op.ID + body
			replay := a.Header.Get("Idempotent-Replay") != ""
			switch first, was := asked[name]; {
			case wrong:
				if a.Status != 404 && a.Status != 400 || replay {
					rt.Fatalf("%s in guild %q is answered %d: %s", op.ID, guild, a.Status, a.Body)
				}
			case a.Status == 401 || a.Status == 403 || a.Status >= 500 && a.Status != 502:
				rt.Fatalf("%s in guild %s is answered %d: %s", op.ID, guild, a.Status, a.Body)
			case op.Method == "GET" || !takesKey(op):
			case !was:
				if replay && !strings.Contains(body, `"reference"`) { // a reference makes a repeat return the first response too
					rt.Fatalf("%s in guild %s is answered with what another was answered: %s", op.ID, guild, a.Body)
				}
				if a.Status < 300 || a.Status == 400 || a.Status == 404 || a.Status == 422 {
					asked[name] = request
					kept++
				}
			case first == request:
				repeated++
				if !replay {
					rt.Fatalf("%s again in guild %s is made again: %d %s", op.ID, guild, a.Status, a.Body)
				}
			case a.Status != 409:
				rt.Fatalf("another request under a used key is answered %d: %s", a.Status, a.Body)
			}
			if strings.Contains(string(a.Body), beside) {
				rt.Fatalf("the response of %s in guild %s names guild %s: %s", op.ID, guild, beside, a.Body)
			}
		}
		if state(beside) != before {
			rt.Fatalf("calls in guild %s have changed guild %s", in, beside)
		}
	})
	if kept < sequences || sequences >= 100 && repeated == 0 {
		t.Errorf("in %d sequences %d responses were kept and %d repeated", sequences, kept, repeated)
	}
}

// takesKey reports whether an operation accepts idempotency keys.
func takesKey(op apitest.Operation) bool {
	for _, p := range op.Spec.Parameters {
		if p.Value.Name == "Idempotency-Key" {
			return true
		}
	}
	return false
}

// everyState returns a query for a guild's whole state. It reads the rows' versions (xmin) and not
// their text, which would take most of the test's time. A row that is updated without a change
// counts as changed.
func everyState(t *testing.T, server *apitest.API) string {
	t.Helper()
	tables, err := queryTables(t, server)
	if err != nil {
		t.Fatal(err)
	}
	parts := make([]string, len(tables))
	for i, table := range tables {
		parts[i] = fmt.Sprintf(`
			SELECT '%s ' || count(*) || ' ' || coalesce(sum(hashtidextended(r.ctid, r.xmin::text::bigint)), 0) AS part
			FROM %[1]s r WHERE guild_id = $1`, table)
	}
	return `SELECT string_agg(part, E'\n' ORDER BY part) FROM (` + strings.Join(parts, " UNION ALL ") + `) parts`
}

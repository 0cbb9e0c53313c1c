package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

// entriesNamed returns the number of idempotency keys that refer to a ledger entry and store no
// body.
func entriesNamed(t *testing.T, server *apitest.API) int {
	t.Helper()
	return dbtest.Value[int](t, server.DB(), `SELECT count(*) FROM idempotency_keys WHERE body IS NULL AND entry_id IS NOT NULL`)
}

// xpNamed returns the number of idempotency keys that refer to a change of XP and store no body.
func xpNamed(t *testing.T, server *apitest.API) int {
	t.Helper()
	return dbtest.Value[int](t, server.DB(), `SELECT count(*) FROM idempotency_keys WHERE body IS NULL AND xp_of IS NOT NULL`)
}

// risen returns a server whose first members have 50 XP. Events about levels are recorded only if
// listened is set.
func risen(t *testing.T, members int, listened bool) *apitest.API {
	t.Helper()
	server := apitest.New(t)
	if !listened {
		dbtest.Exec(t, server.DB(), `UPDATE webhook_endpoints SET events = array_remove(array_remove(events, 'xp.level_up'), 'xp.level_down')`)
	}
	dbtest.Exec(t, server.DB(), `INSERT INTO levels (guild_id, user_id, total_xp) SELECT $1, n::text, 50 FROM generate_series(1, $2::int) n`,
		server.Guild, members)
	server.Do(t, "adjustXp", `{"user_id":"99","delta":1}`).Want(t, 200, "")
	return server
}

// The idempotency key of a change of XP stores the change and not the response. A repeat gets the
// same bytes, whatever has happened to the member since. RELIABILITY.md, Writes.
func TestARepeatOfAChangeOfXPIsAnsweredFromItsKey(t *testing.T) {
	t.Parallel()
	for _, listened := range []bool{false, true} {
		server := risen(t, 3, listened)
		bodies := []string{`{"user_id":"1","delta":5000}`, `{"user_id":"2","total_xp":7}`, `{"user_id":"3","delta":-50}`}
		for i, body := range bodies {
			view := server.Key(fmt.Sprint("k", i))
			first := view.Do(t, "adjustXp", body).Want(t, 200, "")
			if n := xpNamed(t, server); n != i+1 {
				t.Fatalf("listened %t: after %s %d keys name a change, want %d", listened, body, n, i+1)
			}
			server.Do(t, "adjustXp", `{"user_id":"1","delta":1}`).Want(t, 200, "") // the member's XP changes again
			view.Do(t, "adjustXp", body).WantReplayOf(t, first)
			view.Do(t, "adjustXp", bodies[(i+1)%3]).WantError(t, 409, "idempotency_key_reused")
			view.Do(t, "adjustBalance", `{"user_id":"1","delta":5}`).WantError(t, 409, "idempotency_key_reused")
		}
		server.Do(t, "getLevelRecord", "", apitest.Path("userId", "1")).Want(t, 200, `{"data":{"total_xp":5053}}`)

		// A day later the key may be used for another request.
		dbtest.Exec(t, server.DB(), `UPDATE idempotency_keys SET `+dbtest.Earlier(`interval '26 hours'`, "created_at"))
		refused := server.Key("k0").Do(t, "adjustXp", `{"user_id":"1","delta":-6000}`).WantError(t, 422, "xp_would_be_negative")
		server.Key("k0").Do(t, "adjustXp", `{"user_id":"1","delta":-6000}`).WantReplayOf(t, refused)
	}
}

// Two nodes get the same keyed changes of XP at the same time: each change is made once, and both
// nodes give the same response. RELIABILITY.md, Writes.
func TestTwoNodesRaceForKeysOfXP(t *testing.T) {
	t.Parallel()
	var cfg api.Config
	one := apitest.New(t, apitest.With(func(c *api.Config) { cfg = *c }))
	dbtest.Exec(t, one.DB(), `INSERT INTO levels (guild_id, user_id, total_xp) SELECT $1, n::text, 0 FROM generate_series(1, 8) n`, one.Guild)
	two := *one
	two.URL = node(t, cfg, one.Server.DBURL, dbtest.Coordinator(t))
	const changes = 60
	bodies := raced(t, "adjustXp", changes, func(i int) string { return fmt.Sprintf(`{"user_id":"%d","delta":100}`, 1+i%8) }, one, &two)
	if !slices.Equal(bodies[0], bodies[1]) {
		t.Errorf("the nodes answer\n%v\nand\n%v", bodies[0], bodies[1])
	}
	if n := dbtest.Value[int](t, one.DB(), `SELECT sum(total_xp) FROM levels WHERE guild_id = $1`, one.Guild); n != 100*changes {
		t.Errorf("the members have %d XP, want %d", n, 100*changes)
	}
}

// raced sends the same keyed changes to all nodes concurrently and returns each node's responses.
func raced(t *testing.T, operation string, changes int, body func(i int) string, nodes ...*apitest.API) [][]string {
	t.Helper()
	op := apitest.Find(t, operation)
	var all sync.WaitGroup
	bodies := make([][]string, len(nodes))
	for n, node := range nodes {
		bodies[n] = make([]string, changes)
		for i := range changes {
			all.Go(func() {
				a, err := node.Key(fmt.Sprint("raced-", i)).Retry(op, body(i))
				for err == nil && a.Code() == "idempotency_key_in_use" {
					a, err = node.Key(fmt.Sprint("raced-", i)).Retry(op, body(i))
				}
				if err != nil || a.Status != http.StatusOK {
					t.Errorf("%v, %v\n%s", a, err, node.Server.Log)
					return
				}
				bodies[n][i] = string(a.Body)
			})
		}
	}
	all.Wait()
	return bodies
}

// paid returns a server whose first members have wallets with a million coins, and which has
// already cached that endpoints listen.
func paid(t *testing.T, members int) *apitest.API {
	t.Helper()
	server := apitest.New(t)
	wealthy(t, server, members)
	server.Do(t, "adjustBalance", `{"user_id":"99","delta":1}`).Want(t, 200, "")
	return server
}

// The idempotency key of a balance change refers to the ledger entry. A repeat gets the same bytes,
// rebuilt from the entry. RELIABILITY.md, Writes.
func TestARepeatIsAnsweredFromTheLedger(t *testing.T) {
	t.Parallel()
	server := paid(t, 3)
	bodies := []string{
		`{"user_id":"1","delta":5}`,
		`{"user_id":"2","delta":-7,"reason":"é🎉 <&> \"\\ \u2028"}`,
		`{"user_id":"3","delta":1,"reference":"order-1"}`,
	}
	for i, body := range bodies {
		view := server.Key(fmt.Sprint("k", i))
		first := view.Do(t, "adjustBalance", body).Want(t, 200, "")
		if n := entriesNamed(t, server); n != i+1 {
			t.Fatalf("after %s %d keys name an entry, want %d", body, n, i+1)
		}
		server.Do(t, "adjustBalance", `{"user_id":"1","delta":1}`).Want(t, 200, "") // the balance changes again
		view.Do(t, "adjustBalance", body).WantReplayOf(t, first)
		view.Do(t, "adjustBalance", bodies[(i+1)%3]).WantError(t, 409, "idempotency_key_reused")
		view.Do(t, "adjustXp", `{"user_id":"1","delta":5}`).WantError(t, 409, "idempotency_key_reused")
	}
	if n := dbtest.Value[int](t, server.DB(), `SELECT count(*) FROM ledger_entries WHERE note <> 'test'`); n != 7 {
		t.Errorf("%d changes were made, want 7", n)
	}
}

// A key whose 24 hours are over is free, whether or not it has been deleted, and then returns what
// is stored under it next. RELIABILITY.md, Writes.
func TestAKeyThatNamedAnEntryIsFreeAfterADay(t *testing.T) {
	t.Parallel()
	for _, pruned := range []bool{false, true} {
		server := paid(t, 1)
		view := server.Key("k")
		view.Do(t, "adjustBalance", `{"user_id":"1","delta":1}`).Want(t, 200, `{"data":{"balance":1000001}}`)
		if n := entriesNamed(t, server); n != 1 {
			t.Fatalf("%d keys name an entry", n)
		}
		dbtest.Exec(t, server.DB(), `UPDATE idempotency_keys SET `+dbtest.Earlier(`interval '26 hours'`, "created_at"))
		if pruned {
			if n := dbtest.Prune(t, server.DB(), idempotency.Expired()); n != 1 {
				t.Fatalf("pruned %d", n)
			}
		}
		refused := view.Do(t, "adjustBalance", `{"user_id":"1","delta":-2000000}`).WantError(t, 422, "balance_would_be_negative")
		view.Do(t, "adjustBalance", `{"user_id":"1","delta":-2000000}`).WantReplayOf(t, refused)
		dbtest.Exec(t, server.DB(), `UPDATE idempotency_keys SET `+dbtest.Earlier(`interval '26 hours'`, "created_at"))
		again := view.Do(t, "adjustBalance", `{"user_id":"1","delta":2}`).Want(t, 200, `{"data":{"balance":1000003}}`)
		view.Do(t, "adjustBalance", `{"user_id":"1","delta":2}`).WantReplayOf(t, again)
	}
}

// After a partial restore that has brought back the keys but not the ledger, no change is made
// twice: a repeat gets 422, as for a forgotten member, until the ledger is restored too.
// RELIABILITY.md, Operation.
func TestARepeatOverAHalfRestoredBackupMakesNothing(t *testing.T) {
	t.Parallel()
	server := paid(t, 1)
	const body = `{"user_id":"1","delta":1}`
	view := server.Key("k")
	first := view.Do(t, "adjustBalance", body).Want(t, 200, "")
	dbtest.Exec(t, server.DB(), `CREATE TABLE away AS SELECT * FROM ledger_entries WHERE note <> 'test'`)
	dbtest.Exec(t, server.DB(), `DELETE FROM ledger_entries WHERE note <> 'test'`)
	view.Do(t, "adjustBalance", body).WantError(t, 422, "member_forgotten")
	server.Do(t, "getWallet", "", apitest.Path("userId", "1")).Want(t, 200, `{"data":{"balance":1000001}}`)
	dbtest.Exec(t, server.DB(), `INSERT INTO ledger_entries SELECT * FROM away`)
	view.Do(t, "adjustBalance", body).WantReplayOf(t, first)
}

// Two nodes get the same keyed changes of the same wallets, with the same references, at the same
// time: each change is made once, and both nodes give the same response. RELIABILITY.md, Writes.
func TestTwoNodesRaceForKeysAndReferences(t *testing.T) {
	t.Parallel()
	var cfg api.Config
	one := apitest.New(t, apitest.With(func(c *api.Config) { cfg = *c }))
	wealthy(t, one, 8)
	two := *one
	two.URL = node(t, cfg, one.Server.DBURL, dbtest.Coordinator(t))
	const changes = 60
	bodies := raced(t, "adjustBalance", changes, func(i int) string {
		return fmt.Sprintf(`{"user_id":"%d","delta":1,"reference":"r-%d"}`, 1+i%8, i)
	}, one, &two)
	if !slices.Equal(bodies[0], bodies[1]) {
		t.Errorf("the nodes answer\n%v\nand\n%v", bodies[0], bodies[1])
	}
	if n := dbtest.Value[int](t, one.DB(), `SELECT count(*) FROM ledger_entries WHERE note <> 'test'`); n != changes {
		t.Errorf("%d changes were made, want %d", n, changes)
	}
}

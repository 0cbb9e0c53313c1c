package api_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

// named says under how many keys a ledger entry is named, and no body held.
func entriesNamed(t *testing.T, server *apitest.API) int {
	t.Helper()
	return dbtest.Value[int](t, server.DB(), `SELECT count(*) FROM idempotency_keys WHERE body IS NULL AND entry_id IS NOT NULL`)
}

// paid is a guild whose first members are wealthy, and of which the node knows by now
// that endpoints listen.
func paid(t *testing.T, members int) *apitest.API {
	t.Helper()
	server := apitest.New(t)
	wealthy(t, server, members)
	server.Do(t, "adjustBalance", `{"user_id":"99","delta":1}`).Want(t, 200, "")
	return server
}

// A key under which a balance was changed names the ledger entry, and a repeat is
// answered from it, byte for byte.
// RELIABILITY.md, Writes.
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
		server.Do(t, "adjustBalance", `{"user_id":"1","delta":1}`).Want(t, 200, "") // the wallet moves on
		view.Do(t, "adjustBalance", body).WantReplayOf(t, first)
		view.Do(t, "adjustBalance", bodies[(i+1)%3]).WantError(t, 409, "idempotency_key_reused")
		view.Do(t, "adjustXp", `{"user_id":"1","delta":5}`).WantError(t, 409, "idempotency_key_reused")
	}
	if n := dbtest.Value[int](t, server.DB(), `SELECT count(*) FROM ledger_entries WHERE note <> 'test'`); n != 7 {
		t.Errorf("%d changes were made, want 7", n)
	}
}

// While a program may be at work that replays bodies only, keys hold bodies.
// RELIABILITY.md, Writes.
func TestKeysHoldBodiesWhileOlderProgramsRun(t *testing.T) {
	t.Parallel()
	server := paid(t, 1)
	known := dbtest.Value[int](t, server.DB(), `SELECT schema_version FROM oldest_program`)
	dbtest.Exec(t, server.DB(), `UPDATE oldest_program SET schema_version = 125`)
	first := server.Key("early").Do(t, "adjustBalance", `{"user_id":"1","delta":1}`).Want(t, 200, "")
	if n := entriesNamed(t, server); n != 0 {
		t.Fatalf("%d keys name an entry beside older programs", n)
	}
	dbtest.Exec(t, server.DB(), `UPDATE oldest_program SET schema_version = $1`, known)
	n := 0
	testutil.Eventually(t, "keys name entries", func() bool {
		n++
		server.Key(fmt.Sprint("late", n)).Do(t, "adjustBalance", `{"user_id":"1","delta":1}`).Want(t, 200, "")
		return entriesNamed(t, server) > 0
	})
	server.Key("early").Do(t, "adjustBalance", `{"user_id":"1","delta":1}`).WantReplayOf(t, first)
}

// A key whose day is over is free, whether or not it was cleared away, and what is
// kept under it then is what it answers with.
// RELIABILITY.md, Writes.
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
			if n := dbtest.Prune(t, server.DB(), idempotency.Outlived()); n != 1 {
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

// Of a backup whose keys are back and whose ledger is not, nothing is made twice: a
// repeat is an error until the rest is back.
// RELIABILITY.md, Operation.
func TestARepeatOverAHalfRestoredBackupMakesNothing(t *testing.T) {
	t.Parallel()
	server := paid(t, 1)
	const body = `{"user_id":"1","delta":1}`
	view := server.Key("k")
	first := view.Do(t, "adjustBalance", body).Want(t, 200, "")
	dbtest.Exec(t, server.DB(), `CREATE TABLE away AS SELECT * FROM ledger_entries WHERE note <> 'test'`)
	dbtest.Exec(t, server.DB(), `DELETE FROM ledger_entries WHERE note <> 'test'`)
	view.Do(t, "adjustBalance", body).WantError(t, 500, "internal_error")
	server.Do(t, "getWallet", "", apitest.Path("userId", "1")).Want(t, 200, `{"data":{"balance":1000001}}`)
	dbtest.Exec(t, server.DB(), `INSERT INTO ledger_entries SELECT * FROM away`)
	view.Do(t, "adjustBalance", body).WantReplayOf(t, first)
}

// Two nodes get the same keyed changes at the same time, of the same wallets and with
// the same references: each is made once, and both answer alike.
// RELIABILITY.md, Writes.
func TestTwoNodesRaceForKeysAndReferences(t *testing.T) {
	t.Parallel()
	var cfg api.Config
	one := apitest.New(t, apitest.With(func(c *api.Config) { cfg = *c }))
	wealthy(t, one, 8)
	two := *one
	two.URL = node(t, cfg, one.Server.DBURL, dbtest.Coordinator(t))
	op := apitest.Find(t, "adjustBalance")
	const changes = 60
	var all sync.WaitGroup
	bodies := [2][changes]string{}
	for n, node := range []*apitest.API{one, &two} {
		for i := range changes {
			all.Go(func() {
				body := fmt.Sprintf(`{"user_id":"%d","delta":1,"reference":"r-%d"}`, 1+i%8, i)
				a, err := node.Key(fmt.Sprint("raced-", i)).Settle(op, body)
				for err == nil && a.Code() == "idempotency_key_in_use" {
					a, err = node.Key(fmt.Sprint("raced-", i)).Settle(op, body)
				}
				if err != nil || a.Status != http.StatusOK {
					t.Error(a, err)
					return
				}
				bodies[n][i] = string(a.Body)
			})
		}
	}
	all.Wait()
	if bodies[0] != bodies[1] {
		t.Errorf("the nodes answer\n%v\nand\n%v", bodies[0], bodies[1])
	}
	if n := dbtest.Value[int](t, one.DB(), `SELECT count(*) FROM ledger_entries WHERE note <> 'test'`); n != changes {
		t.Errorf("%d changes were made, want %d", n, changes)
	}
}

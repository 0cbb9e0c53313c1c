package api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"sync/atomic"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
)

// behind starts a server that reaches its database through a link.
func behind(t *testing.T, judge func(sent []byte) dbtest.Fate) *apitest.API {
	t.Helper()
	return apitest.New(t, apitest.Reach(func(raw string) string { return dbtest.NewJudgedLink(t, raw, judge).URL }))
}

// The response to COMMIT is lost, or the response to a statement that is a whole transaction. A
// retry with the same key finds one effect and its stored response. RELIABILITY.md, Writes.
func TestLostCommitResponse(t *testing.T) {
	t.Parallel()
	server := behind(t, func(sent []byte) dbtest.Fate {
		if !bytes.Contains(sent, []byte("COMMIT")) && (sent[0] != 'B' || !bytes.Contains(sent, []byte(`"key-`))) {
			return dbtest.Pass
		}
		return [...]dbtest.Fate{dbtest.Pass, dbtest.Pass, dbtest.Lose, dbtest.Break}[rand.IntN(4)]
	})
	op := apitest.Find(t, "adjustBalance")
	wealthy(t, server, 9)
	lost := 0
	for i := range 40 {
		view := server.Key(fmt.Sprint("key-", i))
		for {
			a, err := view.Try(op, `{"user_id":"9","delta":1}`)
			if err != nil {
				t.Fatal(err)
			}
			if a.Status == 200 {
				break
			}
			lost++
			if a.Status != 503 && a.Status != 500 {
				t.Fatalf("got %d: %s", a.Status, a.Body)
			}
			a.WantError(t, 503, "service_unavailable")
		}
	}
	if lost == 0 {
		t.Fatal("no answer was lost: the link did not cut")
	}
	var rows int
	if err := server.DB().Reader().GetContext(context.Background(), &rows,
		`SELECT count(*) FROM ledger_entries WHERE note <> 'test'`); err != nil || rows != 40 {
		t.Fatalf("%d ledger rows after 40 writes and %d lost answers (%v)", rows, lost, err)
	}
}

// A write without a key may have been done if its COMMIT got no response: the error says not to
// send it again unchecked.
func TestAWriteOfUnknownOutcomeSaysSo(t *testing.T) {
	t.Parallel()
	var lose atomic.Bool
	server := behind(t, func(sent []byte) dbtest.Fate {
		if lose.Load() && bytes.Contains(sent, []byte("COMMIT")) {
			return dbtest.Lose
		}
		return dbtest.Pass
	})
	lose.Store(true)
	const note = `{"user_id":"9","moderator_id":"8","type":"note","reason":"seen"}`
	server.Do(t, "createCase", note).WantError(t, 503, "service_unavailable").Want(t, 503, `{"error":{"message":"`+
		`The database was lost before it had said whether this was done: look before you send it again. `+
		`With an Idempotency-Key it could be sent again as it stands."}}`)
	server.Key("note").Do(t, "createCase", note).
		Want(t, 503, `{"error":{"message":"The service cannot answer now; try the same request again."}}`)
	lose.Store(false)
	if n := len(server.Do(t, "listCases", "").All(t, "id")); n != 2 {
		t.Errorf("there are %d cases of two whose answer was lost", n)
	}
}

// The driver reports a broken connection after a statement was sent. No statement of a write may
// then be sent again. A write that fails before its COMMIT has no effect; a statement that is a
// whole transaction has one if Postgres received it. RELIABILITY.md, Writes.
func TestBrokenConnectionNeverDoublesAWrite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		operation, body, rows string
		whole                 bool // one statement is the whole transaction
	}{
		{"createCase", `{"user_id":"9","moderator_id":"8","type":"note","reason":"x"}`, `SELECT count(*) FROM cases`, false},
		{"adjustBalance", `{"user_id":"9","delta":1}`, `SELECT count(*) FROM ledger_entries`, true},
	} {
		t.Run(c.operation, func(t *testing.T) {
			t.Parallel()
			var n, carried atomic.Int64
			var cutting atomic.Bool
			server := behind(t, func(sent []byte) dbtest.Fate {
				// Bind messages contain the write. Every fifth is lost before or after Postgres
				// receives it.
				if cutting.Load() && sent[0] == 'B' {
					switch n.Add(1) % 10 {
					case 3:
						carried.Add(1)
						return dbtest.Lose
					case 8:
						return dbtest.Break
					}
				}
				return dbtest.Pass
			})
			op := apitest.Find(t, c.operation)
			server.Do(t, c.operation, c.body) // creates the wallet
			cutting.Store(true)
			done, unknown := 1, 0
			for range 100 {
				a, err := server.Try(op, c.body)
				if err != nil {
					t.Fatal(err)
				}
				if a.Status < 300 {
					done++
				} else {
					a.WantError(t, 503, "service_unavailable")
					unknown++
				}
			}
			// On Citus a batch runs in a transaction: when the connection breaks it has no effect,
			// and each change is then made alone.
			again := c.whole && server.DB().Distributed()
			if unknown == 0 && !again || n.Load() < 100 {
				t.Fatal("the link did not cut")
			}
			want := done
			if c.whole && !again {
				want += int(carried.Load())
			}
			if rows := dbtest.Value[int](t, server.DB(), c.rows); rows != want {
				t.Errorf("%d rows for %d answered writes, %d of whose statements were lost after they had been sent", rows, done, carried.Load())
			}
		})
	}
}

// The client hangs up in the middle of a write. RELIABILITY.md, Writes.
func TestClientDisconnect(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		c, err := tlsDial(server, u.Host)
		if err != nil {
			t.Fatal(err)
		}
		body := `{"user_id":"9","delta":1}`
		fmt.Fprintf(c, "POST /api/v1/economy/adjust HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
			"Idempotency-Key: gone-%d\r\nContent-Length: %d\r\n\r\n%s",
			server.Token, i, len(body), body)
		if i%2 == 0 {
			_, _ = io.ReadFull(c, make([]byte, 1))
		}
		c.Close()
	}
	op := apitest.Find(t, "adjustBalance")
	for i := range 40 {
		testutil.Eventually(t, "the retry's answer", func() bool {
			a, err := server.Key(fmt.Sprint("gone-", i)).Try(op, `{"user_id":"9","delta":1}`)
			if err != nil {
				t.Fatal(err)
			}
			return a.Status == 200
		})
	}
	server.Do(t, "getWallet", "", apitest.Path("userId", "9")).Want(t, 200, `{"data":{"balance":40}}`)
}

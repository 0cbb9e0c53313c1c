package api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"guildhall/internal/api/apitest"
	"guildhall/internal/testutil"
)

// link is a TCP proxy in front of Postgres that tests can cut.
type link struct {
	listener net.Listener
	target   string
	// cut is asked about every chunk on its way to Postgres, and breaks the
	// connection after the chunk has been passed on, or before it.
	cut func(chunk []byte) (after, before bool)
}

// between starts a link and returns the database URL through it.
func between(t *testing.T, raw string, cut func([]byte) (after, before bool)) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	l := &link{target: u.Host, cut: cut}
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.listener.Close() })
	go func() {
		for {
			c, err := l.listener.Accept()
			if err != nil {
				return
			}
			go l.carry(c)
		}
	}()
	u.Host = l.listener.Addr().String()
	return u.String()
}

func (l *link) carry(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	defer server.Close()
	dropped := make(chan struct{})
	var once sync.Once
	drop := func() { once.Do(func() { close(dropped) }) }
	silent := atomic.Bool{}
	go func() {
		defer drop()
		buf := make([]byte, 32<<10)
		for {
			n, err := client.Read(buf)
			if n > 0 {
				after, before := l.cut(buf[:n])
				if before {
					return
				}
				if after {
					silent.Store(true) // the response is lost
				}
				if _, err := server.Write(buf[:n]); err != nil {
					return
				}
				if after {
					// Let Postgres read and act on it before the link breaks.
					one := make([]byte, 1)
					_, _ = server.Read(one)
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer drop()
		buf := make([]byte, 32<<10)
		for {
			n, err := server.Read(buf)
			if n > 0 && !silent.Load() {
				if _, err := client.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil || silent.Load() {
				return
			}
		}
	}()
	<-dropped
}

// behind starts a server whose database lies behind a link.
func behind(t *testing.T, cut func([]byte) (after, before bool)) *apitest.API {
	t.Helper()
	return apitest.New(t, apitest.Reach(func(raw string) string { return between(t, raw, cut) }))
}

// The answer to COMMIT is lost. A retry with the same key ends with
// the one effect and its stored response.
// RELIABILITY.md, Writes.
func TestLostCommitResponse(t *testing.T) {
	t.Parallel()
	var commits atomic.Int64
	server := behind(t, func(chunk []byte) (after, before bool) {
		if !bytes.Contains(chunk, []byte("COMMIT")) {
			return false, false
		}
		n := commits.Add(1)
		return n%3 == 1, n%3 == 2
	})
	op := apitest.Find(t, "adjustBalance")
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
	if err := server.DB().Reader().GetContext(context.Background(), &rows, `SELECT count(*) FROM ledger_entries`); err != nil || rows != 40 {
		t.Fatalf("%d ledger rows after 40 writes and %d lost answers (%v)", rows, lost, err)
	}
}

// The driver reports a bad connection after the statement was sent.
// No statement of a write may then run a second time. One that fails before its
// COMMIT leaves nothing; one that is the whole transaction is there if Postgres
// has got it.
// RELIABILITY.md, Writes.
func TestBrokenConnectionNeverDoublesAWrite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		operation, body, rows string
		whole                 bool // one statement is the transaction
	}{
		{"createCase", `{"user_id":"9","moderator_id":"8","type":"note","reason":"x"}`, `SELECT count(*) FROM cases`, false},
		{"adjustBalance", `{"user_id":"9","delta":1}`, `SELECT count(*) FROM ledger_entries`, true},
	} {
		t.Run(c.operation, func(t *testing.T) {
			t.Parallel()
			var n, carried atomic.Int64
			var cutting atomic.Bool
			server := behind(t, func(chunk []byte) (after, before bool) {
				// Bind messages carry the write; break every fifth of them, answered or not.
				if cutting.Load() && len(chunk) > 0 && chunk[0] == 'B' {
					switch n.Add(1) % 10 {
					case 3:
						carried.Add(1)
						return true, false
					case 8:
						return false, true
					}
				}
				return false, false
			})
			op := apitest.Find(t, c.operation)
			server.Do(t, c.operation, c.body) // the wallet is there
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
			if unknown == 0 {
				t.Fatal("the link did not cut")
			}
			want := done
			if c.whole {
				want += int(carried.Load())
			}
			if rows := count(t, server, c.rows); rows != want {
				t.Errorf("%d rows for %d answered writes, %d of whose statements were lost after they had been sent", rows, done, carried.Load())
			}
		})
	}
}

// The client leaves in the middle of a write.
// RELIABILITY.md, Writes.
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
		fmt.Fprintf(c, "POST /api/v1/economy/adjust HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nIdempotency-Key: gone-%d\r\nContent-Length: %d\r\n\r\n%s",
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
			return err == nil && a.Status == 200
		})
	}
	server.Do(t, "getWallet", "", apitest.Path("userId", "9")).Want(t, 200, `{"data":{"balance":40}}`)
}

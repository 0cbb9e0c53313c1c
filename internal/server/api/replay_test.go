package api_test

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/egress/egresstest"
	"guildhall/internal/server/api/apitest"
)

// However many repeats of a finished request arrive concurrently, each gets the stored response.
// RELIABILITY.md, Writes.
func TestRepeatsOfAFinishedRequestAreAllAnswered(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	for id, body := range map[string]string{
		"adjustBalance":       one,
		"createTicketMessage": `{"content":"hello"}`, // a refusal, which this operation stores in its own way
	} {
		view, op := server.Key("repeated-"+id), apitest.Find(t, id)
		first, err := view.Retry(op, body, apitest.Path("id", "none"))
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var replays atomic.Int64
		for range 50 {
			all.Go(func() {
				for range 4 {
					a, err := view.Retry(op, body, apitest.Path("id", "none"))
					if err != nil {
						t.Error(err)
						return
					}
					if a.Status == first.Status && string(a.Body) == string(first.Body) && a.Header.Get("Idempotent-Replay") == "true" {
						replays.Add(1)
					} else {
						t.Errorf("%s: a repeat is answered %d %s", id, a.Status, a.Body)
					}
				}
			})
		}
		all.Wait()
		if n := replays.Load(); n != 200 {
			t.Errorf("%s: %d of 200 repeats were replays of %d %s", id, n, first.Status, first.Body)
		}
	}
}

// A repeat does not run the operation's preparation, such as a DNS lookup: the response is stored,
// whatever the lookup would return now. RELIABILITY.md, Writes.
func TestARepeatAsksNobody(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := apitest.New(t, apitest.Names(func(string, bool) egresstest.Answer {
		asked.Add(1)
		return egresstest.Addresses("93.184.216.34")
	})).Key("asked-once")
	const body = `{"url":"https://receiver.test/hook","events":["case.created"]}`
	first := server.Do(t, "createWebhookEndpoint", body).Want(t, 201, "")
	before := asked.Load()
	server.Do(t, "createWebhookEndpoint", body).WantReplayOf(t, first)
	server.Do(t, "createWebhookEndpoint", `{"url":"https://other.test/hook"}`).WantError(t, 409, "idempotency_key_reused")
	if before == 0 || asked.Load() != before {
		t.Errorf("the name server was asked %d times for the first request, and then %d times", before, asked.Load()-before)
	}
	if log := server.Server.Log.String(); strings.Contains(log, "internal_error") {
		t.Errorf("it ended with an error:\n%s", log)
	}
}

// A caller that hangs up causes no error of ours, and a write whose caller is known to have gone is
// rolled back. If a busy server notices it only after the COMMIT, the write stays; so the test
// tries again. RELIABILITY.md, Overload.
func TestAClientThatHangsUpIsNoError(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	for unseen := range 20 {
		line := hungUp(t, server)
		made := dbtest.Value[int](t, server.DB(), `SELECT count(*) FROM cases`)
		if strings.Contains(line, `"status":201`) && made == unseen+1 {
			continue
		}
		for _, want := range []string{`"level":"INFO"`, `"code":"client_closed"`, `"status":499`} {
			if !strings.Contains(line, want) {
				t.Errorf("no %s in the log's %s", want, line)
			}
		}
		if made != unseen {
			t.Errorf("%d cases were made for a caller that had left", made-unseen)
		}
		return
	}
	t.Error("no caller was seen to leave")
}

// hungUp requests a case and hangs up while the guild's row is locked. It returns the request's log
// line.
func hungUp(t *testing.T, server *apitest.API) string {
	t.Helper()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	said := func() (lines []string) {
		for l := range strings.Lines(server.Server.Log.String()) {
			if strings.Contains(l, `"route":"/api/v1/cases"`) {
				lines = append(lines, l)
			}
		}
		return lines
	}
	before := len(said())
	release := lockGuild(t, server)
	c, err := tlsDial(server, u.Host)
	if err != nil {
		t.Fatal(err)
	}
	body := `{"user_id":"9","moderator_id":"8","type":"note","reason":"x"}`
	fmt.Fprintf(c, "POST /api/v1/cases HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s",
		server.Token, len(body), body)
	testutil.Eventually(t, "the write waits for the lock", func() bool {
		return dbtest.Waiting(t, server.DB()) > 0
	})
	c.Close()
	defer func() { _, _ = io.Copy(io.Discard, c) }()
	release()
	testutil.Eventually(t, "the request's line", func() bool { return len(said()) > before })
	return said()[before]
}

// lockGuild locks the guild's row until the returned function is called.
func lockGuild(t *testing.T, server *apitest.API) (release func()) {
	t.Helper()
	return lock(t, server, `SELECT id FROM guilds WHERE id = $1 FOR UPDATE`, server.Guild)
}

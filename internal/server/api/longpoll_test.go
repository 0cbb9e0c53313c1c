package api_test

import (
	"fmt"
	"net"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

// A transaction that Postgres ends at its COMMIT runs again. If the first run has found nothing
// and the second run an event, the response has the event: the second run has leased the event, so
// no other call would get it.
func TestALongPollSendsWhatItsRepeatedTransactionHasFound(t *testing.T) {
	t.Parallel()
	a := apitest.New(t)
	dbtest.NeedTriggers(t, a.DB())
	made := a.Do(t, "createWebhookEndpoint", `{"delivery":"pull","events":["case.created"]}`).Want(t, 201, "")
	at := apitest.Path("id", made.Str(t, "data.id"))
	a.Do(t, "createCase", `{"user_id":"7","type":"note","moderator_id":"8","reason":"x"}`).Want(t, 201, "")
	for _, statement := range []string{
		`UPDATE webhook_deliveries SET due_at = clock_timestamp() + interval '1 second'`,
		`CREATE SEQUENCE commits`,
		`CREATE FUNCTION fails_once_due() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('commits') = 1 THEN
				WHILE clock_timestamp() <= (SELECT max(due_at) FROM webhook_deliveries) LOOP PERFORM pg_sleep(0.01); END LOOP;
				RAISE EXCEPTION 'again' USING ERRCODE = 'serialization_failure';
			END IF;
			RETURN NULL;
		END $$`,
		`CREATE CONSTRAINT TRIGGER in_commit AFTER UPDATE ON webhook_schedule DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION fails_once_due()`,
	} {
		dbtest.Exec(t, a.DB(), statement)
	}
	if ids := a.Do(t, "pullWebhookEvents", `{"wait":1}`, at).Want(t, 200, "").All(t, "id"); len(ids) != 1 {
		t.Errorf("the call is sent %d events", len(ids))
	}
	if n := dbtest.Value[int](t, a.DB(), `SELECT last_value FROM commits`); n != 2 {
		t.Errorf("%d transactions were committed or tried", n)
	}
}

// 5,000 long polls on one node use at most 150 MB: each has a stack of 8 KB, another 8 KB for the
// goroutine that notices when its caller hangs up, and net/http's buffers of 10 KB. The bound
// leaves room for a few headers but not for a stack of 16 KB. RELIABILITY.md, Events.
func TestACallThatWaitsKeepsLittleMemory(t *testing.T) { //nolint:paralleltest // it measures memory
	var cfg api.Config
	server := apitest.New(t, apitest.With(func(c *api.Config) {
		c.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		cfg = *c
	}))
	bot := server.Bot(t)
	bot.Do(t, "putBotStream", `{"events":["member.forgotten"]}`, apitest.Path("name", "mirror")).Want(t, 200, "")
	handler, err := api.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	plain := httptest.NewServer(handler)
	defer plain.Close()
	const calls = 300
	wait := func(n int) net.Conn {
		conn, err := net.Dial("tcp", plain.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"stream":"mirror","wait":20,"shards":%d,"shard":%d}`, 64-n/50, n%50)
		_, err = fmt.Fprintf(conn, "POST %s/bot/events/pull HTTP/1.1\r\nHost: bot\r\nX-Forwarded-Proto: https\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", api.Prefix, bot.Token, len(body), body)
		if err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "the call waits", func() bool { return server.Server.Waiters.Waiting() > n })
		return conn
	}
	defer wait(0).Close() // memory that is allocated only once
	before := memoryInUse()
	for n := 1; n <= calls; n++ {
		defer wait(n).Close()
	}
	each, most := (memoryInUse()-before)/calls, 32_000
	if testutil.Race {
		most = 44_000
	}
	t.Logf("a call that waits keeps %d bytes", each)
	if n := server.Server.Waiters.Waiting(); each > most && n == calls+1 {
		t.Errorf("a call that waits keeps %d bytes", each)
	}
}

// memoryInUse returns the memory in use after garbage collection, which also shrinks stacks that
// are too large.
func memoryInUse() int {
	for range 4 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

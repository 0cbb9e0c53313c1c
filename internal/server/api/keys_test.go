package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

const one = `{"user_id":"9","delta":1}`

// The syntax of an idempotency key, and its scope. RELIABILITY.md, Writes.
func TestKeySyntax(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	fine := []string{"k", strings.Repeat("k", 128), `"quoted"`, "!~{}[]\\'`", "K"}
	for _, key := range fine {
		first := server.Key(key).Do(t, "adjustBalance", one).Want(t, 200, "")
		server.Key(key).Do(t, "adjustBalance", one).WantReplayOf(t, first)
	}
	for name, view := range map[string]*apitest.API{
		"empty":         server.Header("Idempotency-Key", ""),
		"too long":      server.Key(strings.Repeat("k", 129)),
		"far too long":  server.Key(strings.Repeat("k", 4000)),
		"a space":       server.Key("a b"),
		"a tab":         server.Key("a\tb"),
		"not ASCII":     server.Key("clé"),
		"a wide digit":  server.Key("１"),
		"a broken byte": server.Key("a\xffb"),
		"sent twice":    server.Header("Idempotency-Key", "key-1").Header("Idempotency-Key", "key-2"),
		"the same sent twice": server.Header("Idempotency-Key", "key").
			Header("Idempotency-Key", "key"),
	} {
		t.Run(name, func(t *testing.T) {
			view.Do(t, "adjustBalance", one).WantError(t, 400, "invalid_request")
		})
	}
	if n := dbtest.Value[int](t, server.DB(), `SELECT count(*) FROM idempotency_keys`); n != len(fine) {
		t.Errorf("%d keys are stored, want the %d good ones", n, len(fine))
	}
	server.Do(t, "getWallet", "", apitest.Path("userId", "9")).Want(t, 200, `{"data":{"balance":5}}`)
}

// RELIABILITY.md, Writes.
func TestKeyScope(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	server.Key("k").Do(t, "adjustBalance", one).Want(t, 200, "")

	t.Run("another token has keys of its own", func(t *testing.T) {
		server.As(t, "economy:write").Key("k").Do(t, "adjustBalance", one).Want(t, 200, `{"data":{"balance":2}}`)
		server.Next(t).Key("k").Do(t, "adjustBalance", one).Want(t, 200, `{"data":{"balance":1}}`)
	})
	t.Run("another operation shares them", func(t *testing.T) {
		server.Key("k").Do(t, "adjustXp", one).WantError(t, 409, "idempotency_key_reused")
	})
	t.Run("reads ignore them", func(t *testing.T) {
		for _, key := range []string{"k", "", "a b", strings.Repeat("k", 999)} {
			a := server.Header("Idempotency-Key", key).Do(t, "getWallet", "", apitest.Path("userId", "9")).Want(t, 200, `{"data":{"balance":2}}`)
			if a.Header.Get("Idempotent-Replay") != "" {
				t.Error("a read was answered as a replay")
			}
		}
	})
}

// Only a request with exactly the same bytes is the same request. RELIABILITY.md, Writes.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	server := apitest.New(t).Key("k")
	made := server.Do(t, "createCase", `{"user_id":"9","moderator_id":"8","type":"note","reason":"x"}`).Want(t, 201, "")
	at := apitest.Path("id", made.Str(t, "data.id"))
	for name, body := range map[string]string{
		"members in another order": `{"moderator_id":"8","user_id":"9","type":"note","reason":"x"}`,
		"a space":                  `{"user_id":"9", "moderator_id":"8","type":"note","reason":"x"}`,
		"a final newline":          `{"user_id":"9","moderator_id":"8","type":"note","reason":"x"}` + "\n",
		"another escape":           `{"user_id":"9","moderator_id":"8","type":"note","reason":"\u0078"}`,
		"another value":            `{"user_id":"9","moderator_id":"8","type":"note","reason":"y"}`,
		"an invalid body":          `{"user_id":`,
		"no body":                  ``,
	} {
		t.Run(name, func(t *testing.T) {
			server.Do(t, "createCase", body).WantError(t, 409, "idempotency_key_reused")
		})
	}
	t.Run("another path", func(t *testing.T) {
		server.Do(t, "updateCase", `{"user_id":"9","moderator_id":"8","type":"note","reason":"x"}`, at).
			WantError(t, 409, "idempotency_key_reused")
	})
	t.Run("a query is refused before the key is looked at", func(t *testing.T) {
		const body = `{"user_id":"9","moderator_id":"8","type":"note","reason":"x"}`
		server.Do(t, "createCase", body, apitest.Query("a", "b")).WantError(t, 400, "invalid_request")
		server.Raw(t, "POST", "/api/v1/cases?", body).WantError(t, 400, "invalid_request")
		server.Do(t, "createCase", body).WantReplayOf(t, made)
	})
	t.Run("a trailing slash is no route", func(t *testing.T) {
		server.Raw(t, "POST", "/api/v1/cases/", `{"user_id":"9","moderator_id":"8","type":"note","reason":"x"}`).WantError(t, 404, "not_found")
	})
	if n := dbtest.Value[int](t, server.DB(), `SELECT count(*) FROM cases`); n != 1 {
		t.Errorf("there are %d cases, want 1", n)
	}
}

// A response is stored for 24 hours from the key's first use, by the database's clock, whether or
// not expired keys have been deleted. RELIABILITY.md, Writes.
func TestKeysLastADay(t *testing.T) {
	t.Parallel()
	server := apitest.New(t).Key("k")
	first := server.Do(t, "adjustBalance", one).Want(t, 200, `{"data":{"balance":1}}`)
	age := func(d string) {
		t.Helper()
		dbtest.Exec(t, server.DB(), `UPDATE idempotency_keys SET created_at = now() - $1::interval`, d)
	}
	age("23 hours 59 minutes")
	before := dbtest.Value[int](t, server.DB(), `SELECT extract(epoch FROM created_at)::bigint FROM idempotency_keys`)
	server.Do(t, "adjustBalance", one).WantReplayOf(t, first)
	server.Do(t, "adjustBalance", `{"user_id":"9","delta":2}`).WantError(t, 409, "idempotency_key_reused")
	if after := dbtest.Value[int](t, server.DB(), `SELECT extract(epoch FROM created_at)::bigint FROM idempotency_keys`); after != before {
		t.Error("a replay prolonged the window")
	}
	age("24 hours")
	second := server.Do(t, "adjustBalance", one).Want(t, 200, `{"data":{"balance":2}}`)
	if second.Header.Get("Idempotent-Replay") != "" {
		t.Error("after 24 hours the request was answered as a replay")
	}
	server.Do(t, "adjustBalance", one).WantReplayOf(t, second)
	age("40 days")
	server.Do(t, "adjustBalance", `{"user_id":"9","delta":5}`).Want(t, 200, `{"data":{"balance":7}}`)
}

// The end of the 24 hours to the millisecond: within one transaction the database's clock stands
// still. RELIABILITY.md, Writes.
func TestKeysLastExactlyADay(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	keys := idempotency.Keys{Sealer: server.Server.Sealer}
	r := idempotency.Request{GuildID: "g", TokenID: "t", Key: "k", Fingerprint: []byte("f")}
	undo := errors.New("undo")
	edge := time.Millisecond
	if dbtest.Coordinator(t) {
		edge = 10 * time.Second // on Citus a worker's transaction begins later and has its own clock
	}
	for age, replayed := range map[time.Duration]bool{
		0:                                  true,
		24*time.Hour - edge:                true,
		24 * time.Hour:                     false,
		24*time.Hour + edge:                false,
		24*365*time.Hour + time.Nanosecond: false,
	} {
		err := server.DB().Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
			if a, err := keys.Claim(ctx, tx, r); a != nil || err != nil {
				t.Fatalf("the first claim returned %v, %v", a, err)
			}
			if err := keys.Keep(ctx, tx, r, idempotency.Response{Status: 200, Body: []byte("{}")}); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `
				UPDATE idempotency_keys
				SET created_at = now() - make_interval(secs => $1)`, age.Seconds()); err != nil {
				return err
			}
			a, err := keys.Claim(ctx, tx, r)
			if err != nil {
				return err
			}
			if (a != nil) != replayed {
				t.Errorf("after %s: replayed is %v, want %v", age, a != nil, replayed)
			}
			return undo
		})
		if !errors.Is(err, undo) {
			t.Fatal(err)
		}
	}
}

// A stored refusal stays the response of its key after its reason is gone. RELIABILITY.md, Writes.
func TestRefusalsAreKept(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)

	t.Run("422", func(t *testing.T) {
		const spend = `{"user_id":"9","delta":-1}`
		first := server.Key("422").Do(t, "adjustBalance", spend).WantError(t, 422, "balance_would_be_negative")
		server.Do(t, "adjustBalance", `{"user_id":"9","delta":10}`).Want(t, 200, "")
		server.Key("422").Do(t, "adjustBalance", spend).WantReplayOf(t, first)
		server.Key("422b").Do(t, "adjustBalance", spend).Want(t, 200, `{"data":{"balance":9}}`)
	})
	t.Run("404", func(t *testing.T) {
		first := server.Key("404").Do(t, "updateCase", `{"reason":"x"}`, apitest.Path("id", "late")).WantError(t, 404, "not_found")
		dbtest.Exec(t, server.DB(), `
			INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, source)
			VALUES ($1, 'late', 77, '9', '8', 'ban', 'bot')`, server.Guild)
		server.Key("404").Do(t, "updateCase", `{"reason":"x"}`, apitest.Path("id", "late")).WantReplayOf(t, first)
		server.Key("404b").Do(t, "updateCase", `{"reason":"x"}`, apitest.Path("id", "late")).Want(t, 200, "")
	})
	t.Run("400", func(t *testing.T) {
		for key, body := range map[string]string{"400a": `{"user_id":"9"}`, "400b": `{"user_id":`, "400c": ``, "400d": "\xff"} {
			first := server.Key(key).Do(t, "adjustBalance", body).WantError(t, 400, "invalid_request")
			server.Key(key).Do(t, "adjustBalance", body).WantReplayOf(t, first)
			server.Key(key).Do(t, "adjustBalance", one).WantError(t, 409, "idempotency_key_reused")
		}
	})
	t.Run("but not what was refused before the key", func(t *testing.T) {
		read := server.As(t, "economy:read")
		read.Key("403").Do(t, "adjustBalance", one).WantError(t, 403, "insufficient_scope")
		server.Key("413").Do(t, "adjustBalance", strings.Repeat(" ", 70000)).WantError(t, 413, "payload_too_large")
		server.Header("Content-Type", "text/plain").Key("415").Do(t, "adjustBalance", one).WantError(t, 415, "unsupported_media_type")
		for _, key := range []string{"413", "415"} {
			a := server.Key(key).Do(t, "adjustBalance", one).Want(t, 200, "")
			if a.Header.Get("Idempotent-Replay") != "" {
				t.Errorf("the key %s was used up", key)
			}
		}
	})
}

// A rate-limited request stores nothing. The next request with the key runs once, and the one after
// it is a replay. Replays are rate-limited too. RELIABILITY.md, Writes.
func TestLimitedCallsAreNotKept(t *testing.T) {
	t.Parallel()
	server := apitest.New(t, apitest.With(func(c *api.Config) { c.Quotas.Write = ratelimit.Quota{Limit: 1, Window: 3 * time.Second} }))
	call := func(a *apitest.API) (got *apitest.Response) {
		t.Helper()
		testutil.Eventually(t, "a call is not limited", func() bool {
			if got = a.Do(t, "adjustBalance", one); got.Status != 429 {
				return true
			}
			wait, err := strconv.Atoi(got.Header.Get("Retry-After"))
			if err != nil || wait < 1 {
				t.Fatalf("Retry-After is %q", got.Header.Get("Retry-After"))
			}
			time.Sleep(time.Duration(wait) * time.Second) // as Retry-After says
			return false
		})
		return got
	}
	call(server).Want(t, 200, "")
	server.Key("k").Do(t, "adjustBalance", one).WantError(t, 429, "rate_limited")
	first := call(server.Key("k")).Want(t, 200, `{"data":{"balance":2}}`)
	if first.Header.Get("Idempotent-Replay") != "" {
		t.Error("the limited call had used the key up")
	}
	call(server.Key("k")).WantReplayOf(t, first)
	server.Do(t, "getWallet", "", apitest.Path("userId", "9")).Want(t, 200, `{"data":{"balance":2}}`)
}

// One process replays, byte for byte, the response that another has stored. RELIABILITY.md, Writes.
func TestReplayByAnotherProcess(t *testing.T) {
	t.Parallel()
	var cfg api.Config
	server := apitest.New(t, apitest.With(func(c *api.Config) { cfg = *c })).Key("k")
	const body = `{"user_id":"9","moderator_id":"8","type":"note","reason":"é🎉 <&>"}`
	first := server.Do(t, "createCase", body).Want(t, 201, "")
	refused := server.Key("r").Do(t, "adjustBalance", `{"user_id":"9","delta":-5}`).WantError(t, 422, "balance_would_be_negative")

	handler, err := api.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	other := testutil.NewTLSServer(handler)
	defer other.Close()
	for _, c := range []struct {
		path, key, body string
		want            *apitest.Response
	}{
		{"/cases", "k", body, first},
		{"/economy/adjust", "r", `{"user_id":"9","delta":-5}`, refused},
	} {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, other.URL+api.Prefix+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+server.Token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", c.key)
		respond(t, other.Client(), req).WantReplayOf(t, c.want)
	}
}

// panicky is a sealer that panics on demand: at the point between an operation's effect and its
// stored response.
type panicky struct {
	idempotency.Sealer
	now atomic.Bool
}

func (p *panicky) Seal(plain []byte, bound string) []byte {
	if p.now.Load() {
		panic("between the effect and its answer")
	}
	return p.Sealer.Seal(plain, bound)
}

// The program panics in the middle of a write. Afterwards both the effect and the stored response
// exist, or neither does. RELIABILITY.md, Writes.
func TestPanicInAWrite(t *testing.T) {
	t.Parallel()

	t.Run("before the commit nothing stays", func(t *testing.T) {
		t.Parallel()
		sealer := &panicky{}
		server := apitest.New(t, apitest.With(func(c *api.Config) {
			sealer.Sealer = c.Sealer
			c.Sealer = sealer
		}))
		sealer.now.Store(true)
		for i := range 20 {
			a := server.Key(fmt.Sprint(i)).Do(t, "adjustBalance", one).WantError(t, 500, "internal_error")
			if strings.Contains(string(a.Body), "between") {
				t.Fatalf("the answer tells of our insides: %s", a.Body)
			}
		}
		if n := dbtest.Value[int](t, server.DB(), `SELECT (SELECT count(*) FROM ledger_entries)
			+ (SELECT count(*) FROM idempotency_keys) + (SELECT count(*) FROM webhook_events)`); n != 0 {
			t.Errorf("%d rows are left of writes that broke off", n)
		}
		sealer.now.Store(false)
		for i := range 20 {
			server.Key(fmt.Sprint(i)).Do(t, "adjustBalance", one).Want(t, 200, fmt.Sprintf(`{"data":{"balance":%d}}`, i+1))
		}
	})
	t.Run("after the commit everything stays", func(t *testing.T) {
		t.Parallel()
		var broken atomic.Bool
		server := apitest.New(t, apitest.With(func(c *api.Config) {
			c.Wake = func(string) {
				if broken.Load() {
					panic("after the commit")
				}
			}
		}))
		broken.Store(true)
		for i := range 20 {
			server.Key(fmt.Sprint(i)).Do(t, "adjustBalance", one).WantError(t, 500, "internal_error")
		}
		broken.Store(false)
		for i := range 20 {
			a := server.Key(fmt.Sprint(i)).Do(t, "adjustBalance", one).Want(t, 200, fmt.Sprintf(`{"data":{"balance":%d}}`, i+1))
			if a.Header.Get("Idempotent-Replay") != "true" {
				t.Errorf("the answer of write %d was not kept", i)
			}
		}
		if n := dbtest.Value[int](t, server.DB(), `SELECT count(*) FROM ledger_entries`); n != 20 {
			t.Errorf("there are %d ledger rows, want 20", n)
		}
	})
}

// For a message that is posted after its request has ended, the response that the request would
// have got is stored under its key.
func TestAMessageThatIsPostedLaterIsKept(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	keys := api.TicketKeys{Keys: idempotency.Keys{Sealer: server.Server.Sealer}}
	r := idempotency.Request{GuildID: "g", TokenID: "t", Key: "k", Fingerprint: []byte("f")}
	undo := errors.New("undo")
	err := server.DB().Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if a, err := keys.Claim(ctx, tx, r); a != nil || err != nil {
			t.Fatalf("the first claim returned %v, %v", a, err)
		}
		if err := keys.Keep(ctx, tx, r, func(http.ResponseWriter) error { return errors.New("no words") }); err == nil {
			t.Error("a response that cannot be written was kept")
		}
		posted := gen.TicketMessage{ID: "m", Content: "hello"}
		if err := keys.Keep(ctx, tx, r, gen.CreateTicketMessage201JSONResponse{Data: posted}.VisitCreateTicketMessageResponse); err != nil {
			return err
		}
		a, err := keys.Claim(ctx, tx, r)
		if err != nil {
			return err
		}
		if a == nil || a.Status != http.StatusCreated || !strings.Contains(string(a.Body), `"content":"hello"`) {
			t.Errorf("kept is %+v", a)
		}
		return undo
	})
	if !errors.Is(err, undo) {
		t.Fatal(err)
	}
}

package api_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

func TestARequestWithABotKeyNamesItsGuild(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	next := server.Next(t)
	every, own := server.Bot(t), server.Bot(t, server.Guild, "999")
	const one = `{"user_id":"7","delta":1}`
	refuse := func(view *apitest.API, status int, code, message string) {
		t.Helper()
		a := view.Key("k").Do(t, "adjustBalance", one).WantError(t, status, code)
		if got := a.Str(t, "error.message"); !strings.Contains(got, message) {
			t.Errorf("the message is %q, want %q in it", got, message)
		}
	}
	refuse(every, 400, "invalid_request", "header Guild-Id: is required")
	refuse(every.In(server.Guild).In(server.Guild), 400, "invalid_request", "header Guild-Id: must be sent once")
	for _, id := range []string{"", "0", "007", "1a", "-1", "123456789012345678901", "١"} {
		refuse(every.In(id), 400, "invalid_request", "header Guild-Id: must be the id of a guild")
	}
	const absent = "There is no guild 999. The operator's bot creates it with a guild record: POST /records with " +
		`{"records":[{"record":"guild"}]}; so does `
	refuse(every.In("999"), 404, "not_found", absent)
	refuse(own.In("999"), 404, "not_found", absent)
	refuse(own.In("998"), 404, "not_found", "this key does not serve it") // and nothing says that there is none
	refuse(own.In(next.Guild), 404, "not_found", "this key does not serve it")
	refuse(server.In(next.Guild), 400, "invalid_request", "header Guild-Id: this token is bound to guild "+server.Guild)

	// None of these refusals is stored under the idempotency key, so the right guild can still use
	// it.
	every.In(server.Guild).Key("k").Do(t, "adjustBalance", one).Want(t, 200, `{"data":{"balance":1}}`)
	server.In(server.Guild).Do(t, "getWallet", "", apitest.Path("userId", "7")).Want(t, 200, `{"data":{"balance":1}}`)

	every.Do(t, "getHealth", "").Want(t, 200, "")
	every.In("nonsense").Do(t, "getHealth", "").Want(t, 200, "")
	every.Raw(t, "OPTIONS", "/api/v1/cases", "").Want(t, 204, "")
}

func TestAKeySaysWhoItIsInTheGuildThatItNames(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	next := server.Next(t)
	key := server.Bot(t)
	me := key.In(next.Guild).Do(t, "getMe", "").
		Want(t, 200, `{"token":{"name":"bot","guild_id":"`+next.Guild+`","ip_allowlist":[],"expires_at":null}}`)
	if id := me.Str(t, "token.id"); !strings.HasPrefix(id, "bk_") {
		t.Errorf("its id is %s", id)
	}
	if preview := me.Str(t, "token.preview"); preview != "bot_test_..."+key.Token[len(key.Token)-4:] {
		t.Errorf("its preview is %s", preview)
	}
	for _, scope := range append([]string{auth.ScopeBot}, auth.Scopes...) {
		if !strings.Contains(string(me.Body), `"`+scope+`"`) {
			t.Errorf("it lacks the scope %s: %s", scope, me.Body)
		}
	}
	origin := `{"origin":{"type":"bot","token_id":null,"key_id":"` + me.Str(t, "token.id") + `"}}`
	key.In(next.Guild).Do(t, "createCase", `{"user_id":"7","moderator_id":"8","type":"note","reason":"x"}`).
		Want(t, 201, `{"data":{"source":"bot"}}`)
	next.WantEvent(t, "case.created", origin)
	key.In(next.Guild).Do(t, "adjustBalance", `{"user_id":"7","delta":5}`).
		Want(t, 200, `{"data":{"ledger_entry":{"note":"bot:key=`+me.Str(t, "token.id")+`"}}}`)
	next.WantEvent(t, "economy.balance_changed", origin)
	server.WantNoEvent(t)
	if n := dbtest.Value[int](t, server.DB(), `SELECT count(*) FROM ledger_entries WHERE guild_id = $1`, server.Guild); n != 0 {
		t.Errorf("the other guild has %d ledger rows", n)
	}
}

func TestAKeyThatIsNotGoodIsRefusedByItsOwnError(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	key := server.Bot(t)
	say := func(bearer, header string, status int, code, message string) {
		t.Helper()
		view := *server
		view.Token = bearer
		a := view.In(server.Guild).Do(t, "getMe", "").WantError(t, status, code)
		if got := a.Str(t, "error.message"); !strings.Contains(got, message) {
			t.Errorf("%s: the message is %q, want %q in it", header, got, message)
		}
	}
	say("bot_live_"+key.Token[len("bot_test_"):], "of another environment", 401, "invalid_token", "This is a live bot key on a test server")
	say("svc_test_"+key.Token[len("bot_test_"):], "under a token's prefix", 401, "invalid_token", "unknown, revoked or expired")
	say("bot_test_"+strings.Repeat("A", 43), "unknown", 401, "invalid_token", "unknown, revoked or expired")

	elsewhere, err := auth.CreateKey(t.Context(), server.DB(), auth.NewKey{Env: "test", Name: "elsewhere", AllowIP: []string{"192.0.2.1"}})
	if err != nil {
		t.Fatal(err)
	}
	say(elsewhere.Secret, "outside its allowlist", 403, "ip_not_allowed", "may not be used from this address")
	over, err := auth.CreateKey(t.Context(), server.DB(), auth.NewKey{Env: "test", Name: "over", ExpiresIn: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, server.DB(), `UPDATE bot_keys SET expires_at = now() - interval '1 second' WHERE id = $1`, over.ID)
	say(over.Secret, "expired", 401, "invalid_token", "unknown, revoked or expired")
	key.In(server.Guild).Do(t, "getMe", "").Want(t, 200, "")
	keys, err := auth.ListKeys(t.Context(), server.DB())
	if err != nil || len(keys) != 3 {
		t.Fatal(keys, err)
	}
	if err := auth.RevokeKey(t.Context(), server.DB(), keys[0].ID); err != nil {
		t.Fatal(err)
	}
	say(key.Token, "revoked", 401, "invalid_token", "unknown, revoked or expired")
	a := server.Do(t, "removeGuild", "").WantError(t, 403, "insufficient_scope")
	if got := a.Str(t, "error.message"); !strings.Contains(got, "it needs a bot key, for no token has the scope bot") {
		t.Errorf("a token on a bot's operation is told %q", got)
	}
}

func TestAKeyHasABucketOfItsOwnInEachGuild(t *testing.T) {
	t.Parallel()
	server := apitest.New(t, apitest.With(func(c *api.Config) { c.Quotas.Bot = ratelimit.Quota{Limit: 2, Window: time.Hour} }))
	next := server.Next(t)
	key := server.Bot(t)
	for _, view := range []*apitest.API{key.In(server.Guild), key.In(next.Guild)} {
		view.Do(t, "getGuild", "").Want(t, 200, "")
		view.Do(t, "getGuild", "").Want(t, 200, "")
		view.Do(t, "getGuild", "").WantError(t, 429, "rate_limited")
		view.Do(t, "adjustBalance", `{"user_id":"7","delta":1}`).Want(t, 200, "") // writes have another bucket
	}
	// Guilds that do not exist share the key's own bucket: guessing ids creates no buckets.
	key.In("1").Do(t, "getGuild", "").WantError(t, 404, "not_found")
	key.In("2").Do(t, "getGuild", "").WantError(t, 404, "not_found")
	key.In("3").Do(t, "getGuild", "").WantError(t, 429, "rate_limited")
	server.Do(t, "getGuild", "").Want(t, 200, "")
}

// Whatever the header says, for an operation of no guild the idempotency key and the bucket belong
// to the bot key alone.
func TestAnOperationOfNoGuildIgnoresTheHeader(t *testing.T) {
	t.Parallel()
	server := apitest.New(t, apitest.With(func(c *api.Config) { c.Quotas.Bot = ratelimit.Quota{Limit: 3, Window: time.Hour} }))
	key := server.Bot(t)
	const stream = `{"events":["case.created"]}`
	first := key.Key("s").Do(t, "putBotStream", stream, apitest.Path("name", "a")).Want(t, 200, "")
	key.In(server.Guild).Key("s").Do(t, "putBotStream", stream, apitest.Path("name", "a")).WantReplayOf(t, first)
	key.In("nonsense").Key("s").Do(t, "putBotStream", stream, apitest.Path("name", "a")).WantReplayOf(t, first)
	key.In(server.Guild).Do(t, "putBotStream", stream, apitest.Path("name", "a")).WantError(t, 429, "rate_limited")
	key.In(server.Guild).Do(t, "adjustBalance", `{"user_id":"7","delta":1}`).Want(t, 200, "")
}

// Two nodes have cached the key in both guilds before it is revoked.
func TestARevokedKeyIsRefusedOnEveryNodeInEveryGuild(t *testing.T) {
	t.Parallel()
	url := dbtest.Empty(t, "")
	one, two := apitest.New(t, apitest.On(url)), apitest.New(t, apitest.On(url))
	for _, node := range []*apitest.API{one, two} {
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = node.Server.Tokens.Run(ctx)
		}()
		t.Cleanup(func() { stop(); <-ended })
	}
	next, key := one.Next(t), one.Bot(t)
	everywhere := func(check func(view *apitest.API)) {
		for _, node := range []*apitest.API{one, two} {
			for _, guild := range []string{one.Guild, next.Guild} {
				view := *node
				view.Token = key.Token
				check(view.In(guild))
			}
		}
	}
	for range 3 {
		everywhere(func(view *apitest.API) { view.Do(t, "getGuild", "").Want(t, 200, "") })
	}
	keys, err := auth.ListKeys(t.Context(), one.DB())
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	if err := auth.RevokeKey(t.Context(), one.DB(), keys[0].ID); err != nil {
		t.Fatal(err)
	}
	everywhere(func(view *apitest.API) { view.Do(t, "getGuild", "").WantError(t, 401, "invalid_token") })
}

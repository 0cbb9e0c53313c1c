package api_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

// A token's own limits replace the installation's, are shown in headers, and change without a new
// secret. Other tokens keep theirs.
func TestATokenHasLimitsOfItsOwn(t *testing.T) {
	t.Parallel()
	many := ratelimit.Quota{Limit: 1000, Window: time.Hour}
	server := apitest.New(t, apitest.With(func(c *api.Config) {
		c.Quotas = api.Quotas{Read: many, Write: many, Bot: ratelimit.Quota{Limit: 3000, Window: time.Minute}, Login: many}
	}))
	limits := func(by *apitest.API) (gen.TokenMetadata, string, http.Header) {
		a := by.Do(t, "getMe", "").Want(t, 200, "")
		var me gen.Me
		if err := json.Unmarshal(a.Body, &me); err != nil {
			t.Fatal(err)
		}
		text := func(s *string) string {
			if s == nil {
				return "null"
			}
			return *s
		}
		return me.Token, text(me.Token.Limits.Read) + " " + text(me.Token.Limits.Write), a.Header
	}
	token, shown, _ := limits(server)
	if shown != "1000/1h 1000/1h" {
		t.Errorf("the installation's limits are shown as %s", shown)
	}
	if err := auth.SetLimits(t.Context(), server.DB(), server.Guild, token.ID, auth.Limits{Read: "500/1m", Write: "off"}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the change holds", func() bool {
		_, shown, header := limits(server)
		return shown == "500/1m null" && header.Get("X-RateLimit-Limit") == "500"
	})
	if a := server.Do(t, "adjustBalance", `{"user_id":"1","delta":1}`).Want(t, 200, ""); a.Header.Get("X-RateLimit-Limit") != "" {
		t.Error("a limit that is off is counted")
	}
	if _, shown, _ := limits(server.As(t, "guild:read")); shown != "1000/1h 1000/1h" {
		t.Errorf("another token's limits are %s", shown)
	}
	if _, shown, _ := limits(server.Bot(t).In(server.Guild)); shown != "3000/1m 3000/1m" {
		t.Errorf("a bot key's limits are %s", shown)
	}
	for _, c := range []struct{ guild, id, read string }{{"1", token.ID, ""}, {server.Guild, "none", ""}, {server.Guild, token.ID, "many"}} {
		if err := auth.SetLimits(t.Context(), server.DB(), c.guild, c.id, auth.Limits{Read: c.read}); err == nil {
			t.Errorf("%+v was not refused", c)
		}
	}
}

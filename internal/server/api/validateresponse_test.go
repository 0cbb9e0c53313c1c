package api_test

import (
	"fmt"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

// With ValidateResponses a server checks its own responses against the contract.
func TestResponsesAreValidated(t *testing.T) {
	t.Parallel()
	const complaint = "an answer breaks the contract"
	server := apitest.New(t, apitest.With(func(c *api.Config) { c.ValidateResponses = true }))

	server.Do(t, "getGuild", "").Want(t, 200, "")
	server.Do(t, "adjustBalance", `{"user_id":"42","delta":-1}`).WantError(t, 422, "balance_would_be_negative")
	server.Do(t, "getCase", "", apitest.Path("id", "none")).WantError(t, 404, "not_found")
	server.Raw(t, "DELETE", "/api/v1/cases", "")
	if log := server.Server.Log.String(); strings.Contains(log, complaint) {
		t.Fatalf("the log complains of right answers:\n%s", log)
	}

	dbtest.Exec(t, server.DB(), `UPDATE guilds SET icon_url = repeat('x', 3000) WHERE id = $1`, server.Guild)
	server.Raw(t, "GET", "/api/v1/guild", "").Want(t, 200, "")
	log := server.Server.Log.String()
	if !strings.Contains(log, complaint) || !strings.Contains(log, `"operation":"getGuild"`) ||
		!strings.Contains(log, "maximum string length is 2048") {
		t.Errorf("the log does not say that the address of the icon is too long:\n%s", log)
	}
}

// A well-formed response with an undocumented error code is a violation too.
func TestCodesOfResponsesAreValidated(t *testing.T) {
	t.Parallel()
	checked := apitest.With(func(c *api.Config) { c.ValidateResponses = true })
	for status, kind := range map[int]fault.Kind{400: fault.Invalid, 403: fault.Forbidden} {
		server := apitest.New(t, checked, with(fault.New(kind, "unheard_of", "Nobody expects this.")))
		server.Raw(t, "POST", "/api/v1/economy/adjust", one).WantError(t, status, "unheard_of")
		want := fmt.Sprintf(`the code \"unheard_of\" is not documented for %d`, status)
		if log := server.Server.Log.String(); !strings.Contains(log, want) {
			t.Errorf("the log does not say that %s:\n%s", want, log)
		}
	}
}

package api_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

// scopesFromBearer is an authenticator that reads the scopes from the token's text, so that one
// server can be called with any set of scopes.
type scopesFromBearer struct{}

func (scopesFromBearer) Authenticate(_ context.Context, bearer string, _ netip.Addr) (*auth.Principal, error) {
	return &auth.Principal{
		By: auth.By{GuildID: apitest.Guild, ID: "token"}, Name: "test", Preview: "svc_test_...test",
		Scopes: strings.Split(bearer, ","), CreatedAt: time.Now(), LastUsedAt: time.Now(),
	}, nil
}

func (scopesFromBearer) Guild(context.Context, string) (auth.Presence, error) {
	return auth.Present, nil
}

// Each operation is allowed by its own scope alone, not by all other scopes together, and a token
// with only that scope may call no other operation. RELIABILITY.md, Tokens.
func TestEveryOperationAgainstEveryScope(t *testing.T) {
	t.Parallel()
	server := apitest.New(t, apitest.With(func(c *api.Config) { c.Tokens = scopesFromBearer{} }))
	as := func(scopes ...string) *apitest.API {
		view := *server
		view.Token = strings.Join(append([]string{"none"}, scopes...), ",")
		return &view
	}
	used := map[string]bool{}
	each(t, func(t *testing.T, op apitest.Operation) {
		t.Helper()
		used[op.Scope] = true
		for _, scope := range append([]string{auth.ScopeBot}, auth.Scopes...) {
			a := as(scope).Do(t, op.ID, "", fill(op)...)
			if op.Scope == "" || op.Scope == scope {
				if a.Status == 401 || a.Status == 403 || a.Status >= 500 {
					t.Errorf("with %s it answers %d: %s", scope, a.Status, a.Body)
				}
				continue
			}
			refused(t, op, a.WantError(t, 403, "insufficient_scope"))
		}
		if op.Scope == "" {
			if a := as().Do(t, op.ID, "", fill(op)...); a.Status != 200 {
				t.Errorf("without any scope it answers %d: %s", a.Status, a.Body)
			}
			return
		}
		refused(t, op, as().Do(t, op.ID, "", fill(op)...).WantError(t, 403, "insufficient_scope"))
		others := slices.DeleteFunc(slices.Clone(auth.Scopes), func(s string) bool { return s == op.Scope })
		refused(t, op, as(others...).Do(t, op.ID, "", fill(op)...).WantError(t, 403, "insufficient_scope"))
		for _, near := range []string{
			strings.ToUpper(op.Scope), " " + op.Scope, strings.Split(op.Scope, ":")[0] + ":*", "*",
			op.Scope[:len(op.Scope)-1],
		} {
			refused(t, op, as(near).Do(t, op.ID, "", fill(op)...).WantError(t, 403, "insufficient_scope"))
		}
	})
	for _, scope := range auth.Scopes {
		if !used[scope] {
			t.Errorf("no operation needs the scope %s", scope)
		}
	}
}

func refused(t *testing.T, op apitest.Operation, a *apitest.Response) {
	t.Helper()
	a.Want(t, 403, `{"error":{"required_scope":"`+op.Scope+`"}}`)
	if got, want := a.Header.Get("WWW-Authenticate"), `Bearer error="insufficient_scope", scope="`+op.Scope+`"`; got != want {
		t.Errorf("WWW-Authenticate is %q, want %q", got, want)
	}
}

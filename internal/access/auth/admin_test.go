package auth

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/testutil"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)

	t.Run("keeps no secret", func(t *testing.T) {
		t.Parallel()
		tok := s.token(t, func(n *New) {
			n.Scopes = []string{"webhooks:manage,cases:read", "cases:read"}
			n.AllowIP = []string{"10.1.2.3/8 ::ffff:192.0.2.1", "10.0.0.0/8"}
			n.ExpiresIn = 90 * 24 * time.Hour
		})
		if !strings.HasPrefix(tok.Secret, "svc_test_") || len(tok.Secret) != 52 || tok.Preview != "svc_test_..."+tok.Secret[48:] {
			t.Errorf("token %q, preview %q", tok.Secret, tok.Preview)
		}
		if !slices.Equal(tok.Scopes, []string{"cases:read", "webhooks:manage"}) ||
			!slices.Equal(tok.IPAllowlist, []string{"10.0.0.0/8", "192.0.2.1"}) {
			t.Errorf("scopes %v, allowlist %v", tok.Scopes, tok.IPAllowlist)
		}
		if tok.ExpiresAt == nil || tok.ExpiresAt.Sub(tok.CreatedAt) != 90*24*time.Hour || tok.RevokedAt != nil || tok.LastUsedAt != nil {
			t.Errorf("made %v, expires %v", tok.CreatedAt, tok.ExpiresAt)
		}
		stored := dbtest.Value[string](t, s.DB, `SELECT t::text FROM api_tokens t WHERE id = $1`, tok.ID)
		if strings.Contains(stored, tok.Secret[9:20]) {
			t.Errorf("stored: %s", stored)
		}
	})

	t.Run("goes to the limits", func(t *testing.T) {
		t.Parallel()
		tok := s.token(t, func(n *New) { n.Name, n.ExpiresIn = "x", longest })
		if tok.Name != "x" || tok.ExpiresAt == nil || tok.ExpiresAt.Sub(tok.CreatedAt) != longest {
			t.Errorf("made %+v", tok)
		}
	})

	for name, tt := range map[string]struct {
		change func(*New)
		code   string
	}{
		"an env that is none": {func(n *New) { n.Env = "prod" }, "invalid_request"},
		"no name":             {func(n *New) { n.Name = "" }, "invalid_request"},
		"a blank name":        {func(n *New) { n.Name = " \t" }, "invalid_request"},
		"a long name":         {func(n *New) { n.Name = strings.Repeat("ä", 101) }, "invalid_request"},
		"a name with NUL":     {func(n *New) { n.Name = "a\x00b" }, "invalid_request"},
		"a name with a character that cannot be seen": {func(n *New) { n.Name = "pay\u200bday" }, "invalid_request"},
		"a name that is no UTF-8":                     {func(n *New) { n.Name = "a\xff" }, "invalid_request"},
		"no scope":                                    {func(n *New) { n.Scopes = nil }, "invalid_request"},
		"an unknown scope":                            {func(n *New) { n.Scopes = []string{"cases:read", "all"} }, "invalid_request"},
		"a range that is none":                        {func(n *New) { n.AllowIP = []string{"10.0.0.0/33"} }, "invalid_request"},
		"an expiry in the past":                       {func(n *New) { n.ExpiresIn = -time.Second }, "invalid_request"},
		"an expiry too far away":                      {func(n *New) { n.ExpiresIn = longest + 1 }, "invalid_request"},
		"an unknown guild":                            {func(n *New) { n.GuildID = "404" }, "not_found"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			n := New{GuildID: guild, Env: "test", Name: strings.Repeat("ä", 100), Scopes: Scopes}
			tt.change(&n)
			if tok, err := Create(t.Context(), s.DB, n); !fault.Is(err, tt.code) {
				t.Errorf("made %v, %v", tok, err)
			}
		})
	}
}

// A role that may only write the token table can change a token: announcing the change needs no
// further rights. RELIABILITY.md, Tokens.
func TestForeignWriterIsNoticed(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	n := s.tokens(t)
	run(t, n)
	tok := s.token(t)
	cachedBy(t, n, tok.Secret)
	dbtest.Exec(t, s.DB, `GRANT SELECT, UPDATE ON api_tokens TO pg_monitor`)
	dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `SET LOCAL ROLE pg_monitor`); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `SET LOCAL search_path TO pg_catalog`); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE public.api_tokens SET revoked_at = now() WHERE id = $1`, tok.ID)
		return err
	})
	testutil.Eventually(t, "the revocation is heard", func() bool { return authCode(n, tok.Secret) == "invalid_token" })
}

// An allowlist has at most a hundred addresses and ranges.
func TestAnAllowlistNamesAHundred(t *testing.T) {
	t.Parallel()
	list := make([]string, 101)
	for i := range list {
		list[i] = fmt.Sprintf("192.0.2.%d", i)
	}
	if ranges, err := ParseAllowlist(list[:100]...); len(ranges) != 100 || err != nil {
		t.Errorf("of a hundred there are %d, %v", len(ranges), err)
	}
	if _, err := ParseAllowlist(list...); !fault.Is(err, "invalid_request") {
		t.Errorf("one more: %v", err)
	}
}

// A revocation takes at most two seconds, and by then no node trusts an older cache.
func TestNoNodeTrustsLongerThanARevocationTakes(t *testing.T) {
	t.Parallel()
	if trust >= revocationTimeout || revocationTimeout > 2*time.Second {
		t.Errorf("a node trusts what it knows for %s, a revocation takes %s", trust, revocationTimeout)
	}
}

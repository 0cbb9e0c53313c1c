package webhooks_test

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/webhooks"
)

// Events are recorded 14 and 2 days before a token expires, once over all nodes. A lead time longer
// than the token's life is skipped, as are revoked tokens and tokens without expiry.
func TestTokensThatExpireAreToldOfOnce(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Listen(t, api.DB(), api.Guild, event.Types)
	for name, life := range map[string][3]string{
		"two weeks":  {"-60 days", "13 days", ""},
		"tomorrow":   {"-60 days", "1 day", ""},
		"short":      {"-1 day", "5 days", ""},
		"short, two": {"-1 day", "36 hours", ""},
		"far":        {"-60 days", "20 days", ""},
		"over":       {"-60 days", "-1 day", ""},
		"revoked":    {"-60 days", "1 day", "now()"},
	} {
		dbtest.Exec(t, api.DB(), `
			INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes, created_at, expires_at, revoked_at)
			VALUES (replace($1, ' ', '-'), $2, $1, 'svc_test_...aaaa', sha256($1::text::bytea), '{cases:read}',
				now() + $3::interval, now() + $4::interval, nullif($5, '')::timestamptz)`,
			name, api.Guild, life[0], life[1], life[2])
	}
	told := func() string {
		return dbtest.Value[string](t, api.DB(), `
			SELECT coalesce(string_agg(convert_from(payload, 'UTF8')::json #>> '{data,token,name}', ', '
				ORDER BY convert_from(payload, 'UTF8')::json #>> '{data,token,name}'), '')
			FROM webhook_events WHERE type = 'token.expiring'`)
	}
	tell := func() {
		t.Helper()
		var nodes errgroup.Group
		for range 3 {
			nodes.Go(func() error { return webhooks.EmitExpiringTokens(t.Context(), api.DB()) })
		}
		if err := nodes.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	tell()
	if got := told(); got != "short, two, tomorrow, two weeks" {
		t.Errorf("told of %s", got)
	}
	dbtest.Exec(t, api.DB(), `UPDATE api_tokens SET expires_at = now() + interval '1 day' WHERE name = 'two weeks'`)
	tell()
	tell()
	if got := told(); got != "short, two, tomorrow, two weeks, two weeks" {
		t.Errorf("later told of %s", fmt.Sprint(got))
	}
}

package restore_test

import (
	"context"
	"testing"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/operate/restore"
)

// The old database contains what happened after the backup, with deletions in its audit log; the
// comparison with the restored one shows what was undone.
func TestWhatARestoreUndoes(t *testing.T) {
	t.Parallel()
	old, restored := dbtest.New(t).DB, dbtest.New(t).DB
	for _, d := range []*db.DB{old, restored} { // fill both with the state at the backup, a day ago
		dbtest.AddGuilds(t, d, "1")
		dbtest.Fill(t, d,
			`INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes, created_at)
			 SELECT id, '1', '', '', sha256(id::bytea), '{}', now() - interval '2 days' FROM unnest('{kept,revoked,gone}'::text[]) AS id`,
			`INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview, created_at, updated_at)
			 SELECT '1', id, 'https://x.test/', '{}', '', '', now() - interval '2 days', now() - interval '2 days'
			 FROM unnest('{same,moved,deleted,touched}'::text[]) AS id`,
			`INSERT INTO bot_keys (id, name, preview, hash, created_at)
			 SELECT id, '', '', sha256(id::bytea), now() - interval '2 days' FROM unnest('{bk_kept,bk_revoked}'::text[]) AS id`)
	}
	since := time.Now().Add(-24 * time.Hour)
	dbtest.Fill(t, old,
		`UPDATE api_tokens SET revoked_at = now() WHERE id = 'revoked'`,
		`
			INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes)
			VALUES ('new', '1', '', '', sha256('new'), '{}'), ('brief', '1', '', '', sha256('brief'), '{}')`,
		`UPDATE api_tokens SET revoked_at = now() WHERE id = 'brief'`,
		`UPDATE bot_keys SET revoked_at = now() WHERE id = 'bk_revoked'`,
		`UPDATE webhook_endpoints SET url = 'https://y.test/', updated_at = now() WHERE id = 'moved'`,
		`UPDATE webhook_endpoints SET updated_at = now() WHERE id = 'touched'`,
		`DELETE FROM webhook_endpoints WHERE id = 'deleted'`,
		`
			INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
			VALUES ('1', 'fresh', 'https://x.test/', '{}', '', '')`)
	dbtest.Do(t, old, func(ctx context.Context, tx *db.Tx) error {
		return audit.Record(ctx, tx, audit.Change{Guild: "1", Action: audit.WebhookDeleted, Target: "deleted"},
			audit.Change{Guild: "1", Action: audit.TokenRevoked, Target: "revoked"},
			audit.Change{Guild: "1", Action: audit.KeyRevoked, Target: "bk_revoked"},
			audit.Change{Guild: "2", Action: audit.KeyRevoked, Target: "bk_revoked"})
	})

	things, more, err := restore.Since(t.Context(), old.Reader(), since)
	if err != nil || more {
		t.Fatal(more, err)
	}
	if err := restore.Compare(t.Context(), old.Reader(), restored.Reader(), things); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"bot_key bk_revoked": restore.Revived,
		"token revoked":      restore.Revived, "token new": restore.Lost, "token brief": restore.Same,
		"endpoint moved": restore.Reverted, "endpoint touched": restore.Same, "endpoint deleted": restore.Revived, "endpoint fresh": restore.Lost,
	}
	for _, th := range things {
		name := th.Kind + " " + th.ID
		if th.State != want[name] || th.Kind != restore.BotKey && *th.GuildID != "1" ||
			th.Kind == restore.BotKey && th.GuildID != nil || len(th.Changes) == 0 {
			t.Errorf("%+v, want %q", th, want[name])
		}
		if name == "token brief" && len(th.Changes) != 2 || name == "token revoked" && len(th.Changes) != 1 {
			t.Errorf("changes of %s: %+v", name, th.Changes)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
	if things, _, err := restore.Since(t.Context(), restored.Reader(), since); err != nil || len(things) != 0 {
		t.Errorf("the restored database knows of %+v, %v", things, err)
	}
}

// A backup that was taken during a revocation does not contain it, though the revocation's instant
// is earlier than the backup.
func TestWhatWasUnderWayAtTheBackupIsFound(t *testing.T) {
	t.Parallel()
	old, restored := dbtest.New(t).DB, dbtest.New(t).DB
	for _, d := range []*db.DB{old, restored} {
		dbtest.AddGuilds(t, d, "1")
		dbtest.Fill(t, d, `INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes, created_at)
			SELECT id, '1', '', '', sha256(id::bytea), '{}', now() - interval '2 days' FROM unnest('{kept,short,long}'::text[]) AS id`)
	}
	since := time.Now()
	dbtest.Fill(t, old,
		`UPDATE api_tokens SET revoked_at = now() - interval '10 seconds' WHERE id = 'short'`,
		`UPDATE api_tokens SET revoked_at = now() - interval '1 hour' WHERE id = 'long'`)
	dbtest.Fill(t, restored, `
		INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes)
		VALUES ('risen', '1', '', '', sha256('risen'), '{}')`)

	told, _, err := restore.Since(t.Context(), old.Reader(), since)
	if err != nil || len(told) != 1 || told[0].ID != "short" {
		t.Errorf("the old database tells of %+v, %v", told, err)
	}
	differing, more, err := restore.Differing(t.Context(), old.Reader(), restored.Reader())
	if err != nil || more {
		t.Fatal(more, err)
	}
	if err := restore.Compare(t.Context(), old.Reader(), restored.Reader(), differing); err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, th := range differing {
		got += *th.GuildID + " " + th.ID + " " + th.State + ", "
	}
	if want := "1 long revived, 1 risen revived, 1 short revived, "; got != want {
		t.Errorf("differing are %s, want %s", got, want)
	}
}

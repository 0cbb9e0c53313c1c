package guilds_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/guilds"
)

// run runs a node's listener for changed tokens and guilds until the test ends, as a real node
// does.
func run(t *testing.T, view *apitest.API) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = view.Server.Tokens.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
}

func restore(t *testing.T, d *db.DB, guild string) (taken bool, err error) {
	t.Helper()
	err = d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		taken, err = guilds.Restore(ctx, tx, guild)
		return err
	})
	return taken, err
}

// Two nodes share the database. Both have cached the guild, its token and the bot key when the
// guild is removed through one of them. RELIABILITY.md, Guilds and Writes.
func TestARemovedGuildIsThereForNobodyOnAnyNode(t *testing.T) {
	t.Parallel()
	url := dbtest.Empty(t, "")
	one, two := apitest.New(t, apitest.On(url)), apitest.New(t, apitest.On(url))
	run(t, one)
	run(t, two)
	key := one.Bot(t)
	at := func(node *apitest.API) *apitest.API { // a client with the bot key at a node
		view := *node
		view.Token = key.Token
		return view.In(node.Guild)
	}
	for range 3 {
		for _, node := range []*apitest.API{one, two} {
			node.Do(t, "getGuild", "").Want(t, 200, "")
			at(node).Do(t, "getGuild", "").Want(t, 200, "")
		}
	}
	answer := at(one).Key("k").Do(t, "removeGuild", `{"after_days":3}`).Want(t, 202, `{"data":{"guild_id":"`+one.Guild+`"}}`)
	for _, node := range []*apitest.API{one, two} {
		node.Do(t, "getGuild", "").WantError(t, 401, "invalid_token")
		a := at(node).Do(t, "getGuild", "").WantError(t, 404, "not_found")
		if message := a.Str(t, "error.message"); !strings.Contains(message, "is being removed") {
			t.Errorf("the message is %q", message)
		}
		at(node).Key("k").Do(t, "removeGuild", `{"after_days":3}`).WantError(t, 404, "not_found")
	}
	d := one.DB()
	if n := dbtest.Value[int](t, d, `SELECT count(*)
		FROM webhook_endpoints WHERE guild_id = $1 AND (enabled OR disabled_reason <> 'guild_removed')`, one.Guild); n != 0 {
		t.Errorf("%d endpoints go on", n)
	}
	if days := dbtest.Value[int](t, d, `SELECT extract(day
		FROM removed_after - removed_at)::int FROM guilds WHERE id = $1`, one.Guild); days != 3 {
		t.Errorf("it can be taken back for %d days: %s", days, answer.Body)
	}

	if taken, err := restore(t, d, one.Guild); err != nil || !taken {
		t.Fatal(taken, err)
	}
	for _, node := range []*apitest.API{one, two} {
		at(node).Do(t, "getGuild", "").Want(t, 200, `{"data":{"name":"The Test Guild"}}`)
		node.Do(t, "getGuild", "").WantError(t, 401, "invalid_token")
	}
	if n := dbtest.Value[int](t, d, `SELECT count(*) FROM webhook_endpoints WHERE guild_id = $1 AND enabled`, one.Guild); n != 0 {
		t.Errorf("%d endpoints are enabled again", n)
	}
	if taken, err := restore(t, d, one.Guild); err != nil || taken {
		t.Errorf("a guild that is there was taken back: %v, %v", taken, err)
	}
}

func TestAGuildWhoseDayHasComeIsNotTakenBack(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	key := api.Bot(t).In(api.Guild)
	key.Do(t, "removeGuild", `{"after_days":0}`).Want(t, 202, "")
	a := key.Do(t, "getGuild", "").WantError(t, 404, "not_found")
	if message := a.Str(t, "error.message"); !strings.Contains(message, "is being deleted") {
		t.Errorf("the message is %q", message)
	}
	if _, err := restore(t, api.DB(), api.Guild); !fault.Is(err, "guild_being_removed") {
		t.Errorf("it is taken back: %v", err)
	}
	if _, err := restore(t, api.DB(), "999"); !fault.Is(err, "not_found") {
		t.Errorf("a guild that is not there is taken back: %v", err)
	}
}

func TestRemovingTakesNoBodyAndNothingWrong(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	key := api.Bot(t).In(api.Guild)
	for _, body := range []string{`{"after_days":31}`, `{"after_days":-1}`, `{"days":1}`, `{"after_days":"7"}`} {
		key.Do(t, "removeGuild", body).WantError(t, 400, "invalid_request")
	}
	api.Do(t, "removeGuild", "").WantError(t, 403, "insufficient_scope")
	key.Do(t, "removeGuild", "").Want(t, 202, "")
	if days := dbtest.Value[int](t, api.DB(), `SELECT extract(day
		FROM removed_after - removed_at)::int FROM guilds WHERE id = $1`, api.Guild); days != 7 {
		t.Errorf("without a body it can be taken back for %d days", days)
	}
	line := dbtest.Value[string](t, api.DB(), `SELECT actor_type || ' ' || action
		FROM audit_log WHERE guild_id = $1 ORDER BY id DESC LIMIT 1`, api.Guild)
	if line != "bot_key guild.removed" {
		t.Errorf("the audit log says %q", line)
	}
}

// Guilds are locked by one statement, or on Citus guild by guild; those that do not exist are
// skipped.
func TestGuildsAreHeldTogetherOrOneByOne(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	byGuild, err := db.Open(db.Config{URL: base.URL, Writers: 2, Readers: 1, Distributed: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = byGuild.Close() })
	dbtest.AddGuilds(t, base.DB, "1", "2", "3")
	dbtest.Exec(t, base.DB, `UPDATE guilds SET removed_at = now(), removed_after = now() WHERE id = '2'`)
	want := map[string]bool{"1": false, "2": true}
	for name, d := range map[string]*db.DB{"as it is": base.DB, "by guild": byGuild} {
		dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
			seen, err := guilds.Leaving(ctx, tx, "1", "2", "9")
			if err != nil || !maps.Equal(seen, want) || !takes(t, base.DB, "1") {
				t.Errorf("%s: %v are seen, want %v, and none held: %v", name, seen, want, err)
			}
			held, err := guilds.Held(ctx, tx, "1", "2", "9")
			if err != nil || !maps.Equal(held, want) {
				t.Errorf("%s: %v are held, want %v: %v", name, held, want, err)
			}
			if takes(t, base.DB, "1") || takes(t, base.DB, "2") || !takes(t, base.DB, "3") {
				t.Errorf("%s: others than those two are held", name)
			}
			return nil
		})
	}
}

// takes reports whether a transaction could delete the guild now.
func takes(t *testing.T, d *db.DB, guild string) (free bool) {
	t.Helper()
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		rows, err := db.Select[string](ctx, tx, `SELECT id FROM guilds WHERE id = $1 FOR UPDATE SKIP LOCKED`, guild)
		free = len(rows) == 1
		return err
	})
	return free
}

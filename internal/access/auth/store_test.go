package auth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
)

// uses sets the last use of the token at index i to i hours ago.
func (s *tokenDB) uses(t *testing.T, table, column string, ids ...string) {
	t.Helper()
	for i, id := range ids {
		dbtest.Exec(t, s.DB, fmt.Sprintf(
			`INSERT INTO %s (%s, last_used_at) VALUES ($1, now() - make_interval(hours => $2))`, table, column), id, i+1)
	}
}

// ages returns the ids with the hours since each was last used.
func ages[R any](t *testing.T, rows []R, err error, of func(R) (string, *time.Time)) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, r := range rows {
		id, used := of(r)
		if used != nil {
			id += fmt.Sprint(" ", int(time.Since(*used).Round(time.Hour).Hours()))
		}
		list = append(list, id)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// Each token is read with its own last use, and found by its own digest only.
func TestTokensAreReadWithTheirOwnUses(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	one, two := s.token(t), s.token(t)
	s.uses(t, "api_token_uses", "token_id", one.ID, two.ID)
	of := func(r row) (string, *time.Time) { return r.ID, r.LastUsedAt }
	both := ages(t, []row{{ID: one.ID + " 1"}, {ID: two.ID + " 2"}}, nil, of)
	rows, err := byGuild(t.Context(), s.DB.Reader(), guild)
	if got := ages(t, rows, err, of); got != both {
		t.Errorf("the guild has %s, want %s", got, both)
	}
	rows, err = pageOf(t.Context(), s.DB.Reader(), guild, false, 0, 9)
	if got := ages(t, rows, err, of); got != both {
		t.Errorf("a page has %s, want %s", got, both)
	}
	rows, err = byHashes(t.Context(), s.DB.Reader(), []digest{sha256.Sum256([]byte(two.Secret))})
	if got := ages(t, rows, err, of); got != two.ID+" 2" {
		t.Errorf("the second's digest finds %s", got)
	}
	for id, hours := range map[string]string{one.ID: " 1", two.ID: " 2"} {
		r, err := tokenByID(t.Context(), s.DB.Reader(), guild, id)
		if got := ages(t, []row{r}, err, of); got != id+hours {
			t.Errorf("an id finds %s", got)
		}
	}
	dbtest.Exec(t, s.DB, `INSERT INTO guilds (id, name, owner_id) VALUES ('2', 'Guild', '1')`)
	dbtest.Exec(t, s.DB, `UPDATE api_tokens SET guild_id = '2' WHERE id = $1`, two.ID)
	for id, want := range map[string]string{one.ID: guild, two.ID: "2"} {
		if got, err := GuildOf(t.Context(), s.DB, id); got != want || err != nil {
			t.Errorf("a token of guild %s is found in %q, %v", want, got, err)
		}
	}
}

// The same holds for bot keys. KeysOf returns the keys that list the guild and the keys of every
// guild. Revoking a key leaves the others active.
func TestKeysAreReadWithTheirOwnUses(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	key := func(guilds ...string) BotKey {
		k, err := CreateKey(t.Context(), s.DB, NewKey{Env: "test", Name: "k", Guilds: guilds})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	every, ours, theirs := key(), key(guild, "2"), key("2")
	if every.GuildIDs != nil {
		t.Errorf("a key of every guild names %q", every.GuildIDs)
	}
	s.uses(t, "bot_key_uses", "key_id", every.ID, ours.ID, theirs.ID)
	of := func(r keyRow) (string, *time.Time) { return r.ID, r.LastUsedAt }
	want := func(what, got string, ids ...string) {
		t.Helper()
		slices.Sort(ids)
		if list := strings.Join(ids, ", "); got != list {
			t.Errorf("%s: %s, want %s", what, got, list)
		}
	}
	rows, err := allKeys(t.Context(), s.DB.Reader())
	want("all", ages(t, rows, err, of), every.ID+" 1", ours.ID+" 2", theirs.ID+" 3")
	rows, err = keysOf(t.Context(), s.DB.Reader(), guild)
	want("the guild's", ages(t, rows, err, of), every.ID+" 1", ours.ID+" 2")
	found, err := byHashes(t.Context(), s.DB.Reader(), []digest{sha256.Sum256([]byte(ours.Secret))})
	want("by digest", ages(t, found, err, func(r row) (string, *time.Time) { return r.ID, r.LastUsedAt }), ours.ID+" 2")

	if err := RevokeKey(t.Context(), s.DB, theirs.ID); err != nil {
		t.Fatal(err)
	}
	if got := dbtest.Value[string](t, s.DB, `SELECT string_agg(id, ' ') FROM bot_keys WHERE revoked_at IS NOT NULL`); got != theirs.ID {
		t.Errorf("revoked are %s", got)
	}
	if got := dbtest.Value[string](t, s.DB, `
		SELECT string_agg(DISTINCT target_id, ' ') FROM audit_log WHERE action = 'bot_key.revoked'`); got != theirs.ID {
		t.Errorf("the audit log says that %s was revoked", got)
	}
}

// The audit log of each guild that a key lists has one row for its creation and one for its
// revocation. The rows of a key of every guild have no guild.
func TestGuildsAreToldOfKeysOnce(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	for name, guilds := range map[string][]string{"every": nil, "two": {guild, "2"}} {
		k, err := CreateKey(t.Context(), s.DB, NewKey{Env: "test", Name: name, Guilds: guilds})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := RevokeKey(t.Context(), s.DB, k.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := RevokeKey(t.Context(), s.DB, "bk_none"); !fault.Is(err, "not_found") {
		t.Errorf("a key that is not there: %v", err)
	}
	of := func(name string) string {
		return dbtest.Value[string](t, s.DB, `
			SELECT string_agg(format('%s in "%s"', action, guild_id), ', ' ORDER BY action, guild_id)
			FROM audit_log WHERE target_name = $1`, name)
	}
	if got := of("every"); got != `bot_key.created in "", bot_key.revoked in ""` {
		t.Errorf("of a key of every guild: %s", got)
	}
	want := fmt.Sprintf(`bot_key.created in "%[1]s", bot_key.created in "2", bot_key.revoked in "%[1]s", bot_key.revoked in "2"`, guild)
	if got := of("two"); got != want {
		t.Errorf("of a key of two guilds: %s, want %s", got, want)
	}
}

// A use is stored at most once a minute, for tokens and for keys.
func TestAUseIsNotedOnceAMinute(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	var tokens []string
	for range 3 {
		tokens = append(tokens, s.token(t).ID)
	}
	k, err := CreateKey(t.Context(), s.DB, NewKey{Env: "test", Name: "k"})
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, s.DB, `
		INSERT INTO api_token_uses (token_id, last_used_at) VALUES ($1, now() - interval '59 minutes'), ($2, now() - interval '40 seconds')`,
		tokens[0], tokens[1])
	dbtest.Exec(t, s.DB, `INSERT INTO bot_key_uses (key_id, last_used_at) VALUES ($1, now() - interval '40 seconds')`, k.ID)
	unused, err := CreateKey(t.Context(), s.DB, NewKey{Env: "test", Name: "unused"})
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error {
		return storeLastUsed(ctx, tx, []string{tokens[0], tokens[1], k.ID, "gone"})
	})
	for id, want := range map[string]string{tokens[0]: "now", tokens[1]: "before", tokens[2]: "never", k.ID: "before", unused.ID: "never"} {
		if got := dbtest.Value[string](t, s.DB, `
			SELECT coalesce(max(CASE WHEN last_used_at > now() - interval '30 seconds' THEN 'now' ELSE 'before' END), 'never')
			FROM (SELECT token_id AS id, last_used_at FROM api_token_uses UNION ALL SELECT * FROM bot_key_uses) AS u
			WHERE id = $1`, id); got != want {
			t.Errorf("%s was used %s, want %s", id, got, want)
		}
	}
}

// A guild can get another token while fewer than maxActive of its tokens are active.
func TestTokensThatWorkAreCounted(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	dbtest.AddGuilds(t, s.DB, "2")
	dbtest.Exec(t, s.DB, `
		INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes, expires_at)
		SELECT g || '/' || n, g, 't', 'p', sha256((g || '/' || n)::bytea), '{}', CASE WHEN n % 2 = 0 THEN now() + interval '1 hour' END
		FROM unnest(ARRAY[$1, '2']) g, generate_series(1, $2::int) n`, guild, maxActive)
	room := func(guild string) error {
		return s.DB.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error { return hasRoom(ctx, tx, guild) })
	}
	pages := func(working, ended int) {
		t.Helper()
		for of, want := range map[bool]int{false: working, true: ended} {
			rows, err := pageOf(t.Context(), s.DB.Reader(), guild, of, 0, 2*maxActive)
			if err != nil || len(rows) != want {
				t.Errorf("%d tokens are listed as ended: %t, want %d (%v)", len(rows), of, want, err)
			}
		}
	}
	if err := room(guild); !fault.Is(err, "token_limit_reached") {
		t.Errorf("beside %d that work: %v", maxActive, err)
	}
	pages(maxActive, 0)
	for ended, change := range []string{`expires_at = now() - interval '1 second'`, `revoked_at = now(), expires_at = NULL`} {
		dbtest.Exec(t, s.DB, `UPDATE api_tokens SET `+change+` WHERE id = $1`, fmt.Sprint(guild, "/", ended+1))
		pages(maxActive-ended-1, ended+1)
		if err := room(guild); err != nil {
			t.Errorf("beside one with %s: %v", change, err)
		}
	}
	if err := room("2"); !fault.Is(err, "token_limit_reached") {
		t.Errorf("in another guild: %v", err)
	}
}

// The states of a guild: present, leaving once its removal is scheduled, gone once it is removed.
func TestAGuildIsThereUntilItIsRemoved(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	dbtest.AddGuilds(t, s.DB, "2", "3")
	dbtest.Exec(t, s.DB, `UPDATE guilds SET removed_at = now(), removed_after = now() + interval '1 hour' WHERE id = '2'`)
	dbtest.Exec(t, s.DB, `UPDATE guilds SET removed_at = now(), removed_after = now() - interval '1 hour' WHERE id = '3'`)
	for id, want := range map[string]Presence{guild: Present, "2": Leaving, "3": Going, "4": Absent} {
		if got, err := PresenceOf(t.Context(), s.DB.Reader(), id); err != nil || got != want {
			t.Errorf("guild %s is %d, %v, want %d", id, got, err, want)
		}
		err := s.DB.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error { return hasRoom(ctx, tx, id) })
		if want == Present && err != nil || want != Present && !fault.Is(err, "not_found") {
			t.Errorf("a token for guild %s: %v", id, err)
		}
	}
}

// A bot key can list a thousand guilds; duplicates count once.
func TestABotKeyNamesAThousandGuilds(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	guilds := []string{"1"}
	for i := range 1000 {
		guilds = append(guilds, strconv.Itoa(i+1))
	}
	k, err := CreateKey(t.Context(), s.DB, NewKey{Env: "test", Name: "all", Guilds: guilds})
	if err != nil || len(k.GuildIDs) != 1000 {
		t.Errorf("a thousand: %d, %v", len(k.GuildIDs), err)
	}
	_, err = CreateKey(t.Context(), s.DB, NewKey{Env: "test", Name: "one more", Guilds: append(guilds, "1001")})
	if !fault.Is(err, "invalid_request") {
		t.Errorf("one more: %v", err)
	}
}

// Nodes that were silent for long do not count, and their rows are deleted when another node
// starts.
func TestNodesThatAreGone(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	dbtest.Exec(t, s.DB, `INSERT INTO auth_nodes (id, epoch, seen_at, schema_version) VALUES
		('old', 0, now(), $1), ('older', 0, now(), NULL), ('newer', 0, now(), $2), ('gone', 0, now() - interval '2 minutes', NULL)`,
		104, 105)
	if n, err := behind(t.Context(), s.DB.Reader(), 1); err != nil || n != 3 {
		t.Errorf("%d nodes are behind, %v, want 3", n, err)
	}
	if n, err := behind(t.Context(), s.DB.Reader(), 0); err != nil || n != 0 {
		t.Errorf("%d nodes are behind where they are, %v", n, err)
	}
	run(t, s.tokens(t))
	if got := dbtest.Value[string](t, s.DB, `
		SELECT string_agg(id, ' ' ORDER BY id) FROM auth_nodes WHERE id IN ('old', 'older', 'newer', 'gone')`); got != "newer old older" {
		t.Errorf("beside a new node there are %s", got)
	}
}

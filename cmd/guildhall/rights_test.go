package main

import (
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
)

// asRole returns the URL with which a new role without any rights opens the database at raw, and the
// role's name.
func asRole(t *testing.T, raw string, options string) (as, role string) {
	t.Helper()
	d := dbtest.Open(t, raw)
	role = "role_" + strings.ToLower(rand.Text())
	dbtest.Fill(t, d.DB, `CREATE ROLE `+role+` LOGIN PASSWORD 'p' `+options)
	t.Cleanup(func() { dbtest.Fill(t, d.DB, `DROP OWNED BY `+role, `DROP ROLE `+role) })
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "p")
	return u.String(), role
}

// Each command that changes the schema says which statement gives its role the right that it lacks.
func TestARoleThatMayNotMigrateIsToldTheRemedy(t *testing.T) {
	t.Parallel()
	key := someKey(t)
	commands := func(url string) [][]string {
		return [][]string{
			{"migrate", "--database-url", url},
			{"serve", "--migrate", "--database-url", url, "--secret-key", key, "--discord-url", "off", "--trusted-proxies", "127.0.0.1"},
			{"dev", "--dir", t.TempDir(), "--database-url", url},
		}
	}
	t.Run("on an empty database", func(t *testing.T) {
		t.Parallel()
		url, role := asRole(t, dbtest.Empty(t, "template0"), "")
		for _, command := range commands(url) {
			call(t, "", command...).refused(t, 1, "GRANT USAGE, CREATE ON SCHEMA public TO "+role)
		}
	})
	t.Run("without a schema that it may use", func(t *testing.T) {
		t.Parallel()
		url, role := asRole(t, dbtest.Empty(t, "template0"), "")
		call(t, "", "migrate", "--database-url", url+"&search_path=away").refused(t, 1, "CREATE SCHEMA away AUTHORIZATION "+role)
	})
	t.Run("on the tables of another role", func(t *testing.T) {
		t.Parallel()
		url, role := asRole(t, dbtest.New(t).URL, "")
		for _, command := range commands(url) {
			call(t, "", command...).refused(t, 1, "OWNER TO "+role)
		}
		call(t, "", "guild", "list", "--database-url", url).
			refused(t, 1, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "+role)
	})
}

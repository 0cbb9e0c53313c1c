package db_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// The catalog proves the rules for tables: there are no triggers or functions on tables of guilds,
// and each unique key includes the guild.
func TestTablesOfGuildsAreOnlyTables(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	shared := make([]string, 0, len(db.SharedTables))
	for name := range db.SharedTables {
		shared = append(shared, name)
	}
	none := func(what, query string) {
		t.Helper()
		var found []string
		if err := d.Reader().SelectContext(context.Background(), &found, `
			WITH shared AS (
				SELECT c.oid
				FROM pg_class c
				WHERE c.relnamespace = current_schema()::regnamespace
				  AND (c.relname = ANY (string_to_array($1, ',')) OR c.relname LIKE 'goose\_%')
			), guilds AS (
				SELECT c.oid, c.relname
				FROM pg_class c
				WHERE c.relnamespace = current_schema()::regnamespace
				  AND c.relkind IN ('r', 'p')
				  AND c.oid NOT IN (SELECT oid FROM shared)
			), own AS (
				SELECT p.oid, p.proname
				FROM pg_proc p
				WHERE p.pronamespace = current_schema()::regnamespace
			)`+query, strings.Join(shared, ",")); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for _, name := range found {
			t.Errorf("%s: %s", what, name)
		}
	}
	none("a trigger on a guild's table", `
		SELECT t.tgname || ' ON ' || g.relname
		FROM pg_trigger t
		JOIN guilds g ON g.oid = t.tgrelid
		WHERE NOT t.tgisinternal`)
	none("a function that CONTRIBUTING.md does not allow", `
		SELECT own.proname
		FROM own
		WHERE own.proname NOT IN ('api_tokens_announce', 'api_tokens_announce_updates')`)
	none("a table of guilds without the guild", `
		SELECT g.relname
		FROM guilds g
		WHERE NOT EXISTS (
			SELECT FROM pg_attribute a
			WHERE a.attrelid = g.oid AND NOT a.attisdropped AND a.attnotnull
				AND a.attname = CASE g.relname WHEN 'guilds' THEN 'id' ELSE 'guild_id' END)`)
	none("a unique index without the guild", `
		SELECT i.indexrelid::regclass::text || ' ON ' || g.relname
		FROM pg_index i
		JOIN guilds g ON g.oid = i.indrelid
		WHERE i.indisunique
		  AND NOT EXISTS (
			SELECT FROM pg_attribute a
			WHERE a.attrelid = g.oid AND a.attnum = ANY (i.indkey) AND a.attname = CASE g.relname WHEN 'guilds' THEN 'id' ELSE 'guild_id' END)`)
	none("a column default that calls an own function", `
		SELECT g.relname || ' ' || a.attname || ' ' || own.proname
		FROM pg_attrdef f
		JOIN guilds g ON g.oid = f.adrelid
		JOIN pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum
		JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid AND d.refclassid = 'pg_proc'::regclass
		JOIN own ON own.oid = d.refobjid`)
	none("an index or a constraint that calls an own function", `
		SELECT own.proname || ' in ' || coalesce(c.relname, k.conname)
		FROM pg_depend d
		JOIN own ON own.oid = d.refobjid AND d.refclassid = 'pg_proc'::regclass
		LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind = 'i'
		LEFT JOIN pg_constraint k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid
		WHERE coalesce(c.relname, k.conname) IS NOT NULL`)
}

// ARCHITECTURE.md and SharedTables list the same tables with the same reasons.
func TestSharedTablesAreNamed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, ok := strings.Cut(string(text), "\n## One guild a statement\n")
	if !ok {
		t.Fatal("the chapter is missing")
	}
	part, _, _ = strings.Cut(part, "\n## ")
	named := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (.+) \\|$").FindAllStringSubmatch(part, -1) {
		named[m[1]] = m[2]
	}
	for table, reason := range db.SharedTables {
		if named[table] != reason {
			t.Errorf("%s: ARCHITECTURE.md says %q, the tests say %q", table, named[table], reason)
		}
		delete(named, table)
	}
	for table := range named {
		t.Errorf("%s stands in ARCHITECTURE.md alone", table)
	}
}

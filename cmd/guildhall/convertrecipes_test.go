package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// recipe returns a query of the documents, by its place among them.
func recipe(t *testing.T, n int) string {
	t.Helper()
	blocks := codeOf(t, "docs/bot/convert.md", "Recipes")
	if len(blocks) != 5 || blocks[n].language != "sql" {
		t.Fatalf("there are %d recipes", len(blocks))
	}
	return blocks[n].text
}

// The queries of the documents for SQLite, run over tables such as those bots make, give
// what the command reads.
func TestTheRecipesForSQLiteMakeWhatConvertReads(t *testing.T) {
	t.Parallel()
	program := testutil.Program(t, "sqlite3")
	query := func(args []string, lines ...string) string {
		cmd := exec.CommandContext(t.Context(), program, append(args, ":memory:")...)
		cmd.Stdin = strings.NewReader(strings.Join(lines, ";\n"))
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, said.String())
		}
		return string(out)
	}
	// quick.db keeps every value as JSON: a number, or a number in quotes.
	coins := query([]string{"-header", "-csv"}, `CREATE TABLE json (ID TEXT, json TEXT)`,
		`INSERT INTO json VALUES ('money_402187554310020096_190320984123768832', '420'), ('money_402187554310020096_205566812371058688', '"7"'),
			('money_402187554310020097_190320984123768832', '1'), ('bankX402187554310020096_190320984123768832', '2')`, recipe(t, 3))
	file := call(t, coins, "convert", "--from", "csv", "--record", "wallet", "--guild", "402187554310020096", "-").ok(t)
	if strings.Count(file, "\n") != 3 || !strings.Contains(file, `"190320984123768832","balance":420}`) ||
		!strings.Contains(file, `"205566812371058688","balance":7}`) {
		t.Errorf("quick.db's query gives %q, which becomes %s", coins, file)
	}
	// What the query makes is the fixture, but for the end, which is that of the last message.
	threads := query(nil, `CREATE TABLE threads (id TEXT, status INTEGER, user_id TEXT, channel_id TEXT, created_at TEXT)`,
		`CREATE TABLE thread_messages (id INTEGER, thread_id TEXT, message_type INTEGER, user_id TEXT, body TEXT, attachments TEXT,
			dm_message_id TEXT, inbox_message_id TEXT, created_at TEXT)`,
		`INSERT INTO threads VALUES ('5f0a-1', 2, '190320984123768832', '1201000000000000000', '2024-02-03 04:05:06')`,
		`INSERT INTO thread_messages VALUES
			(3, '5f0a-1', 4, '177281930144940032', 'Hi there', '[]', '1201000000000000002', NULL, '2024-02-03 04:07:00'),
			(1, '5f0a-1', 3, '190320984123768832', 'Hello', '["https://cdn.example/a.png"]', '7', '1201000000000000001', '2024-02-03 04:05:07'),
			(2, '5f0a-1', 2, '177281930144940032', 'Who knows?', NULL, NULL, NULL, '2024-02-03 04:06:00')`,
		strings.ReplaceAll(recipe(t, 4), "402187554310020096", "500000000000000031"))
	want, err := os.ReadFile(fixtures + "dragory.out.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	got := call(t, threads, conversion("--from", "modmail", "-")...).ok(t)
	if got != strings.Replace(string(want), "T05:00:00Z", "T04:07:00Z", 1) {
		t.Errorf("modmailbot's query gives %s, which becomes\n%s\nwant\n%s", threads, got, want)
	}
}

// The SQL queries in the documents match the tables of the bots they are for, and their headings
// match the command.
func TestTheRecipesOfTheDocumentsAreQueriesOfThoseBots(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	dbtest.Exec(t, d.DB, `CREATE TABLE moderation_warnings (id serial PRIMARY KEY,
		created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL, guild_id bigint NOT NULL,
		user_id text NOT NULL, author_id text NOT NULL, author_username_discrim text NOT NULL, message text NOT NULL, logs_link text)`)
	dbtest.Exec(t, d.DB, `CREATE TABLE reputation_users (user_id bigint NOT NULL, guild_id bigint NOT NULL, created_at timestamptz NOT `+
		`NULL, points bigint NOT NULL)`)
	dbtest.Exec(t, d.DB, `CREATE TABLE mutes (guild_id text, user_id text, created_at text, expires_at text, case_id int)`)
	dbtest.Exec(t, d.DB, `CREATE TABLE tempbans (guild_id text, user_id text, mod_id text, created_at text, expires_at text)`)
	for i, args := range [][]string{{"--record", "case"}, {"--record", "wallet"}, nil} {
		query := recipe(t, i)
		made := fmt.Sprintf("recipe_%d", i)
		dbtest.Exec(t, d.DB, `CREATE TABLE `+made+` AS `+query)
		table := dbtest.Value[string](t, d.DB, `SELECT string_agg(column_name, ',' ORDER BY ordinal_position) FROM `+
			`information_schema.columns WHERE table_name = $1`, made) + "\n"
		if args == nil {
			if table != "user_id,type,expires_at\n" {
				t.Errorf("--in-force gets %s", table)
			}
			continue
		}
		r := call(t, table, append([]string{"convert", "--from", "csv", "--guild", "7", "-"}, args...)...)
		r.refused(t, 1, "there is nothing in it to write") // each column was found
	}
}

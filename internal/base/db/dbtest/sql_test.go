package dbtest

import (
	"strings"
	"testing"
)

// Each rule rejects the statements that break it and accepts others. RELIABILITY.md, Operation.
func TestRulesForStatements(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ statement, want string }{
		{`SELECT count(*) FROM cases`, ""},
		{`SELECT id FROM cases WHERE guild_id = $1 FOR UPDATE`, ""},
		{`SELECT id FROM cases c WHERE c.guild_id = $1 AND id = $2 FOR NO KEY UPDATE OF c SKIP LOCKED`, ""},
		{`SELECT id FROM cases WHERE id = $1 FOR UPDATE`, "locks rows of cases"},
		{`SELECT id FROM cases WHERE guild_id = ANY ($1) FOR SHARE`, "locks rows of cases"},
		{`SELECT id FROM cases -- WHERE guild_id = $1
			FOR UPDATE`, "locks rows of cases"},
		{`SELECT id FROM cases WHERE note = ' guild_id = $1 ' FOR UPDATE`, "locks rows of cases"},
		{`SELECT id FROM guilds WHERE id = $1 FOR NO KEY UPDATE`, ""},
		{`SELECT id FROM guilds WHERE id = ANY ($1) FOR NO KEY UPDATE`, "locks rows of guilds"},
		{`SELECT id FROM api_tokens WHERE id = ANY ($1) FOR KEY SHARE`, ""},
		{`WITH held AS (SELECT id FROM cases FOR UPDATE SKIP LOCKED) UPDATE cases SET note = ''
			FROM held WHERE cases.guild_id = $1`, "locks rows of cases"},
		{`WITH held AS (SELECT id FROM cases WHERE guild_id = $1 FOR UPDATE) UPDATE cases c SET note = ''
			FROM held WHERE c.id = held.id`, "changes rows of cases"},
		{`WITH w AS (SELECT guild_id, id FROM cases WHERE guild_id = $1)
			UPDATE cases c SET note = '' FROM w WHERE c.guild_id = w.guild_id`, "changes rows of cases"},
		{`WITH w AS (SELECT guild_id, id FROM cases) UPDATE cases c SET note = '' FROM w WHERE c.guild_id = w.guild_id`, "changes rows of cases"},
		{`UPDATE cases SET note = $1 WHERE (guild_id = $2 AND id = $3)`, ""},
		{`update only cases as c set note = $1 where c.guild_id = $2`, ""},
		{`UPDATE cases SET guild_id = $1 WHERE id = $2`, "changes rows of cases"},
		{`UPDATE guilds SET name = $1 WHERE id = $2`, ""},
		{`UPDATE guilds SET name = $1`, "changes rows of guilds"},
		{`DELETE FROM cases WHERE (guild_id, id) IN (SELECT guild_id, id FROM cases LIMIT 10)`, "changes rows of cases"},
		{`DELETE FROM cases WHERE guild_id = $1 AND id = ANY ($2)`, ""},
		{`TRUNCATE cases`, "changes rows of cases"},
		{`SELECT 1; DELETE FROM cases`, "changes rows of cases"},
		{`INSERT INTO cases (guild_id, id) SELECT unnest($1::text[]), 'x'`, ""},
		{`INSERT INTO cases AS c (id) VALUES ($1)`, "adds rows to cases"},
		{`INSERT INTO cases VALUES ($1, $2)`, "adds rows to cases"},
		{`INSERT INTO guilds (id, name) VALUES ($1, $2)`, ""},
		{`COPY "cases" ("guild_id", "id") FROM STDIN`, ""},
		{`COPY "cases" ("id") FROM STDIN`, "adds rows to cases"},
		{`INSERT INTO auth_nodes (id, seen_at) VALUES ($1, now()) ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at`, ""},
		{`INSERT INTO auth_nodes (id, seen_at) VALUES ($1, now()) ON CONFLICT (id) DO UPDATE SET seen_at = now()`, "what now() returns"},
		{`INSERT INTO auth_nodes AS n (id) VALUES ($1)
			ON CONFLICT (id) DO UPDATE SET epoch = greatest(n.epoch, excluded.epoch) WHERE n.seen_at < now() RETURNING now()`, ""},
		{`INSERT INTO auth_nodes AS n (id) VALUES ($1)
			ON CONFLICT (id) DO UPDATE SET seen_at = coalesce(n.seen_at, clock_timestamp())`, "what clock_timestamp() returns"},
		{`WITH m AS (UPDATE cases SET note = '' WHERE guild_id = $1 RETURNING id)
			INSERT INTO audit_log (guild_id, id) SELECT $1, id FROM m`, "from a step before"},
		{`WITH m AS (SELECT $1 AS guild_id),
			a AS (INSERT INTO audit_log (guild_id, id) SELECT m.guild_id, 'x' FROM m) SELECT`, "from a step before"},
		{`WITH m AS (SELECT 1 AS n),
			a AS (INSERT INTO audit_log (guild_id, id)
			SELECT $1, id FROM cases c WHERE c.guild_id = $1 AND EXISTS (SELECT FROM m)) SELECT`, "from a step before"},
		{`WITH m AS (SELECT 1 AS n),
			a AS (INSERT INTO audit_log (guild_id, id) SELECT c.guild_id, c.id FROM m, cases c WHERE c.guild_id = $1) SELECT`, ""},
		{`WITH m AS MATERIALIZED (SELECT 1 AS n)
			INSERT INTO audit_log (guild_id, id) SELECT home.id, 'x' FROM m JOIN guilds home ON home.id = $1 ON CONFLICT DO NOTHING`, ""},
		{`WITH m AS (INSERT INTO audit_log (guild_id, id) VALUES ($1, $2) RETURNING id)
			INSERT INTO audit_log (guild_id, id) SELECT $1, unnest($3::text[])`, ""},
		{`UPDATE giveaway_draws SET winners = '{}' WHERE guild_id = $1`, "only added"},
		{`DELETE FROM giveaway_entries WHERE guild_id = $1`, "only added"},
		{`UPDATE cases c SET expires_at = CASE WHEN r.state = 'x' THEN now() ELSE c.expires_at END
			FROM r WHERE c.guild_id = $1`, "has now()"},
		{`UPDATE cases SET expires_at = CASE WHEN $2 THEN expires_at + $3 * interval '1 second' END
			WHERE guild_id = $1`, "has an interval"},
		{`UPDATE cases SET expires_at = coalesce($2::timestamptz, now()) WHERE guild_id = $1`, "has now()"},
		{`UPDATE cases SET expires_at = CASE WHEN $2 THEN coalesce($3, expires_at) END, updated_at = now() WHERE guild_id = $1`, ""},
		{`UPDATE cases SET expires_at = CASE WHEN $2 THEN (expires_at AT TIME ZONE 'UTC' + interval '1 second') AT TIME ZONE 'UTC' END
			WHERE guild_id = $1`, ""},
		{`UPDATE cases SET note = CASE WHEN $2 THEN 'x' END WHERE guild_id = $1 AND CASE WHEN $3 THEN expires_at < now() END`, ""},
		{`UPDATE cases c SET expires_at = r.at::timestamptz FROM unnest($2::text[]) AS r (at) WHERE c.guild_id = $1`, "from a text"},
		{`UPDATE cases c SET expires_at = r.at FROM unnest($2::timestamptz[]) AS r (at) WHERE c.guild_id = $1`, ""},
		{`UPDATE cases SET expires_at = $2::timestamptz WHERE guild_id = $1`, ""},
		{`DELETE FROM cases WHERE guild_id = $1 RETURNING id, clock_timestamp()`, "returns clock_timestamp()"},
		{`DELETE FROM cases WHERE guild_id = $1 AND expires_at < now() RETURNING id`, ""},
		{`SELECT EXISTS (SELECT FROM cases WHERE note = $1)`, "selects nothing from cases"},
		{`SELECT EXISTS (SELECT 1 FROM cases WHERE note = $1)`, ""},
		{`SELECT EXISTS (SELECT FROM cases WHERE guild_id = $1 AND note = $2)`, ""},
		{`WITH m AS (SELECT 1 AS n) SELECT EXISTS (SELECT FROM m)`, ""},
		{`WITH m AS (INSERT INTO audit_log (guild_id, id) VALUES ($1, $2))
			INSERT INTO cases (guild_id, id) SELECT home.id, $2 FROM guilds home WHERE home.id = $1`, "beside a step that changes rows"},
		{`WITH m AS (SELECT id FROM cases WHERE guild_id = $1)
			INSERT INTO cases (guild_id, id) SELECT home.id, m.id FROM guilds home JOIN m ON true WHERE home.id = $1`, ""},
		{`WITH m AS (DELETE FROM cases WHERE guild_id = $1 RETURNING id)
			INSERT INTO cases (guild_id, id) SELECT home.id, m.id FROM m JOIN guilds home ON home.id = $1`, "beside a step that changes rows"},
		{`WITH m AS (DELETE FROM cases WHERE guild_id = $1 RETURNING id), n AS (
			INSERT INTO cases (guild_id, id) SELECT home.id, m.id FROM m JOIN guilds home ON home.id = $1 RETURNING id) SELECT count(*) FROM n`, ""},
		{`WITH m AS (DELETE FROM cases WHERE guild_id = $1 RETURNING id)
			INSERT INTO cases (guild_id, id) SELECT home.id, m.id FROM guilds home, (SELECT id FROM m UNION SELECT 'x') m WHERE home.id = $1`, ""},
		{`INSERT INTO cases (guild_id, id) SELECT home.id, u FROM unnest($2::text[]) u JOIN guilds home ON home.id = $1
			RETURNING id`, "has no other name"},
		{`INSERT INTO cases AS c (guild_id, id) SELECT home.id, u FROM unnest($2::text[]) u JOIN guilds home ON home.id = $1 RETURNING id`, ""},
		{`INSERT INTO cases (guild_id, id) SELECT home.id, u FROM unnest($2::text[]) u JOIN guilds home ON home.id = $1
			ON CONFLICT DO NOTHING RETURNING id`, ""},
		{`INSERT INTO cases (guild_id, id) SELECT c.guild_id, u FROM cases c JOIN unnest($2::text[]) u ON true
			WHERE c.guild_id = $1 RETURNING id`, ""},
	} {
		err := broken(c.statement)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.statement, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.statement, err, c.want)
		}
	}
}

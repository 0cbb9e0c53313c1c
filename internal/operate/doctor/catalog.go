package doctor

import (
	"context"
	"fmt"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/migrations"
)

// missing finds indexes of the schema that the database lacks. Without a unique index, statements
// that need it for ON CONFLICT fail.
func (x *examination) missing(ctx context.Context) (f Finding, missing bool) {
	there, err := db.Select[string](ctx, x.db.Reader(), `
		SELECT c.relname
		FROM pg_index AS i
		JOIN pg_class AS c ON c.oid = i.indexrelid
		WHERE c.relnamespace = current_schema()::regnamespace`)
	if err != nil {
		return fail("the indexes could not be listed: %v", err), true
	}
	have := make(map[string]bool, len(there))
	for _, name := range there {
		have[name] = true
	}
	var names, made []string
	unique := false
	for _, index := range migrations.Indexes() {
		if !have[index.Name] {
			names, made = append(names, index.Name), append(made, index.Definition)
			unique = unique || index.Unique
		}
	}
	if len(names) == 0 {
		return f, false
	}
	f = warn("indexes are missing, and reads that need them read whole tables: make them anew (`doctor --json` shows how)")
	if unique {
		f = fail("indexes are missing, and writes that rely on them are refused: make them anew (`doctor --json` shows how)")
	}
	f = f.about(names)
	f.About = made
	return f, true
}

// privileges finds rights that a node needs and that the role of the database URL lacks.
func (x *examination) privileges(ctx context.Context) Finding {
	lacking, err := db.Select[string](ctx, x.db.Reader(), `
		WITH ours AS (
			SELECT c.oid, c.relname
			FROM pg_class AS c
			WHERE c.relnamespace = current_schema()::regnamespace
				AND c.relkind IN ('r', 'p', 'f')
				AND (c.relname = ANY ($1) OR c.relname LIKE 'goose\_%')
		)
		SELECT format('%s on %s', privilege, relname)
		FROM ours
		CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege
		WHERE NOT has_table_privilege(oid, privilege)
		  AND (privilege = 'SELECT' OR relname <> 'oldest_program' AND relname NOT LIKE 'goose\_%')
		ORDER BY 1`, db.Array(migrations.Tables()))
	var grant string
	if err == nil {
		grant, err = db.Get[string](ctx, x.db.Reader(), `
			SELECT format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO %I', current_schema(), current_user)`)
	}
	switch {
	case err != nil:
		return fail("what the database's role may do could not be read: %v", err)
	case len(lacking) > 0:
		return fail("the tables' owner can run %s: the database's role lacks privileges that a node needs", grant).about(lacking)
	}
	return ok("the database's role may read and write every table")
}

// connections compares the connections that a node uses with the server's limits. A pooler shares
// connections among more clients and has limits of its own.
func (x *examination) connections(ctx context.Context) Finding {
	if x.ListenURL != x.DatabaseURL {
		return ok("a node takes %d connections (GUILDHALL_DB_CONNECTIONS), of a pooler, whose bounds are not known here", x.Connections)
	}
	l, err := readLimit(ctx, x.db.Reader())
	if err != nil {
		return fail("how many connections the database admits could not be read: %v", err)
	}
	text := l.compare(x.Connections)
	switch {
	case x.Connections > l.Connections:
		return fail("%s", text)
	case l.Nodes*x.Connections > l.Connections:
		return warn("%s, and %d nodes with the role api run: raise max_connections, or let them take fewer", text, l.Nodes)
	}
	return ok("%s", text)
}

// limit is how many connections server, role and database admit, with the number of nodes with the
// role api that run.
type limit struct {
	Connections int `db:"connections"`
	Nodes       int `db:"nodes"`
}

func readLimit(ctx context.Context, q db.Querier) (limit, error) {
	return db.Get[limit](ctx, q, `
		SELECT least(
				current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
					- coalesce(current_setting('reserved_connections', true), '0')::int,
				(SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user),
				(SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database())
			) AS connections,
			(SELECT count(*) FROM auth_nodes WHERE seen_at > now() - interval '10 seconds') AS nodes`)
}

// compare returns a sentence that compares the connections that a node takes with the limit.
func (l limit) compare(takes int) string {
	text := fmt.Sprintf("a node takes %d connections (GUILDHALL_DB_CONNECTIONS), the database admits %d", takes, l.Connections)
	if takes > l.Connections {
		text += ": raise max_connections, or the limit of the role or the database, or let nodes take fewer"
	}
	return text
}

// TooFewConnections returns a warning if server, role or database admit fewer connections than a
// node takes, else "". The database must not be behind a pooler, which has limits of its own.
func TooFewConnections(ctx context.Context, q db.Querier, takes int) (string, error) {
	l, err := readLimit(ctx, q)
	if err != nil || takes <= l.Connections {
		return "", fault.Wrap(err, "read how many connections the database admits")
	}
	return l.compare(takes), nil
}

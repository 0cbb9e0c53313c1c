package db

import (
	"context"
	"fmt"
	"strings"
)

// withRights adds to an error that says that the role lacks a right, or that there is no schema to
// create tables in, the statements that remedy it. It returns any other error unchanged, and also an
// error whose cause it does not find.
func withRights(ctx context.Context, q rowQuerier, err error) error {
	if code := codeOf(err); err == nil || code != "42501" && code != "3F000" {
		return err
	}
	var role, schema, owners string
	var exists, creates bool
	// The schema is the one that Postgres uses for new tables. If there is none, it is the first of
	// the search path that has a fixed name. A right on a table's owner is as good as ownership.
	if q.QueryRowContext(ctx, `
		WITH place AS (
			SELECT current_schema() AS used, coalesce((
				SELECT trim(name)
				FROM unnest(string_to_array(current_setting('search_path'), ',')) WITH ORDINALITY AS path (name, n)
				WHERE trim(name) NOT IN ('"$user"', '')
				ORDER BY n
				LIMIT 1), 'public') AS named
		)
		SELECT quote_ident(current_user), coalesce(quote_ident(used), named), used IS NOT NULL,
		       coalesce(has_schema_privilege(used, 'CREATE'), false),
		       (SELECT coalesce(string_agg(DISTINCT quote_ident(r.rolname), ', '), '')
		        FROM pg_class c
		        JOIN pg_roles r ON r.oid = c.relowner
		        WHERE c.relnamespace = used::regnamespace AND c.relkind IN ('r', 'p') AND NOT pg_has_role(c.relowner, 'USAGE'))
		FROM place`).Scan(&role, &schema, &exists, &creates, &owners) != nil {
		return err
	}
	var remedies []string
	if owners != "" {
		remedies = append(remedies, fmt.Sprintf("the tables belong to %s, who can run GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO %s. "+
			"Only the owner may migrate: do so as %[1]s, or run ALTER TABLE ... OWNER TO %[3]s for each table",
			owners, schema, role))
	}
	switch {
	case !exists:
		remedies = append(remedies, fmt.Sprintf("there is no schema for tables: run CREATE SCHEMA %s AUTHORIZATION %s, or GRANT USAGE, CREATE ON SCHEMA %[1]s TO %[2]s where it exists",
			schema, role))
	case !creates:
		remedies = append(remedies, fmt.Sprintf("%s may create no tables: the schema's owner can run GRANT USAGE, CREATE ON SCHEMA %s TO %[1]s", role, schema))
	}
	if len(remedies) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.Join(remedies, "; "))
}

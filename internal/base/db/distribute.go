package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"guildhall/internal/base/fault"
)

// SharedTables lists the tables that are not a guild's, each with the reason. The migration tool's
// tables are not in the list.
var SharedTables = map[string]string{
	"api_tokens":         "a token is looked up by its hash, before anybody knows whose it is",
	"api_token_uses":     "belongs to api_tokens",
	"token_notices":      "belongs to api_tokens",
	"bot_keys":           "a key of the bot serves several guilds",
	"bot_key_uses":       "belongs to bot_keys",
	"bot_streams":        "a stream is over all guilds",
	"auth_epoch":         "counts the changes of all tokens",
	"auth_nodes":         "the nodes that hold tokens",
	"facts_turn":         "when the platform is asked next",
	"oldest_program":     "one row: the oldest schema version that a program must know",
	"network_listings":   "the reputation that all guilds share",
	"dashboard_sessions": "people who are signed in, whichever guilds they manage",
	"secret_key_check":   "one row: by which secret key the installation seals",
}

// Distribution describes the result of Distribute.
type Distribution struct {
	Tables, Shards, Nodes int
	Now                   Strings // the tables that this call has distributed
}

// guildTables is a query for the tables of guilds in an order in which no table has a foreign key
// to a later one; $1 are the shared tables.
const guildTables = `
	WITH RECURSIVE guild_tables AS (
		SELECT c.oid, c.relname::text AS name
		FROM pg_class c
		WHERE c.relnamespace = current_schema()::regnamespace
		  AND c.relkind = 'r'
		  AND c.relname <> ALL ($1)
		  AND c.relname NOT LIKE 'goose\_%'
		  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
	), depths AS (
		SELECT oid, name, 0 AS depth FROM guild_tables
		UNION
		SELECT g.oid, g.name, d.depth + 1
		FROM depths d
		JOIN pg_constraint k ON k.contype = 'f' AND k.confrelid = d.oid AND k.conrelid <> d.oid
		JOIN guild_tables g ON g.oid = k.conrelid
	), ordered AS (
		SELECT oid, name, max(depth) + (name <> 'guilds')::int AS depth
		FROM depths
		GROUP BY oid, name
	)`

func sharedNames() Strings { return slices.Sorted(maps.Keys(SharedTables)) }

type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// isDistributed reports whether the tables of guilds are distributed. Without the Citus extension
// they are not.
func isDistributed(ctx context.Context, q rowQuerier) (yes bool, err error) {
	// The table pg_dist_partition exists only if the extension is installed.
	if err := q.QueryRowContext(ctx, `SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL`).Scan(&yes); err != nil || !yes {
		return false, err
	}
	err = q.QueryRowContext(ctx, `
		SELECT EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = to_regclass('guilds') AND partmethod = 'h')`).Scan(&yes)
	return yes, err
}

// Distribute runs Migrate and then distributes the tables of guilds over the nodes of the Citus
// cluster whose coordinator is at url. All tables are distributed by guild and co-located, so that
// all rows of a guild are on one node. The shared tables stay on the coordinator. Tables that are
// distributed already are left alone. Distribute distributes all other tables or, after an error,
// none.
//
// While no guild's table is distributed yet, no node may be running, since its statements name
// several guilds.
func Distribute(ctx context.Context, url string) (Distribution, error) {
	pool, err := openPool(url, map[string]string{"application_name": "guildhall-distribute", "timezone": "UTC"}, 3, "", false)
	if err != nil {
		return Distribution{}, err
	}
	defer pool.Close()
	if err := inTheWay(ctx, pool); err != nil {
		return Distribution{}, fault.Wrap(err, "distribute the tables")
	}
	if err := Migrate(ctx, url); err != nil {
		return Distribution{}, err
	}
	schema, err := CheckSchema(ctx, url)
	if err != nil {
		return Distribution{}, err
	}
	if left := schema.Unfinished(); left != "" {
		return Distribution{}, fmt.Errorf("distribute the tables: %s", left)
	}
	unlock, err := lockMigrations(ctx, pool)
	if err != nil {
		return Distribution{}, err
	}
	defer unlock()
	return distribute(ctx, pool)
}

// inTheWay returns an error that names what prevents the tables from being distributed.
func inTheWay(ctx context.Context, pool *sql.DB) error {
	var extension bool
	err := pool.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')`).Scan(&extension)
	if err != nil {
		return err
	}
	if !extension {
		return errors.New("this is plain Postgres: only a Citus coordinator distributes tables, with CREATE EXTENSION citus run in this database and in its workers'")
	}
	var nodes int
	var worker bool
	err = pool.QueryRowContext(ctx, `
		SELECT (SELECT count(*) FROM pg_catalog.pg_dist_node WHERE noderole = 'primary' AND isactive AND shouldhaveshards),
		       (SELECT groupid <> 0 FROM pg_catalog.pg_dist_local_group)`).Scan(&nodes, &worker)
	switch {
	case err != nil:
		return err
	case worker:
		return errors.New("this server is a worker of its Citus cluster: name the coordinator")
	case nodes == 0:
		return errors.New("the coordinator knows no node that takes shards: add the workers with citus_add_node")
	}
	distributed, err := isDistributed(ctx, pool)
	if err != nil || distributed {
		return err
	}
	running, err := olderPrograms(ctx, pool, math.MaxInt32, nodeTimeout)
	if UndefinedTable(err) { // a new database has no such table
		return nil
	}
	if err != nil {
		return err
	}
	running = slices.DeleteFunc(running, func(name string) bool { return strings.HasPrefix(name, "guildhall-distribute ") })
	if len(running) > 0 {
		return fmt.Errorf("programs are at work on the database (%s): stop them first; one that was killed counts for a minute", strings.Join(running, ", "))
	}
	return nil
}

func distribute(ctx context.Context, pool *sql.DB) (d Distribution, err error) {
	defer func() { err = withRights(ctx, pool, err) }()
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return d, err
	}
	defer func() { _ = tx.Rollback() }() // after the commit this does nothing
	// With foreign keys between them, Citus has to change the tables one after the other.
	if _, err := tx.ExecContext(ctx, `SET LOCAL citus.multi_shard_modify_mode = 'sequential'`); err != nil {
		return d, err
	}
	var left Strings
	err = tx.QueryRowContext(ctx, guildTables+`
		SELECT array_agg(name ORDER BY depth, name)
		FROM ordered
		WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition p WHERE p.logicalrelid = ordered.oid)`, sharedNames()).Scan(&left)
	if err != nil {
		return d, fault.Wrap(err, "look for tables that are not distributed")
	}
	for _, table := range left {
		if table == "guilds" {
			// A table on the coordinator cannot have a foreign key to a distributed table. The
			// statements that create tokens check the guild themselves.
			if _, err := tx.ExecContext(ctx, `ALTER TABLE api_tokens DROP CONSTRAINT IF EXISTS api_tokens_guild_id_fkey`); err != nil {
				return d, fault.Wrap(err, "distribute the tables")
			}
		}
		statement := `SELECT create_distributed_table($1, 'guild_id', colocate_with => 'guilds')`
		if table == "guilds" {
			statement = `SELECT create_distributed_table($1, 'id', colocate_with => 'none')`
		}
		if _, err := tx.ExecContext(ctx, statement, table); err != nil {
			return d, fault.Wrap(err, "distribute the table", table)
		}
	}
	if err := scattered(ctx, tx); err != nil {
		return d, err
	}
	err = tx.QueryRowContext(ctx, `
		SELECT count(DISTINCT s.logicalrelid), count(*) FILTER (WHERE s.logicalrelid = 'guilds'::regclass), count(DISTINCT p.groupid)
		FROM pg_catalog.pg_dist_shard s
		JOIN pg_catalog.pg_dist_placement p USING (shardid)
		JOIN pg_catalog.pg_dist_partition t ON t.logicalrelid = s.logicalrelid AND t.partmethod = 'h'`).Scan(&d.Tables, &d.Shards, &d.Nodes)
	if err != nil {
		return d, fault.Wrap(err, "count what is distributed")
	}
	d.Now = left
	return d, tx.Commit()
}

// scattered returns an error that names tables of guilds which are distributed in another way than
// Distribute does.
func scattered(ctx context.Context, tx *sql.Tx) error {
	var found Strings
	err := tx.QueryRowContext(ctx, guildTables+`
		SELECT array_agg(name ORDER BY name)
		FROM ordered
		JOIN citus_tables t ON t.table_name = ordered.oid
		WHERE t.citus_table_type <> 'distributed'
		   OR t.distribution_column <> CASE name WHEN 'guilds' THEN 'id' ELSE 'guild_id' END
		   OR t.colocation_id <> (SELECT colocation_id FROM citus_tables WHERE table_name = 'guilds'::regclass)`, sharedNames()).Scan(&found)
	if err != nil {
		return fault.Wrap(err, "see how tables are distributed")
	}
	if len(found) > 0 {
		return fmt.Errorf("distribute the tables: somebody has distributed these, and not by guild beside the guilds: %s; run undistribute_table on each first", strings.Join(found, ", "))
	}
	return nil
}

// GuildTables returns the tables of guilds, each before the tables that it refers to; guilds comes
// last.
func GuildTables(ctx context.Context, q Querier) ([]string, error) {
	tables, err := Select[string](ctx, q, guildTables+`
		SELECT name FROM ordered ORDER BY name = 'guilds', depth DESC, name`, sharedNames())
	return tables, fault.Wrap(err, "list the tables of guilds")
}

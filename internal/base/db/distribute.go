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

// SharedTables are the tables that are not a guild's, each with its reason. The
// tables of the job engine and of the migration tool are not ours.
var SharedTables = map[string]string{ //nolint:gosec // names and reasons, nothing secret
	"api_tokens":         "a token is looked up by its hash, before anybody knows whose it is",
	"api_token_uses":     "belongs to api_tokens",
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

// Distribution says over how much the tables of guilds are spread.
type Distribution struct {
	Tables, Shards, Nodes int
	Now                   Strings // tables that were not distributed before
}

// guildTables is a query for the tables of guilds of which none refers to one that
// comes later; $1 are the shared ones.
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

// isDistributed reports whether the tables of guilds are distributed, which Citus
// has to be there for.
func isDistributed(ctx context.Context, q rowQuerier) (yes bool, err error) {
	// The catalog's table exists where the extension does, and only there.
	if err := q.QueryRowContext(ctx, `SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL`).Scan(&yes); err != nil || !yes {
		return false, err
	}
	err = q.QueryRowContext(ctx, `
		SELECT EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = to_regclass('guilds') AND partmethod = 'h')`).Scan(&yes)
	return yes, err
}

// Distribute is Migrate, and then spreads the tables of guilds over the nodes of
// the Citus cluster whose coordinator is at url: by guild, and all of them alike,
// so that what belongs to one guild lies on one node. The shared tables stay on
// the coordinator. It leaves alone tables that are distributed already, and distributes
// all or none.
//
// Where guilds are not distributed yet, no node may be at work, since it would go
// on with statements over several guilds.
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

// inTheWay is an error that names what keeps the tables from being distributed.
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
	if UndefinedTable(err) { // nothing has run here yet
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
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return d, err
	}
	defer func() { _ = tx.Rollback() }() // nothing, after the commit
	// Foreign keys want their tables changed one after the other.
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
			// A table of the coordinator's cannot refer to one that lies on the workers.
			// Statements that make a token look for its guild.
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

// scattered is an error that names tables of guilds which somebody has distributed
// in another way.
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

// GuildTables are the tables of guilds, those first that refer to others, the guilds
// last.
func GuildTables(ctx context.Context, q Querier) ([]string, error) {
	tables, err := Select[string](ctx, q, guildTables+`
		SELECT name FROM ordered ORDER BY name = 'guilds', depth DESC, name`, sharedNames())
	return tables, fault.Wrap(err, "list the tables of guilds")
}

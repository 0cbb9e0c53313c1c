// Package testbed is what benches and drills stand on: a Postgres of their own, what
// is loaded into it, and the servers that run on it.
package testbed

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"

	"guildhall/bench/node"
	"guildhall/bench/proc"
	"guildhall/internal/access/auth"
	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/embedded"
	"guildhall/internal/service/guildfile"
)

// SecretKey is that of all servers.
var SecretKey = make([]byte, seal.KeySize)

// Place is a migrated, empty database that nobody else uses.
type Place struct {
	URL        string
	DB         *db.DB  // of the load
	Admin      *sql.DB // without bounds, for what is not measured
	Postmaster int     // process of Postgres
	Box        *seal.Box

	server *embedded.Server
}

// Config says how a place differs from the usual one.
type Config struct {
	Fast             bool // durability does not matter, since nothing waits for the disk
	Statements       bool // pg_stat_statements is counted
	Writers, Readers int  // of DB; 0: 4
}

// New starts Postgres and makes the database.
func New(ctx context.Context, cfg Config) (_ *Place, err error) {
	p := &Place{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.Box, err = seal.New(SecretKey); err != nil {
		return nil, err
	}
	var settings []string
	if cfg.Statements {
		settings = []string{"shared_preload_libraries=pg_stat_statements"}
	}
	if p.server, err = embedded.Start(ctx, embedded.Config{Fast: cfg.Fast, Settings: settings}); err != nil {
		if cfg.Statements {
			err = fmt.Errorf("(pg_stat_statements is needed; it comes with Postgres, on some systems in a package of extras): %w", err)
		}
		return nil, err
	}
	p.URL = p.server.URL
	if p.Postmaster, err = proc.Postmaster(filepath.Join(p.server.Folder, "data")); err != nil {
		return nil, err
	}
	if err := db.Migrate(ctx, p.URL); err != nil {
		return nil, err
	}
	if p.Admin, err = db.OpenSQL(p.URL, "bench-admin", 2); err != nil {
		return nil, err
	}
	if cfg.Statements {
		if _, err := p.Admin.ExecContext(ctx, `CREATE EXTENSION pg_stat_statements`); err != nil {
			return nil, err
		}
	}
	or4 := func(n int) int {
		if n == 0 {
			return 4
		}
		return n
	}
	p.DB, err = db.Open(db.Config{URL: p.URL, Writers: or4(cfg.Writers), Readers: or4(cfg.Readers), Name: "bench"})
	return p, err
}

// Close ends the place.
func (p *Place) Close() error {
	var errs []error
	if p.DB != nil {
		errs = append(errs, p.DB.Close())
	}
	if p.Admin != nil {
		errs = append(errs, p.Admin.Close())
	}
	if p.server != nil {
		errs = append(errs, p.server.Stop())
	}
	return errors.Join(errs...)
}

// As is the database's URL for another role, whose statements are counted apart.
func (p *Place) As(ctx context.Context, role string) (string, error) {
	if _, err := p.Admin.ExecContext(ctx, `CREATE ROLE `+role+` LOGIN SUPERUSER`); err != nil {
		return "", err
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		return "", err
	}
	u.User = url.User(role)
	return u.String(), nil
}

// Exec runs statements, each for as long as it takes, in a transaction of its own.
func (p *Place) Exec(ctx context.Context, statements []string, args ...any) error {
	for _, statement := range statements {
		if _, err := p.Admin.ExecContext(ctx, statement, args...); err != nil {
			return fmt.Errorf("%.80s: %w", statement, err)
		}
	}
	return nil
}

// Token makes a token of a guild.
func (p *Place) Token(ctx context.Context, guild string, scopes ...string) (string, error) {
	made, err := auth.Create(ctx, p.DB, auth.New{GuildID: guild, Env: "test", Name: "bench", Scopes: scopes})
	return made.Secret, err
}

// Serve starts the real server on the place, without rate limits.
func (p *Place) Serve(ctx context.Context, program string, env ...string) (*node.Node, error) {
	return node.Start(ctx, node.Config{
		Words: []string{program}, DatabaseURL: p.URL, SecretKey: SecretKey,
		Env: append([]string{"GUILDHALL_RATE_READ=off", "GUILDHALL_RATE_WRITE=off", "GUILDHALL_RATE_LOGIN=off"}, env...),
	})
}

// Import imports the guild file that write produces, and returns how many records
// that were.
func Import(ctx context.Context, d *db.DB, write func(io.Writer) error) (records int64, err error) {
	r, w := io.Pipe()
	go func() {
		out := bufio.NewWriterSize(w, 64<<10)
		w.CloseWithError(errors.Join(write(out), out.Flush()))
	}()
	sum, err := guildfile.Import(ctx, d, r, nil)
	return sum.Records, err
}

// Vacuum does what autovacuum would soon do.
func Vacuum(ctx context.Context, url string) error {
	pool, err := db.OpenSQL(url, "vacuum", 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err = pool.ExecContext(ctx, `VACUUM ANALYZE`); err == nil {
		_, err = pool.ExecContext(ctx, `CHECKPOINT`)
	}
	return err
}

// Statements prints on what Postgres has spent most time since the last reset: for
// one role, or for all when it is empty.
func (p *Place) Statements(ctx context.Context, role string) error {
	rows, err := p.Admin.QueryContext(ctx, `
		SELECT calls, (total_exec_time + total_plan_time) * 1000 / calls, (shared_blks_hit + shared_blks_read)::float8 / calls,
		       left(regexp_replace(query, '\s+', ' ', 'g'), 110)
		FROM pg_stat_statements s
		JOIN pg_roles r ON r.oid = s.userid
		WHERE r.rolname = $1 OR $1 = ''
		ORDER BY total_exec_time + total_plan_time DESC
		LIMIT 12`, role)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var calls int
		var us, blocks float64
		var query string
		if err := rows.Scan(&calls, &us, &blocks, &query); err != nil {
			return err
		}
		fmt.Printf("    %6d x %8.0f us %8.1f blocks  %s\n", calls, us, blocks, query)
	}
	return rows.Err()
}

// Package db is the way to Postgres: two pools, transactions, and the few
// facts about the driver that the rest of the program needs. It is the only
// package that knows lib/pq.
package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// Config says how to reach Postgres and how many connections to use.
type Config struct {
	URL     string // postgres://…
	Writers int    // connections for transactions; 0 means 8
	Readers int    // connections for reads, whose sessions are read-only; 0 means 8
	Name    string // application_name; empty means guildhall
}

// DB holds a pool for transactions and a pool whose sessions cannot write.
//
// The driver may run a statement twice when a connection breaks outside a
// transaction. So every write runs inside one, and what runs outside can only
// read.
type DB struct {
	write *sqlx.DB
	read  *sqlx.DB
}

// Open prepares both pools; the first use connects. It fails on a malformed URL.
func Open(cfg Config) (*DB, error) {
	if cfg.Writers == 0 {
		cfg.Writers = 8
	}
	if cfg.Readers == 0 {
		cfg.Readers = 8
	}
	if cfg.Name == "" {
		cfg.Name = "guildhall"
	}
	limits := map[string]string{
		"application_name":                    cfg.Name,
		"statement_timeout":                   "5000",
		"lock_timeout":                        "2000",
		"idle_in_transaction_session_timeout": "10000",
		"timezone":                            "UTC",
	}
	write, err := openPool(cfg.URL, limits, cfg.Writers)
	if err != nil {
		return nil, err
	}
	limits["default_transaction_read_only"] = "on"
	read, err := openPool(cfg.URL, limits, cfg.Readers)
	if err != nil {
		write.Close()
		return nil, err
	}
	return &DB{write: sqlx.NewDb(write, "postgres"), read: sqlx.NewDb(read, "postgres")}, nil
}

// OpenSQL returns a plain pool of at most n connections, for libraries that
// bring their own statements. It has no statement or lock timeout.
func OpenSQL(url, name string, n int) (*sql.DB, error) {
	return openPool(url, map[string]string{"application_name": name, "timezone": "UTC"}, n)
}

func openPool(raw string, params map[string]string, n int) (*sql.DB, error) {
	dsn, err := withParams(raw, params)
	if err != nil {
		return nil, err
	}
	c, err := newConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("the database URL cannot be used: %w", err)
	}
	pool := sql.OpenDB(c)
	pool.SetMaxOpenConns(n)
	pool.SetMaxIdleConns(n)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	return pool, nil
}

// withParams adds session settings to a database URL. The driver's default for
// sslmode is about to change, so it is always said: a URL without one gets
// disable for a local server and require for any other.
func withParams(raw string, params map[string]string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		// The parse error would repeat the URL, which may hold a password.
		return "", errors.New("the database URL must have the form postgres://user:password@host:port/database?sslmode=…")
	}
	q := u.Query()
	if q.Get("sslmode") == "" {
		mode := "require"
		if h := u.Hostname(); h == "" || h == "localhost" || h == "127.0.0.1" || h == "::1" || strings.HasPrefix(q.Get("host"), "/") {
			mode = "disable"
		}
		q.Set("sslmode", mode)
	}
	if q.Get("connect_timeout") == "" {
		q.Set("connect_timeout", "5")
	}
	for k, v := range params {
		q.Set(k, v)
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// Close closes both pools.
func (d *DB) Close() error { return errors.Join(d.write.Close(), d.read.Close()) }

// Ping reports whether Postgres answers on both pools.
func (d *DB) Ping(ctx context.Context) error {
	if err := d.read.PingContext(ctx); err != nil {
		return err
	}
	return d.write.PingContext(ctx)
}

// Reader returns the read-only pool.
func (d *DB) Reader() Querier { return d.read }

// Stats returns the pools' statistics, for metrics.
func (d *DB) Stats() (write, read sql.DBStats) { return d.write.Stats(), d.read.Stats() }

package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"os"
	"runtime/debug"
	"slices"

	"guildhall/internal/db"
	"guildhall/internal/seal"
)

type serveCommand struct {
	Settings    `set:"default_env=live" set:"default_log=info,json" set:"default_webhook_allow="` //nolint:staticcheck // kong reads every set
	DatabaseURL string                                                                            `name:"database-url" env:"GUILDHALL_DATABASE_URL" help:"Postgres 15 or newer. Required." placeholder:"URL"`
	Roles       []string                                                                          `env:"GUILDHALL_ROLES" enum:"api,worker" default:"api,worker" help:"What this process does: api, worker, or both."`
	Migrate     bool                                                                              `help:"Bring the database up to this program's schema first."`
}

// garbage is how much may pile up between two collections, in percent of what
// is in use, unless GOGC says otherwise. A server holds a few megabytes, for
// which Go's own 100 would mean twenty collections a second under load.
const garbage = 400

// Run serves until the process is told to stop.
func (c *serveCommand) Run(ctx context.Context, io streams) error {
	if c.DatabaseURL == "" {
		return errors.New("GUILDHALL_DATABASE_URL: the database's URL is needed, as in postgres://user:password@host:5432/guildhall?sslmode=require")
	}
	passing := false
	if c.SecretKey == "" && c.Env != "live" {
		var err error
		if c.SecretKey, err = newSecretKey(); err != nil {
			return err
		}
		passing = true
	}
	settings, err := c.check()
	if err != nil {
		return err
	}
	log, lines, err := newBatchedLogger(io.err, c.Log)
	if err != nil {
		return err
	}
	defer lines.flush()
	if passing {
		log.Warn("no GUILDHALL_SECRET_KEY: signing secrets made now cannot be read after a restart")
	}
	if c.Migrate {
		if err := db.Migrate(ctx, c.DatabaseURL); err != nil {
			return err
		}
	}
	if err := db.CheckSchema(ctx, c.DatabaseURL); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	n := &node{
		checked: settings, databaseURL: c.DatabaseURL, log: log, drain: drainTime,
		api: slices.Contains(c.Roles, "api"), worker: slices.Contains(c.Roles, "worker"),
	}
	if n.chat, err = platform(c.Settings, log); err != nil {
		return err
	}
	return n.run(ctx)
}

// newSecretKey makes a key for GUILDHALL_SECRET_KEY.
func newSecretKey() (string, error) {
	key := make([]byte, seal.KeySize)
	if _, err := rand.Read(key); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(key), nil
}

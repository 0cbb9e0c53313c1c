package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/gcpercent"
	"guildhall/internal/base/logging"
	"guildhall/internal/operate/secretkey"
)

type serveCommand struct {
	databaseURL
	listenURL
	roles
	Settings `set:"default_env=live" set:"default_log=info,json" set:"default_webhook_allow="` //nolint:staticcheck // kong reads every set
	Migrate  bool                                                                              `help:"Bring the database up to this program's schema first, and an hour later take away what only the release before needed."`
}

// Run serves until ctx ends.
func (c *serveCommand) Run(ctx context.Context, io streams, unknown noSettings) error {
	withoutKey := c.withoutKey()
	settings, err := c.check(c.roles)
	if c.DatabaseURL == "" {
		err = errors.Join(errors.New("GUILDHALL_DATABASE_URL: the database's URL is needed, as in postgres://user@host:5432/guildhall?sslmode=require, with :password after the user"), err)
	}
	if err != nil {
		return err
	}
	if err := settings.checkListenURL(c.ListenURL); err != nil {
		return err
	}
	log, lines, err := openLog(io.err, c.Log)
	if err != nil {
		return err
	}
	defer lines.Flush(lastLines)
	warnOf(log, string(unknown), db.Unneeded(c.DatabaseURL), db.Unneeded(c.ListenURL))
	if withoutKey {
		log.Warn("no GUILDHALL_SECRET_KEY: signing secrets and stored answers are kept under a key that everybody knows, which is for tests only")
	}
	if c.Migrate {
		if err := c.direct(c.DatabaseURL, func(url string) error { return db.Expand(ctx, url) }); err != nil {
			return err
		}
	}
	schema, err := db.CheckSchema(ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	note, err := settings.distribution(schema.Distributed)
	if err != nil {
		return err
	}
	warnOf(log, note)
	warnOfSchema(log, schema)
	warnOf(log, settings.unreachable(), settings.withoutEffect(c.DashboardURL != ""))
	switch err := checkKey(ctx, c.DatabaseURL, settings.box); {
	case errors.Is(err, secretkey.ErrOther) && withoutKey:
		log.Warn("what is sealed in this database cannot be read: it was sealed with a GUILDHALL_SECRET_KEY, which is not set now")
	case err != nil:
		return err
	}
	log.Info("schema", "version", schema.Version, "known", db.SchemaVersion(), "migrations", whoMigrates(c.Migrate))
	if os.Getenv("GOGC") == "" {
		gcpercent.Tune()
	}
	n := &node{
		checked: settings, databaseURL: c.DatabaseURL, listenURL: cmp.Or(c.ListenURL, c.DatabaseURL), log: log, lines: lines, drain: drainTimeout,
		finish: c.Migrate && schema.Waits != 0,
	}
	return n.run(ctx)
}

// lastLines is how long the program waits at its end for the last log lines to be written.
const lastLines = time.Second

// openLog opens the log of a node. If nobody reads the log, lines are lost, but nothing ends or
// waits.
func openLog(w io.Writer, setting string) (*slog.Logger, *logging.Writer, error) {
	signal.Ignore(syscall.SIGPIPE)
	return logging.Open(w, setting)
}

// warnOf logs notes as warnings; an empty note says nothing.
func warnOf(log *slog.Logger, notes ...string) {
	for _, note := range notes {
		if note != "" {
			log.Warn(note)
		}
	}
}

// warnOfSchema logs what an operator should know about the schema.
func warnOfSchema(log *slog.Logger, schema db.Schema) {
	if schema.Newer() {
		log.Warn("the database is on a newer schema than this program's; a newer guildhall has migrated it", "have", schema.Version, "known", db.SchemaVersion())
	}
	if left := schema.Unfinished(); left != "" {
		log.Warn(left, "have", schema.Version, "known", db.SchemaVersion())
	}
	if len(schema.Invalid) > 0 {
		log.Error("indexes are invalid: what made them was cut off; drop them and run `guildhall migrate`", "indexes", schema.Invalid)
	}
}

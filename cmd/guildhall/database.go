package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/output"
)

// connection is how data commands find the database: by the setting, or by the `guildhall dev` that
// runs in the directory.
type connection struct {
	databaseURL
	Dir string `default:".guildhall" help:"Folder of a running guildhall dev." placeholder:"FOLDER"`
}

// targetDatabase is the database to work on. If dev runs, it also has the settings of dev's server.
type targetDatabase struct {
	DatabaseURL string `json:"database_url"`
	Env         string `json:"env"`
	Dashboard   string `json:"dashboard,omitempty"` // base URL of the dashboard, once it is served
	SecretKey   string `json:"-"`
}

// write writes a running dev's file for other commands.
func (f targetDatabase) write(path string) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

var errNoDatabase = errors.New("no database: set GUILDHALL_DATABASE_URL, or run this as a user who may read /etc/guildhall/env, which has it on a server; " +
	"or start `guildhall dev` first and run this in the same folder (or name its --dir)")

// open returns the database after checking that it has this program's schema.
func (c connection) open(ctx context.Context) (*db.DB, targetDatabase, error) {
	f, err := c.find()
	if err != nil {
		return nil, f, err
	}
	schema, err := db.CheckSchema(ctx, f.DatabaseURL)
	if err != nil {
		return nil, f, err
	}
	d, err := db.Open(db.Config{URL: f.DatabaseURL, Writers: 2, Readers: 2, Name: "guildhall-cli", Distributed: schema.Distributed})
	return d, f, err
}

// openFor is open for a command about one guild, or about every guild. It returns an error if the
// guild does not exist, since an empty list would suggest a guild without data.
func (c connection) openFor(ctx context.Context, guild string, every bool) (*db.DB, error) {
	d, _, err := c.open(ctx)
	if err != nil || every {
		return d, err
	}
	if err := auth.WantGuild(ctx, d.Reader(), guild); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

func (c connection) find() (targetDatabase, error) {
	if c.DatabaseURL != "" {
		return targetDatabase{DatabaseURL: c.DatabaseURL}, nil
	}
	text, err := os.ReadFile(filepath.Join(c.Dir, runningFile))
	if errors.Is(err, os.ErrNotExist) {
		return targetDatabase{}, errNoDatabase
	}
	if err != nil {
		return targetDatabase{}, err
	}
	var f targetDatabase
	if err := json.Unmarshal(text, &f); err != nil {
		return targetDatabase{}, err
	}
	key, err := os.ReadFile(filepath.Join(c.Dir, secretKeyFile))
	if err != nil {
		return targetDatabase{}, err
	}
	f.SecretKey = string(key)
	return f, nil
}

type migrateCommand struct {
	connection
	listenURL
	Distribute bool `help:"Then spread the guilds over the nodes of a Citus cluster, whose coordinator the database is; no node may run meanwhile."`
}

// Help says when to run the command.
func (c *migrateCommand) Help() string {
	return "The servers refuse a schema that is too old for their statements, and run on a newer one unless it has lost what they need. " +
		"Run the new release's migrate before its servers start, and once more when the old ones have stopped; servers that run with --migrate need neither."
}

func (c *migrateCommand) Run(ctx context.Context, io streams) error {
	f, err := c.find()
	if err != nil {
		return err
	}
	return c.direct(f.DatabaseURL, func(url string) error { return c.migrate(ctx, io, url) })
}

func (c *migrateCommand) migrate(ctx context.Context, io streams, direct string) error {
	if note := db.Unneeded(direct); note != "" {
		if err := output.Say(io.err, "%s", note); err != nil {
			return err
		}
	}
	if c.Distribute {
		d, err := db.Distribute(ctx, direct)
		if err != nil {
			return err
		}
		return io.result(false, nil, "The database is at schema version %d. Its guilds lie in %d shards on %d nodes: %d tables are distributed, %d of them since now.",
			db.SchemaVersion(), d.Shards, d.Nodes, d.Tables, len(d.Now))
	}
	if err := db.Migrate(ctx, direct); err != nil {
		return err
	}
	schema, err := db.CheckSchema(ctx, direct)
	if err != nil {
		return err
	}
	if left := schema.Unfinished(); left != "" {
		return io.result(false, nil, "The database is at schema version %d: %s.", schema.Version, left)
	}
	return io.result(false, nil, "The database is at schema version %d.", schema.Version)
}

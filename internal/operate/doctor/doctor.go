// Package doctor diagnoses an installation from outside, as an operator would: the services it
// depends on (database, clock, listener's connection, Redis, chat platform, certificate), whether
// the secret key fits the database, and whether background work gets done. It leaves nothing
// behind: no row, no endpoint, no message.
package doctor

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"guildhall/internal/access/seal"
	"guildhall/internal/base/certificate"
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/egress"
)

// The statuses of a finding.
const (
	OK   = "ok"
	Warn = "warn" // the installation works, but an operator should look into the finding
	Fail = "fail" // something does not work
)

// The names of the checks, in the order in which they run. Programs may rely on the names.
const (
	Settings    = "settings"
	Database    = "database"
	Schema      = "schema"
	Privileges  = "privileges"
	Guilds      = "guilds"
	Connections = "connections"
	Clock       = "clock"
	SecretKey   = "secret_key"
	Listener    = "listener"
	Redis       = "redis"
	Platform    = "chat_platform"
	Certificate = "certificate"
	PublicURL   = "public_url"
	Traces      = "traces"
	Endpoints   = "endpoints"
	BotKeys     = "bot_keys"
	Fetches     = "fetches"
	Pending     = "pending"
	Books       = "books"
)

// Finding is the result of one check.
type Finding struct {
	Status  string `json:"status"`
	Check   string `json:"check"`
	Message string `json:"message"` // a sentence without secrets
	// About lists what the sentence is about, if that is more than fits into the sentence:
	// endpoints, guilds, wallets.
	About []string `json:"about"`
}

// Config is the installation as its settings describe it.
type Config struct {
	DatabaseURL string
	ListenURL   string // the URL of the same database without a pooler
	Distributed bool   // the tables are distributed by guild (Citus)
	Connections int    // connections that a node uses
	Box         *seal.Box
	RedisURL    string        // empty: each node counts for itself
	Chat        *chat.Discord // nil: no bot token, or the platform is switched off
	ChatOff     bool
	ChatByBot   bool                        // the operator's bot acts on the chat platform
	Certificate certificate.Files           // without paths: no certificate
	Hosts       []string                    // names that the certificate must be valid for
	Probe       string                      // URL of an operation that needs a token, as callers reach it; empty: unknown
	Client      *http.Client                // calls Probe; nil: a client with a timeout
	Traces      func(context.Context) error // probes the collector of traces; nil: no collector
	Guard       *egress.Guard
	Guilds      []string // guilds to check; none: all guilds
	Books       bool     // also add up every ledger
	Now         func() time.Time
}

// checkTimeout bounds each check except that of the ledgers.
const checkTimeout = 30 * time.Second

// maxNamed is how many things a sentence lists.
const maxNamed = 5

// examination is one run of doctor.
type examination struct {
	Config
	db *db.DB
}

// Examine runs the checks one after the other and calls report with each finding. It skips checks
// that need a database if the database does not respond. It returns the error of ctx, or an error
// for a malformed database URL.
func Examine(ctx context.Context, cfg Config, report func(Finding)) error {
	if cfg.Now == nil {
		cfg.Now = time.Now //nolint:forbidigo // it is this node's clock that is examined
	}
	d, err := db.Open(db.Config{URL: cfg.DatabaseURL, Writers: 1, Readers: 2, Name: "guildhall-doctor", Distributed: cfg.Distributed})
	if err != nil {
		return err
	}
	defer d.Close()
	x := &examination{Config: cfg, db: d}
	reachable, fits := true, true
	var toPlatform *bool
	if x.ChatByBot { // the bot's work is in the database
		toPlatform = &fits
	}
	for _, c := range []struct {
		name          string
		needs         *bool // the check runs only if this is true
		result        *bool // set to whether the check has passed
		run           func(context.Context) Finding
		withoutLimits bool
	}{
		{name: Database, result: &reachable, run: x.database},
		{name: Schema, needs: &reachable, result: &fits, run: x.schema},
		{name: Privileges, needs: &fits, run: x.privileges},
		{name: Guilds, needs: &fits, run: x.guilds},
		{name: Connections, needs: &fits, run: x.connections},
		{name: Clock, needs: &reachable, run: x.clock},
		{name: SecretKey, needs: &fits, run: x.secretKey},
		{name: Listener, needs: &reachable, run: x.listener},
		{name: Redis, run: x.redis},
		{name: Platform, needs: toPlatform, run: x.platform},
		{name: Certificate, run: x.certificate},
		{name: PublicURL, run: x.publicURL},
		{name: Traces, run: x.traces},
		{name: Endpoints, needs: &fits, run: x.endpoints},
		{name: Fetches, needs: &fits, run: x.fetches},
		{name: BotKeys, needs: &fits, run: x.botKeys},
		{name: Pending, needs: &fits, run: x.pending},
		{name: Books, needs: &fits, run: x.books, withoutLimits: true},
	} {
		if c.needs != nil && !*c.needs || c.name == Books && !x.Books || c.name == Guilds && len(x.Guilds) == 0 {
			continue
		}
		f := limited(ctx, c.withoutLimits, c.run)
		if err := ctx.Err(); err != nil {
			return err
		}
		f.Check = c.name
		if f.About == nil {
			f.About = []string{}
		}
		if c.result != nil && f.Status == Fail {
			*c.result = false
			fits = false
		}
		report(f)
	}
	return nil
}

func limited(ctx context.Context, without bool, run func(context.Context) Finding) Finding {
	if without {
		return run(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return run(ctx)
}

func ok(format string, args ...any) Finding {
	return Finding{Status: OK, Message: fmt.Sprintf(format, args...)}
}

func warn(format string, args ...any) Finding {
	return Finding{Status: Warn, Message: fmt.Sprintf(format, args...)}
}

func fail(format string, args ...any) Finding {
	return Finding{Status: Fail, Message: fmt.Sprintf(format, args...)}
}

// about adds things to a finding: the first few to the sentence, all of them to About.
func (f Finding) about(things []string) Finding {
	if len(things) == 0 {
		return f
	}
	f.About = things
	f.Message += ": " + strings.Join(things[:min(len(things), maxNamed)], ", ")
	if more := len(things) - maxNamed; more > 0 {
		f.Message += fmt.Sprintf(" and %d more", more)
	}
	return f
}

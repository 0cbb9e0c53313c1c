// Package doctor examines an installation from outside, as an operator would:
// what serves it (database, clock, line for notifications, Redis, chat platform,
// certificate), whether its key opens what it keeps, and whether its work gets
// done. It keeps nothing of what it tries: no row, no endpoint, no message.
package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/egress"
)

// The statuses of a finding.
const (
	OK   = "ok"
	Warn = "warn" // it serves, but somebody should look at it
	Fail = "fail" // something does not work
)

// The names of the checks, in the order in which they are made. Programs may
// rely on them.
const (
	Settings    = "settings"
	Database    = "database"
	Schema      = "schema"
	Privileges  = "privileges"
	Guilds      = "guilds"
	Connections = "connections"
	Clock       = "clock"
	SecretKey   = "secret_key"
	DirectLine  = "direct_line"
	Redis       = "redis"
	Platform    = "chat_platform"
	Certificate = "certificate"
	Traces      = "traces"
	Endpoints   = "endpoints"
	BotKeys     = "bot_keys"
	Fetches     = "fetches"
	Pending     = "pending"
	Books       = "books"
)

// Finding is what one check has come to.
type Finding struct {
	Status  string `json:"status"`
	Check   string `json:"check"`
	Message string `json:"message"` // a sentence; it holds no secret
	// About names what the sentence is about, where that is more than it can
	// hold: endpoints, guilds, wallets.
	About []string `json:"about"`
}

// Config is the installation as its settings describe it.
type Config struct {
	DatabaseURL string
	ListenURL   string // of the same database, past any pooler
	Distributed bool   // its tables are, by guild
	Connections int    // that a node takes
	Box         *seal.Box
	RedisURL    string        // empty: every node counts for itself
	Chat        *chat.Discord // nil: no bot token, or the platform is off
	ChatOff     bool
	ChatByBot   bool   // the operator's bot does what has to be done on the platform
	CertFile    string // empty: no certificate
	KeyFile     string
	Hosts       []string                    // names that the certificate has to be good for
	Traces      func(context.Context) error // asks the collector of traces; nil: there is none
	Guard       *egress.Guard
	Guilds      []string // checks that go guild by guild look at these; none: all
	Books       bool     // add up every ledger
	Now         func() time.Time
}

// checkTimeout bounds each check, except adding up the books.
const checkTimeout = 30 * time.Second

// maxNamed is how many things a sentence names.
const maxNamed = 5

// examination is one run.
type examination struct {
	Config
	db *db.DB
}

// Examine makes the checks one after the other and tells each finding as it
// comes. It leaves out the checks that need a database which does not answer. The error
// is that of ctx, or of a database URL that is none.
func Examine(ctx context.Context, cfg Config, tell func(Finding)) error {
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
	if x.ChatByBot { // whose work is in the database
		toPlatform = &fits
	}
	for _, c := range []struct {
		name          string
		needs         *bool // it is made where this holds
		result        *bool // true where this check has not failed
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
		{name: DirectLine, needs: &reachable, run: x.directLine},
		{name: Redis, run: x.redis},
		{name: Platform, needs: toPlatform, run: x.platform},
		{name: Certificate, run: x.certificate},
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
		tell(f)
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

// about names things: the first few in the sentence, all of them beside it.
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

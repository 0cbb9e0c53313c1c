package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/server/failure"
)

const (
	// permissionAge is how old the platform's word may be for a page, and
	// graceAge how old while the platform is away. A change asks afresh.
	permissionAge = time.Minute
	graceAge      = 10 * time.Minute
	// maxPermissions bounds what is remembered.
	maxPermissions = 20_000
)

var errPlatformAway = fault.New(fault.Unavailable, "discord_unavailable",
	"Discord does not answer, so nobody can tell whether you may still manage this server. Nothing was changed. Try again in a moment.").After(10 * time.Second)

// guild is a guild as the pages name it.
type guild struct {
	ID   string `db:"id"`
	Name string `db:"name"`
}

// limited lets nobody pass whose address has no sign-ins left, and spends one.
func limited(next handler) handler {
	return func(c *call) (reply, error) {
		if r := c.cfg.Limits.Spend(c.ctx, auth.LoginKey(c.from), c.cfg.Login); !r.Allowed {
			return reply{}, fault.New(fault.Limited, "rate_limited", "Too many sign-ins from your address. Try again in %d seconds.", failure.Seconds(r.RetryAfter)).
				After(max(r.RetryAfter, time.Second))
		}
		return next(c)
	}
}

// byDiscord is limited, where people sign in with Discord.
func byDiscord(next handler) handler {
	return func(c *call) (reply, error) {
		if c.cfg.Discord == nil {
			return reply{}, errNoSignIn
		}
		return limited(next)(c)
	}
}

// signedIn lets nobody pass who has not signed in.
func signedIn(next handler) handler {
	return func(c *call) (reply, error) {
		if c.who.ID == "" {
			return reply{}, errSignedIn
		}
		return next(c)
	}
}

// managing lets only those pass who may manage the guild in the path. Whoever
// may not cannot tell the guild from one that does not exist.
func managing(next handler) handler {
	return func(c *call) (reply, error) {
		g, err := c.enter(c.r.PathValue("guild"))
		if err != nil {
			return reply{}, err
		}
		c.guild = g
		return next(c)
	}
}

// enter returns the guild if the caller may manage it.
func (c *call) enter(id string) (guild, error) {
	if !slices.Contains(c.who.Guilds, id) {
		return guild{}, errNotHere
	}
	g, err := db.Get[guild](c.ctx, c.cfg.DB.Reader(), `SELECT id, name FROM guilds WHERE id = $1`, id)
	if db.Missing(err) {
		return guild{}, errNotHere
	}
	if err != nil {
		return guild{}, fmt.Errorf("read guild %s: %w", id, err)
	}
	changes := c.r.Method != http.MethodGet && c.r.Method != http.MethodHead
	ok, err := c.access.may(c.ctx, c.who, id, changes)
	if err != nil {
		return guild{}, err
	}
	if !ok {
		return guild{}, errNotHere
	}
	return g, nil
}

// access remembers what the platform has said about who may manage what.
type access struct {
	discord *Discord
	now     func() time.Time

	mu          sync.Mutex               // guards what follows
	permissions map[[2]string]permission // by guild and user
}

type permission struct {
	may bool
	at  time.Time
}

func newAccess(d *Discord, now func() time.Time) *access {
	return &access{discord: d, now: now, permissions: map[[2]string]permission{}}
}

// may reports whether p may manage the guild. An operator's link says so for
// its one guild. Anybody else's right is the platform's to tell, afresh before
// a change.
func (a *access) may(ctx context.Context, p person, guild string, afresh bool) (bool, error) {
	if p.Kind == audit.Operator {
		return true, nil
	}
	if a.discord == nil {
		return false, nil // whoever signed in did so before Discord was taken out of the settings
	}
	key := [2]string{guild, p.ID}
	a.mu.Lock()
	last, known := a.permissions[key]
	a.mu.Unlock()
	age := a.now().Sub(last.at)
	if known && !afresh && age < permissionAge {
		return last.may, nil
	}
	may, err := a.discord.MayManage(ctx, guild, p.ID)
	if _, ok := errors.AsType[*awayError](err); ok {
		if known && !afresh && age < graceAge {
			return last.may, nil
		}
		return false, errPlatformAway.Because(err)
	}
	if err != nil {
		return false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.permissions) >= maxPermissions {
		clear(a.permissions) // asking again is all it costs
	}
	a.permissions[key] = permission{may, a.now()}
	return may, nil
}

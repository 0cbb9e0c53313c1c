package chat

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/fault"
)

// RefusalWindow is the time over which refused calls are counted.
const RefusalWindow = 10 * time.Minute

const (
	// The platform bans an address after 10,000 refused calls in RefusalWindow. Each guild has a
	// budget of its own, so that no guild can use up the bot's. Calls in the background stop at a
	// lower count than calls that a request waits for.
	invalidGuild      = 500
	invalidBackground = 5000
	invalidAll        = 8000
)

// Counter counts by key over RefusalWindow and returns the counts of the keys. *ratelimit.Windows
// implements it.
type Counter interface {
	Count(ctx context.Context, n int, keys ...string) []int
}

// refusals stops calls before the platform bans the bot's address for too many refused ones.
type refusals struct {
	counter Counter
	all     string // the key under which the bot's refusals are counted
	log     *slog.Logger

	mu     sync.Mutex                     // guards the field below
	logged map[unsent]map[string]struct{} // budgets that were already logged as spent
	since  time.Time
}

func newRefusals(cfg Config) (*refusals, error) {
	counter := cfg.Refusals
	if counter == nil {
		own, err := ratelimit.NewWindows(ratelimit.Config{}, RefusalWindow)
		if err != nil {
			return nil, fault.Wrap(err, "chat")
		}
		counter = own
	}
	// All nodes of one bot share the count. The key contains a hash, not the token.
	bot := sha256.Sum256([]byte(cfg.Token))
	return &refusals{counter: counter, all: "{chat:" + hex.EncodeToString(bot[:6]) + "}:refused", log: cfg.Log}, nil
}

// spent returns the failure of a call that could exceed a budget if refused, or nil if the call may
// be made.
func (r *refusals) spent(ctx context.Context, guild string) *Failure {
	counts := r.counter.Count(ctx, 0, r.keys(guild)...)
	if len(counts) > 1 && counts[1] >= invalidGuild {
		r.logSpent(ctx, unsentGuild, guild, counts[1])
		return &Failure{Message: "too many refused calls for this guild in the last ten minutes", unsent: unsentGuild}
	}
	budget := invalidAll
	if inBackground(ctx) {
		budget = invalidBackground
	}
	if counts[0] >= budget {
		r.logSpent(ctx, unsentBot, "", counts[0])
		return &Failure{Message: "too many refused calls in the last ten minutes", unsent: unsentBot}
	}
	return nil
}

func (r *refusals) keys(guild string) []string {
	if guild == "" {
		return []string{r.all}
	}
	return []string{r.all, r.all + ":" + guild}
}

// logSpent logs a spent budget, once per window for each guild and for the bot.
func (r *refusals) logSpent(ctx context.Context, why unsent, guild string, count int) {
	r.mu.Lock()
	if now := time.Now(); now.Sub(r.since) > RefusalWindow {
		r.since, r.logged = now, map[unsent]map[string]struct{}{unsentGuild: {}, unsentBot: {}}
	}
	_, known := r.logged[why][guild]
	r.logged[why][guild] = struct{}{}
	r.mu.Unlock()
	if !known {
		r.log.WarnContext(ctx, "the chat platform has refused so many calls that no more are made for now", "guild_id", guild, "refused", count)
	}
}

// learn counts a response if it counts towards a ban. Refusals of the bot's token are not counted
// for any guild.
func (r *refusals) learn(ctx context.Context, guild string, sent *roundTrip) {
	switch {
	case sent.status == http.StatusUnauthorized:
		guild = ""
	case sent.status == http.StatusForbidden:
	case sent.status == http.StatusTooManyRequests && sent.header.Get("X-RateLimit-Scope") != "shared":
	default:
		return
	}
	r.counter.Count(ctx, 1, r.keys(guild)...)
}

type backgroundKey struct{}

// Background returns a context for calls that no request waits for. These are the first to stop
// when the platform has refused many calls.
func Background(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, true)
}

func inBackground(ctx context.Context) bool { return ctx.Value(backgroundKey{}) != nil }

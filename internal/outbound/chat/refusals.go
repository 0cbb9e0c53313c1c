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

// RefusalWindow is the time in which refused calls count together.
const RefusalWindow = 10 * time.Minute

const (
	// The platform bans an address at 10,000 refused calls in RefusalWindow. A guild
	// has a share of its own, so that none can spend the bot's; calls that
	// nobody waits for stop before those that somebody waits for.
	invalidGuild      = 500
	invalidBackground = 5000
	invalidAll        = 8000
)

// Counter counts by key over the RefusalWindow, and returns how high the
// keys stand. ratelimit.Windows is one.
type Counter interface {
	Count(ctx context.Context, n int, keys ...string) []int
}

// refusals stops calls before the platform bans the bot's address for too many
// that it had to refuse.
type refusals struct {
	counter Counter
	all     string // the key of the bot's count
	log     *slog.Logger

	mu    sync.Mutex                     // guards what follows
	told  map[unsent]map[string]struct{} // whose spent budget is in the log
	since time.Time
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
	// Nodes of one bot count together; its token is no one else's business.
	bot := sha256.Sum256([]byte(cfg.Token))
	return &refusals{counter: counter, all: "{chat:" + hex.EncodeToString(bot[:6]) + "}:refused", log: cfg.Log}, nil
}

// spent is the failure of a call that might be one refusal too many, nil if it
// may be made.
func (r *refusals) spent(ctx context.Context, guild string) *Failure {
	counts := r.counter.Count(ctx, 0, r.keys(guild)...)
	if len(counts) > 1 && counts[1] >= invalidGuild {
		r.tell(ctx, unsentGuild, guild, counts[1])
		return &Failure{Message: "too many refused calls for this guild in the last ten minutes", unsent: unsentGuild}
	}
	budget := invalidAll
	if inBackground(ctx) {
		budget = invalidBackground
	}
	if counts[0] >= budget {
		r.tell(ctx, unsentBot, "", counts[0])
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

// tell logs a spent budget, once in a window for each guild and for the bot.
func (r *refusals) tell(ctx context.Context, why unsent, guild string, count int) {
	r.mu.Lock()
	if now := time.Now(); now.Sub(r.since) > RefusalWindow {
		r.since, r.told = now, map[unsent]map[string]struct{}{unsentGuild: {}, unsentBot: {}}
	}
	_, known := r.told[why][guild]
	r.told[why][guild] = struct{}{}
	r.mu.Unlock()
	if !known {
		r.log.WarnContext(ctx, "the chat platform has refused so many calls that no more are made for now", "guild_id", guild, "refused", count)
	}
}

// learn counts a response that brings a ban nearer. That the bot's token is
// refused is no guild's doing.
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

// Background returns a context for calls that nobody waits for. When the
// platform has refused many calls, these stop first.
func Background(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, true)
}

func inBackground(ctx context.Context) bool { return ctx.Value(backgroundKey{}) != nil }

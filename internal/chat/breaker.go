package chat

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/disgoorg/disgo/rest"
)

// maxClosed bounds the channels that are remembered.
const maxClosed = 10_000

// breaker remembers refusals that asking again would only repeat, since each of
// them brings the platform's ban of this address nearer: for a while nothing is
// asked of a channel that the bot may not use, and nothing at all once the
// platform has refused the bot's token. Then one call finds out whether that
// still holds.
type breaker struct {
	pause time.Duration // how long a refusal is believed
	log   *slog.Logger
	now   func() time.Time

	mu     sync.Mutex
	token  *refusal
	closed map[place]*refusal
}

// place is a channel, for one method or, when that is empty, for all.
type place struct{ channel, method string }

type refusal struct {
	Failure
	until time.Time
}

func newBreaker(pause time.Duration, log *slog.Logger) *breaker {
	return &breaker{pause: pause, log: log, now: time.Now, closed: map[place]*refusal{}}
}

// refuses returns the failure that the call would end with, or nil if it has to
// be made.
func (b *breaker) refuses(at *rest.CompiledEndpoint) *Failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if b.token != nil {
		if now.Before(b.token.until) {
			return b.token.again()
		}
		b.token.until = now.Add(b.pause) // for all but this call
		return nil
	}
	for _, p := range []place{{at.MajorParams, ""}, {at.MajorParams, at.Endpoint.Method}} {
		if r := b.closed[p]; r != nil && now.Before(r.until) {
			return r.again()
		}
		delete(b.closed, p)
	}
	return nil
}

// learn takes note of how a call has ended; nil is success.
func (b *breaker) learn(ctx context.Context, at *rest.CompiledEndpoint, f *Failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	until := b.now().Add(b.pause)
	switch {
	case f == nil:
	case f.Status == 0 || f.Status == http.StatusTooManyRequests || f.Status >= 500:
		return // nothing was said about the token
	case f.Status == http.StatusUnauthorized:
		b.token = &refusal{*f, until}
		b.log.ErrorContext(ctx, "the chat platform refuses the bot's token: it is asked again once in a while, and nothing else is sent", "pause", b.pause.String())
		return
	}
	if b.token != nil {
		b.token = nil
		b.log.InfoContext(ctx, "the chat platform accepts the bot's token again")
	}
	if f == nil || at.MajorParams == "" {
		return
	}
	where := place{channel: at.MajorParams}
	switch f.Code {
	case CodeUnknownChannel, CodeMissingAccess:
	case CodeMissingPermission: // for this, not for everything
		where.method = at.Endpoint.Method
	default:
		return
	}
	if len(b.closed) >= maxClosed {
		clear(b.closed) // forgetting costs a call each
	}
	b.closed[where] = &refusal{*f, until}
}

func (r *refusal) again() *Failure {
	f := r.Failure
	f.Message += " (not asked again so soon)"
	return &f
}

type backgroundKey struct{}

// Background returns a context for calls that nobody waits for. When the
// platform has refused many calls, these stop first.
func Background(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, true)
}

func inBackground(ctx context.Context) bool { return ctx.Value(backgroundKey{}) != nil }

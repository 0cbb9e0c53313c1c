package chat

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// tokenBreaker stops all calls once the platform has refused the bot's token, since each further
// refused call counts towards a ban of our address. At intervals one call tests the token.
type tokenBreaker struct {
	pause time.Duration
	log   *slog.Logger
	now   func() time.Time

	mu    sync.Mutex // guards the field below
	until time.Time  // when the token may be tested; zero while the token is accepted
}

func newTokenBreaker(pause time.Duration, log *slog.Logger) *tokenBreaker {
	return &tokenBreaker{pause: pause, log: log, now: time.Now}
}

// refuses returns the failure of a call that must not be made, or nil.
func (b *tokenBreaker) refuses() *Failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return nil
	}
	now := b.now()
	if now.Before(b.until) {
		return &Failure{Message: "the bot's token was refused and is not tried again so soon", unsent: unsentToken}
	}
	b.until = now.Add(b.pause) // other calls wait until one call has tested the token
	return nil
}

// learn updates the breaker from a response's status; 0: no response.
func (b *tokenBreaker) learn(ctx context.Context, status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case status == http.StatusUnauthorized:
		b.until = b.now().Add(b.pause)
		b.log.ErrorContext(ctx, "the chat platform refuses the bot's token: it is asked again once in a while, and nothing else is sent", "pause", b.pause.String())
	case status == 0 || status == http.StatusTooManyRequests || status >= 500:
		// The status does not tell whether the token is accepted.
	case !b.until.IsZero():
		b.until = time.Time{}
		b.log.InfoContext(ctx, "the chat platform accepts the bot's token again")
	}
}

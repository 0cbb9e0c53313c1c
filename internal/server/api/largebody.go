package api

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	smallBody          = 64 << 10        // bytes up to which a body needs no permit
	largeBodyTime      = 5 * time.Second // how long a larger body may take to arrive
	largeBodyWait      = 2 * time.Second // how long a request waits for a permit
	largeBodies        = 8               // large bodies that a node reads concurrently from bot keys, and as many again from tokens
	largeBodiesOfKey   = 4               // most concurrent large bodies of one bot key
	largeBodiesOfGuild = 2               // most concurrent large bodies of one guild's tokens
)

// largeBodyPermits limits the large bodies that are read concurrently, so that slow senders cannot
// fill the memory. Bot keys and tokens have separate permits, and neither one bot key nor the
// tokens of one guild can hold all of them.
type largeBodyPermits struct {
	mu    sync.Mutex
	held  map[string]int // permits held, by kind of credential and by holder
	freed chan struct{}  // closed when a permit is released; created by a waiting request
}

// errLargeBodies is the refusal while all permits are held by others.
var errLargeBodies = errUnavailable.With("Too many large bodies are being read; try the same request again.").After(time.Second)

// acquire waits for a permit to read the body of a request; release returns the permit once the
// body has been read. The body must arrive in time even if it is refused, because net/http reads
// the rest of it before it responds.
func (l *largeBodyPermits) acquire(rs *reqState) (release func(error), err error) {
	// A connection that does not support deadlines still has the server's own.
	connection := http.NewResponseController(rs.Response())
	within := func(d time.Duration) {
		_ = connection.SetReadDeadline(time.Now().Add(d)) //nolint:forbidigo // a socket's deadline goes by the process's clock
	}
	within(largeBodyWait + largeBodyTime)
	kind, holder, most := "tokens", "guild "+rs.by.GuildID, largeBodiesOfGuild
	if rs.by.IsKey() {
		kind, holder, most = "keys", "key "+rs.by.ID, largeBodiesOfKey
	}
	timeout := time.NewTimer(largeBodyWait)
	defer timeout.Stop()
	for {
		freed := l.try(kind, holder, most)
		if freed == nil {
			break
		}
		select {
		case <-freed:
		case <-timeout.C:
			within(largeBodyTime)
			return nil, errLargeBodies
		case <-rs.ctx.Done():
			return nil, context.Cause(rs.ctx)
		}
	}
	within(largeBodyTime)
	return func(err error) {
		if err == nil {
			_ = connection.SetReadDeadline(time.Time{})
		}
		l.release(kind, holder)
	}, nil
}

// try takes a permit, or returns a channel that is closed when a permit is released.
func (l *largeBodyPermits) try(kind, holder string, most int) (freed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[kind] >= largeBodies || l.held[holder] >= most {
		if l.freed == nil {
			l.freed = make(chan struct{})
		}
		return l.freed
	}
	if l.held == nil {
		l.held = make(map[string]int)
	}
	l.held[kind]++
	l.held[holder]++
	return nil
}

func (l *largeBodyPermits) release(kind, holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[kind]--
	if l.held[holder]--; l.held[holder] == 0 {
		delete(l.held, holder)
	}
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

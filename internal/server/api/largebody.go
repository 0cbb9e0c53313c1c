package api

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	smallBody          = 64 << 10        // bytes that any number of bodies may have at a time
	largeBodyTime      = 5 * time.Second // in which a larger body has to arrive
	largeBodyPatience  = 2 * time.Second // for which a request waits for a permit to send one
	largeBodies        = 8               // that a node reads at a time of bot keys, and as many of tokens
	largeBodiesOfKey   = 4               // of them, of one bot key
	largeBodiesOfGuild = 2               // of them, of the tokens of one guild
)

// largeBodyPermits bounds the large bodies that are being read: few enough that slow
// senders fill no memory. Bot keys and tokens have permits of their own, and neither one
// key nor the tokens of one guild can hold all of theirs.
type largeBodyPermits struct {
	mu    sync.Mutex
	held  map[string]int // by kind of credential, and by holder
	freed chan struct{}  // closed when a permit is released; made by who waits
}

// errLargeBodies tells a caller to come back: others' large bodies are being read.
var errLargeBodies = errUnavailable.With("Too many large bodies are being read; try the same request again.").After(time.Second)

// acquire waits for a permit for the body of a request, and release gives it back once the
// body has been read. The body has to arrive in time, also where it is refused: net/http
// reads the rest of it before it answers.
func (l *largeBodyPermits) acquire(rs *reqState) (release func(error), err error) {
	// A connection that knows no deadlines still has the server's.
	connection := http.NewResponseController(rs.Response())
	within := func(d time.Duration) {
		_ = connection.SetReadDeadline(time.Now().Add(d)) //nolint:forbidigo // a socket's deadline goes by the process's clock
	}
	within(largeBodyPatience + largeBodyTime)
	kind, holder, most := "tokens", "guild "+rs.by.GuildID, largeBodiesOfGuild
	if rs.by.IsKey() {
		kind, holder, most = "keys", "key "+rs.by.ID, largeBodiesOfKey
	}
	patience := time.NewTimer(largeBodyPatience)
	defer patience.Stop()
	for {
		freed := l.try(kind, holder, most)
		if freed == nil {
			break
		}
		select {
		case <-freed:
		case <-patience.C:
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

// try takes a permit, or returns a channel that is closed when one is released.
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

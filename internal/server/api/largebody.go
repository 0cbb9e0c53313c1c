package api

import (
	"net/http"
	"sync"
	"time"

	"guildhall/internal/base/db"
)

const (
	smallBody       = 64 << 10        // bytes that any number of bodies may have at a time
	largeBodyTime   = 5 * time.Second // in which a larger one has to arrive
	largeBodies     = 8               // that a node reads at a time
	largeBodiesEach = 4               // of them, of one caller
)

// largeBodyPlaces are the large bodies that are being read: few enough that slow
// senders fill no memory, and no caller keeps the others out.
type largeBodyPlaces struct {
	mu  sync.Mutex
	all int
	of  map[db.Caller]int
}

// errLargeBodies tells a caller to come back: others' large bodies are being read.
var errLargeBodies = errUnavailable.With("Too many large bodies are being read; try the same request again.").After(time.Second)

// enter takes a place for the body of a request, and leave gives it back once it has
// been read. The body has to arrive in time, also where it is not read: net/http reads
// the rest of it before it answers.
func (l *largeBodyPlaces) enter(rs *reqState) (leave func(error), err error) {
	// A connection that knows no deadlines still has the server's.
	connection := http.NewResponseController(rs.Response())
	_ = connection.SetReadDeadline(time.Now().Add(largeBodyTime)) //nolint:forbidigo // a socket's deadline goes by the process's clock
	caller := db.Caller{Token: rs.by.ID, Guild: rs.by.GuildID}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= largeBodies || l.of[caller] >= largeBodiesEach {
		return nil, errLargeBodies
	}
	if l.of == nil {
		l.of = make(map[db.Caller]int)
	}
	l.all++
	l.of[caller]++
	return func(err error) {
		if err == nil {
			_ = connection.SetReadDeadline(time.Time{})
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all--
		if l.of[caller]--; l.of[caller] == 0 {
			delete(l.of, caller)
		}
	}, nil
}

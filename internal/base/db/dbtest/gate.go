package dbtest

import (
	"sync"
	"testing"
)

// Gate is a Link that holds back one request to Postgres until the test opens it. So a test can
// stop a piece of code between two of its statements and meanwhile do something else.
type Gate struct {
	*Link

	mu      sync.Mutex // guards the fields below
	armed   bool
	left    int
	fate    Fate
	reached bool
	opened  chan struct{} // closed when the held request may continue
}

// NewGate puts an open gate in front of a database.
func NewGate(t testing.TB, databaseURL string) *Gate {
	t.Helper()
	g := &Gate{opened: make(chan struct{})}
	g.Link = NewJudgedLink(t, databaseURL, g.judge)
	t.Cleanup(func() { g.Open() })
	return g
}

func (g *Gate) judge([]byte) Fate {
	g.mu.Lock()
	if g.left--; !g.armed || g.left >= 0 {
		g.mu.Unlock()
		return Pass
	}
	g.armed, g.reached = false, true
	fate, opened := g.fate, g.opened
	g.mu.Unlock()
	if fate != Stall {
		<-opened
	}
	return fate
}

// Arm lets `after` requests pass and holds back the next one. fate is what happens to that request
// when the gate is opened; with Stall the request passes at once and its response is held back.
func (g *Gate) Arm(after int, fate Fate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed, g.left, g.fate, g.reached = true, after, fate, false
	g.opened = make(chan struct{})
}

// Reached reports whether a request has been held back.
func (g *Gate) Reached() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reached
}

// Open releases the held request and lets everything after it pass. It reports whether the held
// request met a fate other than Pass.
func (g *Gate) Open() (struck bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
	default:
		close(g.opened)
	}
	g.armed = false
	g.Thaw()
	return g.reached && (g.fate == Break || g.fate == Lose)
}

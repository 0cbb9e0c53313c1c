package dbtest

import (
	"sync"
	"testing"
)

// Gate is a Link that holds back one request to Postgres until it is opened: what
// sends it stands between two of its statements, while the test does something else.
type Gate struct {
	*Link

	mu      sync.Mutex // guards what follows
	armed   bool
	left    int
	fate    Fate
	reached bool
	opened  chan struct{} // closed when what is held back may go
}

// NewGate puts a gate in front of a database. It is open.
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

// Arm lets so many requests through and holds back the one that follows. Fate is
// what becomes of that one when the gate is opened; with Stall the request passes at
// once, and its response waits.
func (g *Gate) Arm(after int, fate Fate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed, g.left, g.fate, g.reached = true, after, fate, false
	g.opened = make(chan struct{})
}

// Reached reports whether a request is held back, or was.
func (g *Gate) Reached() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reached
}

// Open lets go what is held back, and everything that follows. It reports whether a
// request has met another fate than to pass.
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

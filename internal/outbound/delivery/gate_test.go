package delivery

import (
	"sync"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// gate lies between a worker and Postgres. It lets a number of requests through, holds
// the next one back until it is opened, and then passes it, or breaks the connection
// before or after it, as if the worker had died there.
type gate struct {
	mu      sync.Mutex // guards what follows
	armed   bool
	left    int
	fate    dbtest.Fate
	reached chan struct{} // closed when a request is held back
	opened  chan struct{} // closed when it may go
	struck  bool          // the fate was not to pass, and has come
}

// judge says what becomes of the next request.
func (g *gate) judge([]byte) dbtest.Fate {
	g.mu.Lock()
	if !g.armed {
		g.mu.Unlock()
		return dbtest.Pass
	}
	if g.left--; g.left >= 0 {
		g.mu.Unlock()
		return dbtest.Pass
	}
	g.armed, g.struck = false, g.fate != dbtest.Pass
	fate, opened := g.fate, g.opened
	close(g.reached)
	g.mu.Unlock()
	<-opened
	return fate
}

// arm has the gate hold back what comes after so many requests.
func (g *gate) arm(after int, fate dbtest.Fate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed, g.left, g.fate, g.struck = true, after, fate, false
	g.reached, g.opened = make(chan struct{}), make(chan struct{})
}

// open lets go what is held back, and everything that follows. It reports whether
// the fate has come.
func (g *gate) open() (struck bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
	g.armed = false
	return g.struck
}

// node is a worker whose every request to Postgres passes a gate.
type node struct {
	gate *gate
	db   *db.DB
	d    *Deliverer
	hand []claimed // leases that it may still settle
}

func newNode(t *testing.T, url string) *node {
	t.Helper()
	g := &gate{}
	return &node{gate: g, db: dbtest.Open(t, dbtest.NewJudgedLink(t, url, g.judge).URL).DB}
}

// restart is what becomes of a worker that has died: another one knows nothing of
// what the first had in hand, whose leases run out.
func (n *node) restart(cfg Config) error {
	cfg.DB = n.db
	d, err := New(cfg)
	n.d, n.hand = d, nil
	return err
}

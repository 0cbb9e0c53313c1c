package delivery

import (
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// node is a worker whose every request to Postgres passes a gate.
type node struct {
	gate *dbtest.Gate
	db   *db.DB
	d    *Deliverer
	hand []claimed // leases that it may still settle
}

func newNode(t *testing.T, url string) *node {
	t.Helper()
	g := dbtest.NewGate(t, url)
	return &node{gate: g, db: dbtest.Open(t, g.URL).DB}
}

// restart is what becomes of a worker that has died: another one knows nothing of
// what the first had in hand, whose leases run out.
func (n *node) restart(cfg Config) error {
	cfg.DB = n.db
	d, err := New(cfg)
	n.d, n.hand = d, nil
	return err
}

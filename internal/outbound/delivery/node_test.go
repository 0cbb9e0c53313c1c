package delivery

import (
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// node is a worker whose requests to Postgres a test can stop.
type node struct {
	gate *dbtest.Gate
	db   *db.DB
	d    *Deliverer
	hand []claimed // claimed deliveries whose results the worker may still record
}

func newNode(t *testing.T, url string) *node {
	t.Helper()
	g := dbtest.NewGate(t, url)
	return &node{gate: g, db: dbtest.Open(t, g.URL).DB}
}

// restart replaces a dead worker by a new one, which does not know the claimed deliveries of the
// old one; their leases expire.
func (n *node) restart(cfg Config) error {
	cfg.DB = n.db
	d, err := New(cfg)
	n.d, n.hand = d, nil
	return err
}

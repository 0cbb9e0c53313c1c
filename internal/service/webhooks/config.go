// Package webhooks keeps the endpoints that integrators register and their
// signing secrets, and shows the log of deliveries. Package event says what happened
// and when, and package delivery brings it there.
package webhooks

import (
	"errors"

	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/egress"
)

// Config is what the operations and the command line's functions need. Box and
// Guard are required, DB for the command line's functions, and Waiters for the
// operations.
type Config struct {
	DB    *db.DB
	Box   *seal.Box
	Guard *egress.Guard

	Waiters *delivery.Waiters // who waits on this node for something to fetch
}

func (c Config) check() error {
	switch {
	case c.Box == nil:
		return errors.New("webhooks: a Box for secrets is needed")
	case c.Guard == nil:
		return errors.New("webhooks: a Guard for addresses is needed")
	}
	return nil
}

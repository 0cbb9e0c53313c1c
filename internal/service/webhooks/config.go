// Package webhooks manages the endpoints that integrators register and their signing secrets, and
// shows the log of deliveries. Package event records the events, and package delivery sends them.
package webhooks

import (
	"errors"

	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/egress"
)

// Config holds the dependencies of the operations and of the command line's functions. Box and
// Guard are required; the command line needs DB, the operations need Waiters.
type Config struct {
	DB    *db.DB
	Box   *seal.Box
	Guard *egress.Guard

	Waiters *delivery.Waiters // callers that wait on this node for events
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

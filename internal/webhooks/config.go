// Package webhooks tells integrators what changed: it keeps their endpoints and
// secrets, and delivers each recorded event to them, signed, until it is
// received. What happened and when is package event's business; an event is
// bytes here.
package webhooks

import (
	"crypto/x509"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/db"
	"guildhall/internal/seal"
)

// Config is what the operations, the command line's functions and the Deliverer
// need. Box and Guard are required, and DB for all but the operations.
type Config struct {
	DB    *db.DB
	Box   *seal.Box
	Guard *Guard

	Schedule    Schedule              // nil is DefaultSchedule
	Authorities *x509.CertPool        // who may vouch for receivers; nil is the system's
	Slots       int                   // sends under way at the same time, not counting stuck ones; 0 is 256
	Clock       func() time.Time      // nil is the database's clock, and this machine's for signatures
	Jitter      func() float64        // in [0, 1); nil is random
	Metrics     prometheus.Registerer // nil registers nothing
	Log         *slog.Logger          // nil logs nothing
}

const defaultSlots = 256

func (c Config) check() error {
	switch {
	case c.Box == nil:
		return errors.New("webhooks: a Box for secrets is needed")
	case c.Guard == nil:
		return errors.New("webhooks: a Guard for addresses is needed")
	case c.Slots < 0:
		return errors.New("webhooks: Slots must be at least 1")
	}
	return nil
}

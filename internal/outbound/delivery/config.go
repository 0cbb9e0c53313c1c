package delivery

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/base/tracing"
	"guildhall/internal/outbound/egress"
)

// Config is what a Deliverer needs. DB, Box and Guard are required.
type Config struct {
	DB    *db.DB
	Box   *seal.Box
	Guard *egress.Guard

	// Show returns the data of the events about an endpoint, as the unit of work leaves the
	// endpoint. If Show is nil, no events about endpoints are emitted.
	Show func(ctx context.Context, tx *db.Tx, guild, endpoint string) (any, error)

	Schedule    Schedule              // nil means DefaultSchedule
	Authorities *x509.CertPool        // may sign receivers' certificates; nil means the system's authorities
	Slots       int                   // maximum of concurrent sends, stuck sends not counted; 0 means 256
	Clock       func() time.Time      // nil means the database's clock, and this machine's clock for signatures
	Jitter      func() float64        // in [0, 1); nil means random
	Metrics     prometheus.Registerer // nil registers nothing
	Tracer      *tracing.Tracer       // nil traces nothing
	Log         *slog.Logger          // nil means no logging

	// OneGuild makes each statement that locks or changes rows name one guild, as needed where the
	// tables are distributed by guild. Without OneGuild, the statements of claims and results name
	// several guilds.
	OneGuild bool
}

const defaultSlots = 256

// complete checks the required fields and fills in the defaults of the others.
func (c Config) complete() (Config, error) {
	switch {
	case c.DB == nil:
		return c, errors.New("delivery: a DB is needed")
	case c.Box == nil:
		return c, errors.New("delivery: a Box for secrets is needed")
	case c.Guard == nil:
		return c, errors.New("delivery: a Guard for addresses is needed")
	case c.Slots < 0:
		return c, errors.New("delivery: Slots must be at least 1")
	}
	if c.Schedule == nil {
		c.Schedule = DefaultSchedule()
	}
	if c.Slots == 0 {
		c.Slots = defaultSlots
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

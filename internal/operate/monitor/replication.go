package monitor

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// replicationInterval is how often a node asks how far the standbys are.
const replicationInterval = 15 * time.Second

// Replication shows how far the database's standbys are behind, where there are
// some and the node's role may know: as a superuser, or a member of pg_monitor.
type Replication struct {
	db  *db.DB
	log *slog.Logger
	lag *prometheus.GaugeVec
}

// NewReplication asks nothing before Watch.
func NewReplication(d *db.DB, log *slog.Logger, metrics prometheus.Registerer) *Replication {
	return &Replication{db: d, log: log, lag: promauto.With(metrics).NewGaugeVec(prometheus.GaugeOpts{
		Name: "guildhall_db_replication_lag_seconds",
		Help: "How far a standby of the database is behind, by its application name, where this node may know: the role needs pg_monitor.",
	}, []string{"application_name"})}
}

// Watch asks until ctx ends.
func (r *Replication) Watch(ctx context.Context) error {
	watch(ctx, replicationInterval, r.measure, func(err error) {
		r.log.DebugContext(ctx, "the standbys could not be looked at", "error", err)
	})
	return nil
}

func (r *Replication) measure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	type standby struct {
		Name string  `db:"application_name"`
		Lag  float64 `db:"lag"`
	}
	// Without the right to know, all is null. A connection that applies nothing has no
	// replay_lsn: a base backup, an archiver. The copying of a subscription's table has one
	// for a while. An idle standby that has caught up has no lag.
	standbys, err := db.Select[standby](ctx, r.db.Reader(), `
		SELECT application_name, max(coalesce(extract(epoch FROM replay_lag), 0))::float8 AS lag
		FROM pg_stat_replication
		WHERE replay_lsn IS NOT NULL AND application_name !~ '^pg_[0-9]+_sync_'
		GROUP BY application_name`)
	if err != nil {
		return fault.Wrap(err, "look at the standbys")
	}
	r.lag.Reset() // one that is gone is not known any more
	for _, s := range standbys {
		r.lag.WithLabelValues(s.Name).Set(s.Lag)
	}
	return nil
}

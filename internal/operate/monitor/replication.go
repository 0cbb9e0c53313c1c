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

// replicationInterval is how often a node queries the lag of standbys.
const replicationInterval = 15 * time.Second

// Replication exports how far the database's standbys lag behind, if there are any and the role may
// see it as a superuser or a member of pg_monitor.
type Replication struct {
	db  *db.DB
	log *slog.Logger
	lag *prometheus.GaugeVec
}

// NewReplication returns a Replication. Only Watch queries.
func NewReplication(d *db.DB, log *slog.Logger, metrics prometheus.Registerer) *Replication {
	return &Replication{db: d, log: log, lag: promauto.With(metrics).NewGaugeVec(prometheus.GaugeOpts{
		Name: "guildhall_db_replication_lag_seconds",
		Help: "How far a standby of the database is behind, by its application name, where this node may know: the role needs pg_monitor.",
	}, []string{"application_name"})}
}

// Watch queries the lag until ctx ends.
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
	// Without the right to see them, all columns are null. A connection that replays nothing, such
	// as a base backup, an archiver or the initial copy of a subscription, has no replay_lsn. A
	// standby that has caught up and is idle has no lag.
	standbys, err := db.Select[standby](ctx, r.db.Reader(), `
		SELECT application_name, max(coalesce(extract(epoch FROM replay_lag), 0))::float8 AS lag
		FROM pg_stat_replication
		WHERE replay_lsn IS NOT NULL AND application_name !~ '^pg_[0-9]+_sync_'
		GROUP BY application_name`)
	if err != nil {
		return fault.Wrap(err, "look at the standbys")
	}
	r.lag.Reset() // drops standbys that no longer exist
	for _, s := range standbys {
		r.lag.WithLabelValues(s.Name).Set(s.Lag)
	}
	return nil
}

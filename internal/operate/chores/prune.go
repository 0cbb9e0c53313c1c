package chores

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/access/usage"
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/service/levelling"
)

const (
	// pruneStep is how many rows one transaction deletes at most.
	pruneStep = 1000
	// pruneFor is how long one sweep deletes at most. The next sweep begins a minute after
	// the end of this one. At 1,000 rows in 11 ms a sweep deletes some 2 million rows.
	pruneFor = 25 * time.Second
)

// pruner deletes expired rows in small transactions.
type pruner struct {
	kinds  []db.Expiry
	oldest *prometheus.GaugeVec
	// Database calls, which tests replace.
	step func(ctx context.Context, o db.Expiry) (int, error)
	age  func(ctx context.Context, o db.Expiry) (time.Duration, error)
	now  func() time.Time
}

func newPruner(d *db.DB, metrics prometheus.Registerer, others ...db.Expiry) *pruner {
	return &pruner{
		kinds: slices.Concat(idempotency.Expired(), chat.Expired(), audit.Expired(), usage.Expired(), levelling.Expired(), others),
		oldest: promauto.With(metrics).NewGaugeVec(prometheus.GaugeOpts{
			Name: "guildhall_expired_rows_oldest_seconds",
			Help: "How long ago the oldest row of a table expired that is still there after a pruning, which runs once a minute.",
		}, []string{"table"}),
		step: func(ctx context.Context, o db.Expiry) (int, error) { return db.PruneOf(ctx, d, o, pruneStep) },
		age: func(ctx context.Context, o db.Expiry) (time.Duration, error) {
			return db.OldestExpired(ctx, d.Reader(), o)
		},
		now: time.Now,
	}
}

// sweep deletes up to pruneStep expired rows of each table in turn, until no table has
// more or pruneFor is over. The tables take turns, since a table whose rows expire as fast
// as they are deleted would keep the others waiting. Then sweep sets the gauges.
func (p *pruner) sweep(ctx context.Context) error {
	var errs []error
	end := p.now().Add(pruneFor)
	for left := slices.Clone(p.kinds); len(left) > 0 && p.now().Before(end) && ctx.Err() == nil; {
		left = slices.DeleteFunc(left, func(o db.Expiry) bool {
			n, err := p.step(ctx, o)
			if err != nil {
				errs = append(errs, err)
			}
			return err != nil || n < pruneStep
		})
	}
	for _, o := range p.kinds {
		age, err := p.age(ctx, o)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p.oldest.WithLabelValues(o.Table).Set(age.Seconds())
	}
	return errors.Join(errs...)
}

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
)

const (
	// pruneStep is how many rows a step deletes at most.
	pruneStep = 1000
	// pruneFor is how long a sweep goes on at most; the next begins a minute after
	// it. With 1,000 rows in 11 ms that is some 2 million rows a minute.
	pruneFor = 25 * time.Second
)

// pruner deletes in small steps what nobody can ask for any more.
type pruner struct {
	kinds  []db.Outlived
	oldest *prometheus.GaugeVec
	// The database does these; tests replace them.
	step func(ctx context.Context, o db.Outlived) (int, error)
	age  func(ctx context.Context, o db.Outlived) (time.Duration, error)
	now  func() time.Time
}

func newPruner(d *db.DB, metrics prometheus.Registerer, others ...db.Outlived) *pruner {
	return &pruner{
		kinds: slices.Concat(idempotency.Outlived(), chat.Outlived(), audit.Outlived(), usage.Outlived(), others),
		oldest: promauto.With(metrics).NewGaugeVec(prometheus.GaugeOpts{
			Name: "guildhall_expired_rows_oldest_seconds",
			Help: "How long ago the oldest row of a table expired that is still there after a pruning, which runs once a minute.",
		}, []string{"table"}),
		step: func(ctx context.Context, o db.Outlived) (int, error) { return db.PruneOf(ctx, d, o, pruneStep) },
		age: func(ctx context.Context, o db.Outlived) (time.Duration, error) {
			return db.OldestOutlived(ctx, d.Reader(), o)
		},
		now: time.Now,
	}
}

// sweep takes a step of each kind in turn until nothing is left or its time is
// over. No kind keeps the others waiting: one whose rows come as fast as they are
// deleted would never be done. Then it shows what is left.
func (p *pruner) sweep(ctx context.Context) error {
	var errs []error
	end := p.now().Add(pruneFor)
	for left := slices.Clone(p.kinds); len(left) > 0 && p.now().Before(end) && ctx.Err() == nil; {
		left = slices.DeleteFunc(left, func(o db.Outlived) bool {
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

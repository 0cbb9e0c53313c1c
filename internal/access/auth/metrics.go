package auth

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct{ hits, reads, lost prometheus.Counter }

func newMetrics(reg prometheus.Registerer, t *Tokens) *metrics {
	made := promauto.With(reg)
	lookups := made.NewCounterVec(prometheus.CounterOpts{
		Name: "guildhall_token_lookups_total",
		Help: "Tokens found in memory and tokens asked of the database.",
	}, []string{"from"})
	made.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "guildhall_token_cache_trusted",
		Help: "1 while tokens may be found in memory.",
	}, func() float64 {
		if t.trusted(t.clock()) {
			return 1
		}
		return 0
	})
	made.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "guildhall_direct_line_missing",
		Help: "1 while the line that announces revocations stands and nothing comes over it: a pooler is in between, and GUILDHALL_LISTEN_URL has to name the direct way.",
	}, func() float64 {
		if t.silent.Load() {
			return 1
		}
		return 0
	})
	return &metrics{
		hits:  lookups.WithLabelValues("memory"),
		reads: lookups.WithLabelValues("database"),
		lost: made.NewCounter(prometheus.CounterOpts{
			Name: "guildhall_token_lines_lost_total",
			Help: "How often the line that announces revocations was lost.",
		}),
	}
}

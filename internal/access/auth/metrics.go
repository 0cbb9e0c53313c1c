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
		Name: "guildhall_token_cache_in_sync",
		Help: "1 while the cache of tokens hears of every change: else each request reads its token's row.",
	}, func() float64 {
		if t.trusted(t.clock()) {
			return 1
		}
		return 0
	})
	made.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "guildhall_listener_down",
		Help: "1 while the connection for notifications is up and receives none: a pooler is in between, and GUILDHALL_LISTEN_URL has to name the database itself.",
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
			Name: "guildhall_token_listener_disconnects_total",
			Help: "Losses of the connection for notifications of changed tokens.",
		}),
	}
}

package ratelimit

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count refusals, and separately decisions that were made without Redis.
type metrics struct {
	allowed, limited   prometheus.Counter
	failures, degraded prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, l *Limiter) (*metrics, error) {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "guildhall_rate_decisions_total",
		Help: "Calls that a rate limit allowed or refused.",
	}, []string{"outcome"})
	m := &metrics{
		allowed: decisions.WithLabelValues("allowed"),
		limited: decisions.WithLabelValues("limited"),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "guildhall_rate_redis_failures_total",
			Help: "Calls to Redis that failed or took longer than their budget.",
		}),
		degraded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "guildhall_rate_degraded_total",
			Help: "Decisions this node made alone because Redis was away.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	state := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "guildhall_rate_degraded",
		Help: "1 while this node counts alone although Redis is configured.",
	}, func() float64 {
		if l.Degraded() {
			return 1
		}
		return 0
	})
	return m, errors.Join(reg.Register(decisions), reg.Register(m.failures), reg.Register(m.degraded), reg.Register(state))
}

func (m *metrics) count(allowed bool) {
	if allowed {
		m.allowed.Inc()
	} else {
		m.limited.Inc()
	}
}

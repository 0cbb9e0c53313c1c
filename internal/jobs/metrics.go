package jobs

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics is what operators see of the background work.
type metrics struct {
	jobs   *prometheus.CounterVec
	sweeps *prometheus.CounterVec
	oldest *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) (metrics, error) {
	m := metrics{
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "guildhall_jobs_total", Help: "Attempts of jobs, by kind and outcome: done, failed (tried again) or given_up.",
		}, []string{"kind", "outcome"}),
		sweeps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "guildhall_sweeps_total", Help: "Runs of the sweeps, by name and outcome: done or failed.",
		}, []string{"sweep", "outcome"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "guildhall_jobs_oldest_seconds", Help: "Age of the oldest unfinished job of a kind, over all nodes.",
		}, []string{"kind"}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.jobs), reg.Register(m.sweeps), reg.Register(m.oldest))
}

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

// newMetrics makes the series of all work from the start, so that the first
// failure is a step from 0.
func newMetrics(reg prometheus.Registerer, work []Work, sweeps []Sweep) (metrics, error) {
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
	for _, w := range work {
		for _, outcome := range []string{"done", "failed", "given_up"} {
			m.jobs.WithLabelValues(w.kind, outcome)
		}
		m.oldest.WithLabelValues(w.kind)
	}
	for _, s := range sweeps {
		for _, outcome := range []string{"done", "failed"} {
			m.sweeps.WithLabelValues(s.Name, outcome)
		}
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.jobs), reg.Register(m.sweeps), reg.Register(m.oldest))
}

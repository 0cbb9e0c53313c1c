package jobs

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics is what operators see of the background work.
type metrics struct {
	jobs   *prometheus.CounterVec
	sweeps *prometheus.CounterVec
	oldest *prometheus.GaugeVec
}

// newMetrics makes the series of all work from the start, so that the first
// failure is a step from 0.
func newMetrics(reg prometheus.Registerer, work []Work, sweeps []Sweep) metrics {
	made := promauto.With(reg)
	m := metrics{
		jobs: made.NewCounterVec(prometheus.CounterOpts{
			Name: "guildhall_jobs_total", Help: "Attempts of jobs, by kind and outcome: done, failed (tried again) or given_up.",
		}, []string{"kind", "outcome"}),
		sweeps: made.NewCounterVec(prometheus.CounterOpts{
			Name: "guildhall_sweeps_total", Help: "Runs of the sweeps, by name and outcome: done or failed.",
		}, []string{"sweep", "outcome"}),
		oldest: made.NewGaugeVec(prometheus.GaugeOpts{
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
	return m
}

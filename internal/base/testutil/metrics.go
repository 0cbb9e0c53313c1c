package testutil

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric returns the sum of a metric's samples that have all the given labels, written as
// name=value.
func Metric(t Test, from prometheus.Gatherer, name string, labels ...string) (sum float64) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var has []string
			for _, l := range m.GetLabel() {
				has = append(has, l.GetName()+"="+l.GetValue())
			}
			lacks := slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(has, l) })
			if f.GetName() == name && !lacks {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
			}
		}
	}
	return sum
}

// Sample returns the value of a metric that has exactly one sample.
func Sample(t Test, of prometheus.Collector) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(of)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
		t.Fatalf("gathered %v, %v", families, err)
	}
	m := families[0].GetMetric()[0]
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
}

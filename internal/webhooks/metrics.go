package webhooks

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/db"
)

// metrics is what operators see of the deliveries. Counters are this node's;
// the gauges of the backlog are of the whole database, equal on all nodes.
type metrics struct {
	attempts *prometheus.CounterVec
	duration prometheus.Histogram
	delay    prometheus.Histogram
	expired  prometheus.Counter
	late     prometheus.Counter
	units    *prometheus.HistogramVec
	oldest   *prometheus.GaugeVec
	waiting  *prometheus.GaugeVec
	hosts    *prometheus.GaugeVec
}

// The states of the backlog that the gauges tell apart.
const (
	gaugeDue       = "due"       // could be sent now
	gaugeThrottled = "throttled" // is due, but its endpoint is blocked or quiet
	gaugeScheduled = "scheduled" // waits for its next attempt
	gaugeHeld      = "held"      // waits for its endpoint to be enabled
)

// The units of work the deliverer opens.
const (
	unitClaim  = "claim"
	unitSettle = "settle"
)

func newMetrics(reg prometheus.Registerer, p *pace) (*metrics, error) {
	const ns, sub = "guildhall", "webhook"
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "attempts_total", Help: "Attempts to deliver, by what became of them.",
		}, []string{"outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "attempt_duration_seconds", Help: "How long attempts took.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15},
		}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "first_attempt_delay_seconds", Help: "From an event to the end of the first attempt to deliver it.",
			Buckets: []float64{.005, .01, .02, .05, .1, .15, .25, .5, 1, 5, 15, 60},
		}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "lease_expiries_total", Help: "Deliveries taken over from a worker that died or froze.",
		}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "late_results_total", Help: "Attempts whose lease was lost before they were settled.",
		}),
		units: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "transaction_duration_seconds", Help: "How long the deliverer's transactions took, by kind.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, 1, 5},
		}, []string{"kind"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "oldest_delivery_seconds", Help: "How long the oldest delivery of a state has been due.",
		}, []string{"state"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "deliveries_waiting", Help: "Deliveries not settled, by state.",
		}, []string{"state"}),
		hosts: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "endpoints", Help: "Endpoints that need attention, by why.",
		}, []string{"state"}),
	}
	for _, o := range outcomes {
		m.attempts.WithLabelValues(string(o))
	}
	if reg == nil {
		return m, nil
	}
	slots := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: ns, Subsystem: sub, Name: "slots_in_use", Help: "Sends under way on this node.",
	}, func() float64 { return float64(p.inUse()) })
	for _, c := range []prometheus.Collector{m.attempts, m.duration, m.delay, m.expired, m.late, m.units, m.oldest, m.waiting, m.hosts, slots} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) claimed(rows []claimed, took time.Duration) {
	m.units.WithLabelValues(unitClaim).Observe(took.Seconds())
	for _, c := range rows {
		if c.Expired {
			m.expired.Inc()
		}
	}
}

func (m *metrics) attempted(c claimed, v verdict, took time.Duration) {
	if !v.Logged {
		return
	}
	m.attempts.WithLabelValues(string(v.Outcome)).Inc()
	m.duration.Observe(took.Seconds())
	if c.Attempts == 0 {
		m.delay.Observe((c.Now.Sub(c.OccurredAt) + took).Seconds())
	}
}

func (m *metrics) settled(late int, took time.Duration) {
	m.units.WithLabelValues(unitSettle).Observe(took.Seconds())
	m.late.Add(float64(late))
}

// backlog is one line of the gauges.
type backlog struct {
	State  string   `db:"state"`
	Count  int      `db:"count"`
	Oldest *float64 `db:"oldest"`
}

// measure reads the gauges from the database.
func (d *Deliverer) measure(ctx context.Context) error {
	var rows []backlog
	var hosts struct {
		Failing  int `db:"failing"`
		Blocked  int `db:"blocked"`
		Disabled int `db:"disabled"`
	}
	err := d.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		err := tx.SelectContext(ctx, &rows, `
			SELECT state, count(*) AS count, greatest(extract(epoch FROM coalesce($1::timestamptz, now()) - min(due_at)), 0)::float8 AS oldest
			FROM (
				SELECT d.due_at,
				       CASE
				           WHEN d.state = 'held' THEN 'held'
				           WHEN d.due_at > coalesce($1::timestamptz, now()) THEN 'scheduled'
				           WHEN greatest(h.blocked_until, h.quiet_until) > coalesce($1::timestamptz, now()) THEN 'throttled'
				           ELSE 'due'
				       END AS state
				FROM webhook_deliveries d
				LEFT JOIN webhook_health h ON h.guild_id = d.guild_id AND h.endpoint_id = d.endpoint_id
				WHERE d.state IN ('pending', 'held')
			) d
			GROUP BY state`, d.now())
		if err != nil {
			return fmt.Errorf("measure the backlog: %w", err)
		}
		err = tx.GetContext(ctx, &hosts, `
			SELECT count(*) FILTER (WHERE h.failing_since IS NOT NULL AND e.enabled) AS failing,
			       count(*) FILTER (WHERE h.blocked_until > coalesce($1::timestamptz, now()) AND e.enabled) AS blocked,
			       count(*) FILTER (WHERE NOT e.enabled AND e.disabled_reason IS NOT NULL) AS disabled
			FROM webhook_endpoints e
			JOIN webhook_health h ON h.guild_id = e.guild_id AND h.endpoint_id = e.id`, d.now())
		if err != nil {
			return fmt.Errorf("measure the endpoints: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, state := range []string{gaugeDue, gaugeThrottled, gaugeScheduled, gaugeHeld} {
		line := backlog{State: state}
		for _, r := range rows {
			if r.State == state {
				line = r
			}
		}
		d.metrics.waiting.WithLabelValues(state).Set(float64(line.Count))
		oldest := 0.0
		if line.Oldest != nil {
			oldest = *line.Oldest
		}
		d.metrics.oldest.WithLabelValues(state).Set(oldest)
	}
	d.metrics.hosts.WithLabelValues("failing").Set(float64(hosts.Failing))
	d.metrics.hosts.WithLabelValues("blocked").Set(float64(hosts.Blocked))
	d.metrics.hosts.WithLabelValues("disabled").Set(float64(hosts.Disabled))
	return nil
}

package delivery

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// metrics are the metrics of deliveries. The counters are of this node; the gauges of the backlog
// are of the whole database, and so equal on all nodes.
type metrics struct {
	attempts   *prometheus.CounterVec
	duration   prometheus.Histogram
	delay      prometheus.Histogram
	expired    prometheus.Counter
	late       prometheus.Counter
	unreadable prometheus.Counter
	units      *prometheus.HistogramVec
	oldest     *prometheus.GaugeVec
	waiting    *prometheus.GaugeVec
	hosts      *prometheus.GaugeVec
	overflow   *prometheus.GaugeVec
}

// The states of waiting deliveries, as the gauges show them.
const (
	gaugeDue       = "due"       // can be sent now
	gaugeThrottled = "throttled" // due, but the endpoint is blocked or has asked for a pause
	gaugeScheduled = "scheduled" // the delivery waits for its next attempt
	gaugeHeld      = "held"      // the delivery waits until its endpoint is enabled

	gaugePull = "pull" // waits to be fetched; counted with the other states, but not shown
)

// The names of the deliverer's units of work.
const (
	unitClaim  = "claim"
	unitRecord = "record"
)

func newMetrics(reg prometheus.Registerer, l *limiter, w *egressHealth) *metrics {
	const ns, sub = "guildhall", "webhook"
	made := promauto.With(reg)
	m := &metrics{
		attempts: made.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "attempts_total", Help: "Attempts to deliver, by what became of them.",
		}, []string{"outcome"}),
		duration: made.NewHistogram(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "attempt_duration_seconds", Help: "How long attempts took.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15},
		}),
		delay: made.NewHistogram(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "first_attempt_delay_seconds", Help: "From an event to the end of the first attempt to deliver it.",
			Buckets: []float64{.005, .01, .02, .05, .1, .15, .25, .5, 1, 5, 15, 60},
		}),
		expired: made.NewCounter(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "lease_expiries_total", Help: "Deliveries taken over from a worker that died or froze.",
		}),
		late: made.NewCounter(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "late_results_total", Help: "Attempts whose lease was lost before their result was recorded.",
		}),
		unreadable: made.NewCounter(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "unreadable_secrets_total", Help: "Deliveries put off because the endpoint's signing secret could not be read.",
		}),
		units: made.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "transaction_duration_seconds", Help: "How long the deliverer's transactions took, by kind.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, 1, 5},
		}, []string{"kind"}),
		oldest: made.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "oldest_delivery_seconds", Help: "How long the oldest delivery of a state has been due; of those due now, since a worker looked at its endpoint.",
		}, []string{"state"}),
		waiting: made.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "deliveries_waiting", Help: "Deliveries that are neither delivered nor failed, by state.",
		}, []string{"state"}),
		hosts: made.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "endpoints", Help: "Endpoints that need attention, by why.",
		}, []string{"state"}),
		overflow: made.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Subsystem: sub, Name: "overflow_timestamp_seconds",
			Help: "When this node last deleted deliveries of an endpoint, or of a stream in a guild, since too many waited.",
		}, []string{"guild", "endpoint"}),
	}
	for _, o := range outcomes {
		m.attempts.WithLabelValues(string(o))
	}
	made.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: ns, Subsystem: sub, Name: "slots_in_use", Help: "Sends under way on this node.",
	}, func() float64 { return float64(l.inUse()) })
	made.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: ns, Subsystem: sub, Name: "egress_broken",
		Help: "1 while this node has tried at least two hosts in ten minutes and none gave an HTTP answer.",
	}, func() float64 {
		if w.broken(time.Now()) {
			return 1
		}
		return 0
	})
	return m
}

func (m *metrics) claimed(rows []claimed, took time.Duration) {
	m.units.WithLabelValues(unitClaim).Observe(took.Seconds())
	for _, c := range rows {
		if c.Expired {
			m.expired.Inc()
		}
	}
}

func (m *metrics) attempted(c claimed, v decision, took time.Duration) {
	if !v.Logged {
		return
	}
	m.attempts.WithLabelValues(string(v.Outcome)).Inc()
	m.duration.Observe(took.Seconds())
	if c.Attempts == 0 && c.Cause != "redelivery" { // the event of a redelivery may be weeks old
		m.delay.Observe((c.Now.Sub(c.OccurredAt) + took).Seconds())
	}
}

func (m *metrics) recorded(late int, took time.Duration) {
	m.units.WithLabelValues(unitRecord).Observe(took.Seconds())
	m.late.Add(float64(late))
}

// gaugeLimit bounds the deliveries that the gauges count. For larger numbers, the gauges show the
// database's estimate.
const gaugeLimit = 10_000

// gaugeParts are the parts of the gauges' statements that look up one row for each other row: the
// oldest delivery of an endpoint f, and the schedule of a delivery d.
type gaugeParts struct{ oldest, schedule string }

var (
	byLookup = gaugeParts{
		oldest: `CROSS JOIN LATERAL (
		               SELECT w.due_at FROM webhook_deliveries w
		               WHERE w.state = 'pending' AND w.guild_id = f.guild_id AND w.endpoint_id = f.endpoint_id
		               ORDER BY w.due_at, w.id LIMIT 1) w`,
		schedule: `LEFT JOIN LATERAL (
			SELECT disposition, not_before
			FROM webhook_schedule s
			WHERE s.guild_id = d.guild_id AND s.endpoint_id = d.endpoint_id
			LIMIT 1
		) s ON true`,
	}
	// A coordinator does not support LIMIT for each row. So the statement reads all waiting
	// deliveries of blocked endpoints, and skips a delivery whose endpoint has no schedule yet.
	byJoin = gaugeParts{
		oldest:   `JOIN webhook_deliveries w ON w.state = 'pending' AND w.guild_id = f.guild_id AND w.endpoint_id = f.endpoint_id`,
		schedule: `JOIN webhook_schedule s ON s.guild_id = d.guild_id AND s.endpoint_id = d.endpoint_id`,
	}
)

// besides returns the gaugeParts for a database.
func besides(d *db.DB) gaugeParts {
	if d.Distributed() {
		return byJoin
	}
	return byLookup
}

// measure updates the gauges. The number of rows that measure reads does not depend on the number
// of waiting deliveries, except on a coordinator (OldestDue): the counts are of gaugeLimit
// deliveries at most, and the ages come from the first entries of indexes and from a bounded number
// of schedules.
func (d *Deliverer) measure(ctx context.Context) error {
	q := d.db.Reader()
	counts, err := d.countWaiting(ctx, q)
	if err != nil {
		return err
	}
	due, err := oldestDue(ctx, q, d.db.Distributed(), d.now())
	if err != nil {
		return err
	}
	type measured struct {
		Throttled float64 `db:"throttled"`
		Held      float64 `db:"held"`
		Failing   int     `db:"failing"`
		Blocked   int     `db:"blocked"`
		Disabled  int     `db:"disabled"`
	}
	ages, err := db.Get[measured](ctx, q, `
		WITH failing AS MATERIALIZED (
			SELECT guild_id, endpoint_id, not_before > coalesce($1::timestamptz, now()) AS blocked
			FROM webhook_schedule
			WHERE `+Failing+`
			ORDER BY failing_since
			LIMIT $2
		)
		SELECT coalesce(extract(epoch FROM coalesce($1::timestamptz, now()) - (
		           SELECT min(w.due_at)
		           FROM (SELECT guild_id, endpoint_id FROM failing WHERE blocked LIMIT 1000) f
		           `+besides(d.db).oldest+`)), 0)::float8 AS throttled,
		       coalesce(extract(epoch FROM coalesce($1::timestamptz, now()) - (
		           SELECT min(w.event_at) FROM webhook_deliveries w WHERE w.state = 'held')), 0)::float8 AS held,
		       (SELECT count(*) FROM failing) AS failing,
		       (SELECT count(*) FROM failing WHERE blocked) AS blocked,
		       (SELECT count(*) FROM webhook_endpoints WHERE `+SwitchedOff+`) AS disabled`, d.now(), gaugeLimit)
	if err != nil {
		return fault.Wrap(err, "measure the endpoints")
	}
	for state, oldest := range map[string]float64{gaugeDue: due.Seconds(), gaugeThrottled: ages.Throttled, gaugeScheduled: 0, gaugeHeld: ages.Held} {
		d.metrics.waiting.WithLabelValues(state).Set(counts[state])
		d.metrics.oldest.WithLabelValues(state).Set(max(oldest, 0))
	}
	d.metrics.hosts.WithLabelValues("failing").Set(float64(ages.Failing))
	d.metrics.hosts.WithLabelValues("blocked").Set(float64(ages.Blocked))
	d.metrics.hosts.WithLabelValues("disabled").Set(float64(ages.Disabled))
	return nil
}

// dueLimit bounds the endpoints of each kind that oldestDue reads.
const dueLimit = 1000

// OldestDue returns the age of the oldest due delivery that no worker has taken although nothing
// prevents it: the delivery is urgent, or the endpoint's last attempt succeeded and the endpoint
// has not asked for a pause, or the worker that leased the delivery has died. OldestDue returns
// zero if there is no such delivery, and one or two seconds while the workers keep up, however slow
// the receivers are. The number of rows read is bounded, except on a coordinator, where it grows
// with the deliveries that no worker has taken.
func OldestDue(ctx context.Context, d *db.DB) (time.Duration, error) {
	return oldestDue(ctx, d.Reader(), d.Distributed(), nil)
}

func oldestDue(ctx context.Context, q db.Querier, distributed bool, now *time.Time) (time.Duration, error) {
	// A claim that leaves deliveries of an endpoint makes the endpoint due again. So a fresh
	// delivery has been missed only if its endpoint is not due now.
	fresh, args := withFresh+`
		SELECT coalesce(extract(epoch FROM coalesce($4::timestamptz, now()) - min(w.due_at)), 0)::float8
		FROM fresh f
		LEFT JOIN LATERAL (
			SELECT s.lane, s.next_due, s.not_before
			FROM webhook_schedule s
			WHERE s.guild_id = f.guild_id AND s.endpoint_id = f.endpoint_id
			LIMIT 1
		) s ON true
		CROSS JOIN LATERAL (
			SELECT w.due_at
			FROM webhook_deliveries w
			WHERE w.state = 'pending' AND w.fresh AND w.guild_id = f.guild_id AND w.endpoint_id = f.endpoint_id
			  AND coalesce(s.next_due, 'infinity') > coalesce($4::timestamptz, now())
			  AND coalesce(s.lane, 1) < 2 AND coalesce(s.not_before, '-infinity') <= coalesce($4::timestamptz, now())
			ORDER BY w.due_at, w.id
			LIMIT 1
		) w`, []any{"", "", dueLimit, now}
	if distributed {
		fresh, args = `
		SELECT coalesce(extract(epoch FROM coalesce($1::timestamptz, now()) - min(w.due_at)), 0)::float8
		FROM webhook_deliveries w
		JOIN webhook_schedule s ON s.guild_id = w.guild_id AND s.endpoint_id = w.endpoint_id
		WHERE w.state = 'pending' AND w.fresh
		  AND coalesce(s.next_due, 'infinity') > coalesce($1::timestamptz, now())
		  AND s.lane < 2 AND coalesce(s.not_before, '-infinity') <= coalesce($1::timestamptz, now())`, []any{now}
	}
	passed, err := db.Get[float64](ctx, q, fresh, args...)
	if err != nil {
		return 0, fault.Wrap(err, "find the oldest delivery that nobody has taken")
	}
	queued, err := db.Get[float64](ctx, q, `
		SELECT coalesce(extract(epoch FROM coalesce($1::timestamptz, now()) - least(
		           (SELECT min(next_due) FROM webhook_schedule WHERE lane = 0 AND next_due <= coalesce($1::timestamptz, now())),
		           (
		               SELECT min(greatest(next_due, not_before))
		               FROM (
		                   SELECT next_due, not_before
		                   FROM webhook_schedule
		                   WHERE lane = 1 AND next_due <= coalesce($1::timestamptz, now())
		                     AND coalesce(not_before, '-infinity') <= coalesce($1::timestamptz, now())
		                   ORDER BY next_due
		                   LIMIT $2
		               ) s
		           ),
		           (SELECT min(lease_until) FROM webhook_deliveries WHERE state = 'pending' AND lease_until <= coalesce($1::timestamptz, now()))
		       )), 0)::float8`, now, dueLimit)
	if err != nil {
		return 0, fault.Wrap(err, "find the endpoint that has been due for longest")
	}
	return time.Duration(max(passed, queued, 0) * float64(time.Second)), nil
}

// countWaiting counts the waiting deliveries by state, up to gaugeLimit pending and gaugeLimit held
// deliveries; larger numbers are estimated from the database's statistics.
func (d *Deliverer) countWaiting(ctx context.Context, q db.Querier) (map[string]float64, error) {
	type counted struct {
		State string  `db:"state"`
		Count float64 `db:"count"`
	}
	rows, err := db.Select[counted](ctx, q, `
		SELECT CASE
		           WHEN s.disposition = 'pull' THEN 'pull'
		           WHEN s.disposition <> 'send' THEN 'held'
		           WHEN greatest(s.not_before, d.due_at) <= coalesce($1::timestamptz, now()) THEN 'due'
		           WHEN d.due_at <= coalesce($1::timestamptz, now()) THEN 'throttled'
		           ELSE 'scheduled'
		       END AS state, count(*)::float8 AS count
		FROM (SELECT guild_id, endpoint_id, due_at FROM webhook_deliveries WHERE state = 'pending' LIMIT $2) d
		`+besides(d.db).schedule+`
		GROUP BY 1
		UNION ALL
		SELECT 'held', count(*)::float8
		FROM (SELECT 1 FROM webhook_deliveries WHERE state = 'held' LIMIT $2) d
		UNION ALL
		SELECT c.relname, greatest(c.reltuples, 0)::float8
		FROM pg_class c
		WHERE c.oid IN ('webhook_deliveries_pending'::regclass, 'webhook_deliveries_held'::regclass)`, d.now(), gaugeLimit)
	if err != nil {
		return nil, fault.Wrap(err, "count what waits")
	}
	counts := make(map[string]float64)
	for _, r := range rows {
		counts[r.State] += r.Count
	}
	pending := counts[gaugePull] + counts[gaugeDue] + counts[gaugeThrottled] + counts[gaugeScheduled]
	if estimate := counts["webhook_deliveries_pending"]; pending >= gaugeLimit && estimate > pending {
		for _, state := range []string{gaugeDue, gaugeThrottled, gaugeScheduled} {
			counts[state] *= estimate / pending
		}
	}
	if counts[gaugeHeld] >= gaugeLimit {
		counts[gaugeHeld] = max(counts[gaugeHeld], counts["webhook_deliveries_held"])
	}
	return counts, nil
}

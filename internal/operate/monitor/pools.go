package monitor

import (
	"database/sql"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/base/db"
)

// Pools exports a database's connections and connection slots as metrics.
type Pools struct {
	db                         *db.DB
	open, used, waits, waiting *prometheus.Desc
	queued, refused            *prometheus.Desc
}

// NewPools returns the metrics of d, with user as a label.
func NewPools(user string, d *db.DB) *Pools {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("guildhall_db_"+name, help, append(labels, "pool"), prometheus.Labels{"user": user})
	}
	return &Pools{
		db:      d,
		open:    desc("connections", "Connections to Postgres."),
		used:    desc("connections_in_use", "Connections to Postgres in use."),
		waits:   desc("waits_total", "Times a connection had to be waited for."),
		waiting: desc("wait_seconds_total", "Time spent waiting for a connection."),
		queued:  desc("waiting", "Requests that wait for a connection."),
		refused: desc("refusals_total", "Requests refused because no connection became free for them: by their own token's share, or by the others'.", "by"),
	}
}

// Describe implements prometheus.Collector.
func (p *Pools) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, ch) }

// Collect implements prometheus.Collector.
func (p *Pools) Collect(ch chan<- prometheus.Metric) {
	s := p.db.Stats()
	p.collect(ch, "write", s.Write, s.Writes)
	p.collect(ch, "read", s.Read, s.Reads)
}

func (p *Pools) collect(ch chan<- prometheus.Metric, pool string, s sql.DBStats, slots db.SlotStats) {
	ch <- prometheus.MustNewConstMetric(p.open, prometheus.GaugeValue, float64(s.OpenConnections), pool)
	ch <- prometheus.MustNewConstMetric(p.used, prometheus.GaugeValue, float64(s.InUse), pool)
	ch <- prometheus.MustNewConstMetric(p.waits, prometheus.CounterValue, float64(slots.Waits), pool)
	ch <- prometheus.MustNewConstMetric(p.waiting, prometheus.CounterValue, slots.Waited.Seconds(), pool)
	ch <- prometheus.MustNewConstMetric(p.queued, prometheus.GaugeValue, float64(slots.Waiting), pool)
	ch <- prometheus.MustNewConstMetric(p.refused, prometheus.CounterValue, float64(slots.OwnShare), "token", pool)
	ch <- prometheus.MustNewConstMetric(p.refused, prometheus.CounterValue, float64(slots.Busy), "others", pool)
}

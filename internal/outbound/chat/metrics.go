package chat

import (
	"context"

	"github.com/disgoorg/disgo/rest"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics counts calls of the platform for operators.
type metrics struct {
	calls  *prometheus.CounterVec
	unsent *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	made := promauto.With(reg)
	m := &metrics{
		calls: made.NewCounterVec(prometheus.CounterOpts{
			Name: "guildhall_chat_calls_total",
			Help: "Calls to the chat platform by outcome: ok, refused (by the platform, lasting until somebody changes something there), rate_limited, failed.",
		}, []string{"outcome"}),
		unsent: made.NewCounterVec(prometheus.CounterOpts{
			Name: "guildhall_platform_messages_unsent_total",
			Help: "Calls to the chat platform that were not made, by reason: token, guild_budget, bot_budget, rate_limit, transport, or channel (another guild's).",
		}, []string{"reason"}),
	}
	for _, outcome := range []string{"ok", "refused", "rate_limited", "failed"} {
		m.calls.WithLabelValues(outcome)
	}
	for _, why := range []unsent{unsentToken, unsentGuild, unsentBot, unsentLimit, unsentTransport, unsentChannel} {
		m.unsent.WithLabelValues(string(why))
	}
	return m
}

// report counts the result of an attempt (nil: success), and logs a failure that lasts until
// somebody changes something on the platform.
func (d *Discord) report(ctx context.Context, c Channel, at *rest.CompiledEndpoint, f *Failure) {
	d.count(f)
	if f != nil && f.Lasting() {
		d.log.WarnContext(ctx, "the chat platform refuses a call", "call", at.Endpoint.Method+" "+at.Endpoint.Route,
			"guild_id", c.GuildID, "channel_id", c.ID, "error", f)
	}
}

// count counts the result of an attempt.
func (d *Discord) count(f *Failure) {
	switch {
	case f == nil:
		d.metrics.calls.WithLabelValues("ok").Inc()
	case f.unsent != "":
		d.metrics.unsent.WithLabelValues(string(f.unsent)).Inc()
	case f.Lasting():
		d.metrics.calls.WithLabelValues("refused").Inc()
	case f.Status == 429:
		d.metrics.calls.WithLabelValues("rate_limited").Inc()
	default:
		d.metrics.calls.WithLabelValues("failed").Inc()
	}
}

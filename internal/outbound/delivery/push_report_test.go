package delivery

import (
	"testing"
	"time"
)

// Egress of a node counts as broken if two hosts were tried within ten minutes and none has given
// an HTTP answer. Then no endpoint is reported as failing. The first failed attempt after an answer
// is reported.
func TestNothingIsReportedWhileEgressMayBeBroken(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var w egressHealth
	w.note("https://a.test/x", false, now)
	w.note("https://a.test/y", false, now)
	if w.broken(now) {
		t.Error("one host that does not answer counts as broken egress")
	}
	w.note("https://b.test/", false, now)
	if !w.broken(now) || w.broken(now.Add(egressWindow)) {
		t.Error("two hosts that do not answer count as broken egress for ten minutes")
	}
	w.note("https://c.test/", true, now)
	if w.broken(now) || w.broken(now.Add(egressWindow)) {
		t.Error("egress counts as broken though a host has answered")
	}
	since, s := now.Add(-time.Hour), schedule{GuildID: "g", EndpointID: "e", Disposition: "send", Now: now}
	s.FailingSince, s.Attempts, s.Failures = &since, 9, 9
	failed := []result{{
		GuildID: "g", EndpointID: "e", State: StatePending, Logged: true, Outcome: timedOut,
		decision: decision{Failing: true, Blocks: true}, url: "https://a.test/x",
	}}
	if learn([]schedule{s}, failed, true)[0].failing || !learn([]schedule{s}, failed, false)[0].failing {
		t.Error("an endpoint is reported while egress may be broken, or is not after that")
	}
}

package delivery

import (
	"fmt"
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
	// However many hosts do not answer, those that were tried last count.
	w = egressHealth{}
	for i := range 3000 {
		w.note(fmt.Sprintf("https://%d.test/", i%1500), false, now.Add(time.Duration(i)*time.Second))
	}
	if !w.broken(now.Add(3000 * time.Second)) {
		t.Error("1,500 hosts that do not answer for 50 minutes do not break the way out")
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

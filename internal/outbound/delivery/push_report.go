package delivery

import (
	"context"
	"net/url"
	"sync"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
)

const (
	// After reportAfter failed attempts in a row, over at least reportOver, webhook.failing is
	// emitted to the guild's other endpoints, at most once in reportEvery.
	reportAfter = 5
	reportOver  = 5 * time.Minute
	reportEvery = time.Hour

	// egressWindow is the time within which egress counts as broken if the node has tried two
	// hosts and none has given an HTTP answer of any kind.
	egressWindow = 10 * time.Minute
)

// egressHealth tracks whether any receiver answers this node: a failure that all
// receivers share may be caused by the installation.
type egressHealth struct {
	mu       sync.Mutex
	host     string    // host of the last attempt without an answer
	tried    time.Time // instant of that attempt
	before   time.Time // instant of the last attempt without an answer at another host
	answered time.Time // when any host last gave an HTTP answer
}

// note records an attempt at a URL, and whether an HTTP answer came.
func (w *egressHealth) note(to string, answered bool, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if answered {
		w.answered = now
		return
	}
	u, err := url.Parse(to)
	if err != nil {
		return
	}
	if u.Host != w.host {
		w.host, w.before = u.Host, w.tried
	}
	w.tried = now
}

// broken reports whether the installation may be at fault for failed attempts: two hosts were
// tried within egressWindow, and none answered.
func (w *egressHealth) broken(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	within := func(at time.Time) bool { return now.Sub(at) < egressWindow }
	return !within(w.answered) && within(w.tried) && within(w.before)
}

// report decides which events about an endpoint follow from a failed attempt at the given instant.
func (c *change) report(at time.Time) {
	if c.Reported || c.FailingSince == nil || c.Attempts < reportAfter || at.Sub(*c.FailingSince) < reportOver {
		return
	}
	if c.ReportedAt != nil && at.Sub(*c.ReportedAt) < reportEvery {
		return
	}
	c.Reported, c.ReportedAt, c.failing = true, &at, true
}

// emit records the events that follow from the changes of a batch, in the unit of work that stores
// the changes.
func (d *Deliverer) emit(ctx context.Context, tx *db.Tx, changes []change) error {
	for _, c := range changes {
		for _, e := range []struct {
			typ string
			is  bool
		}{{event.WebhookRecovered, c.recovered}, {event.WebhookFailing, c.failing}} {
			if !e.is {
				continue
			}
			if err := d.emitToOthers(ctx, tx, endpointID{c.GuildID, c.EndpointID}, e.typ, c.at); err != nil {
				return err
			}
		}
	}
	return nil
}

// emitToOthers records an event about an endpoint for the guild's other endpoints and the
// bot's streams.
func (d *Deliverer) emitToOthers(ctx context.Context, tx *db.Tx, id endpointID, typ string, at time.Time) error {
	if d.show == nil {
		return nil
	}
	data, err := d.show(ctx, tx, id.guild, id.endpoint)
	if err != nil {
		return fault.Wrap(err, "show endpoint", id.endpoint, "of guild", id.guild)
	}
	return event.RecordAbout(ctx, tx, event.System(id.guild).On(at), id.endpoint, typ, data)
}

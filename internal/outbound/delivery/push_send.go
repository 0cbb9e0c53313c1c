package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"guildhall/internal/outbound/egress"
)

const userAgent = "Service-Webhooks/1"

// result is the result of a claimed delivery before it is recorded.
type result struct {
	GuildID       string    `json:"guild_id"`
	ID            string    `json:"id"`
	EndpointID    string    `json:"endpoint_id"`
	LeaseGen      int       `json:"lease_gen"`
	State         string    `json:"state"`
	PauseMs       int64     `json:"pause_ms"`
	Step          int       `json:"step"`
	Logged        bool      `json:"logged"`
	Later         bool      `json:"later"` // no attempt was possible, and the delivery no longer ignores a pause
	StartedAt     time.Time `json:"started_at"`
	DurationMs    int64     `json:"duration_ms"`
	Outcome       outcome   `json:"outcome"`
	Status        *int      `json:"status"`
	ResponseClass *string   `json:"response_class"`
	Excerpt       *string   `json:"excerpt"`
	Error         *string   `json:"error"`
	Reason        *string   `json:"reason"` // reason of the failure, if there was no attempt

	decision decision
	url      string     // URL of the attempt
	quiet    *time.Time // end of the endpoint's pause, as the claim knew it
	suspect  bool       // the endpoint was not healthy at the claim

	recoveredAt *time.Time // copy of claimed.RecoveredAt
}

func (r result) id() endpointID { return endpointID{r.GuildID, r.EndpointID} }

// handle makes one attempt, or finds that no attempt is possible. handle always returns a result:
// any error is a decision on this delivery and affects no other.
func (d *Deliverer) handle(ctx context.Context, c claimed, started, at time.Time) result {
	v, response := d.attempt(ctx, c, at)
	took := time.Since(started)
	if d.limiter.end(c, v, started.Add(took)) {
		d.wakeups.addAll()
	}
	d.metrics.attempted(c, v, took)
	return newResult(c, v, response, at, took)
}

// attempt sends a delivery once, unless there is a reason not to send.
func (d *Deliverer) attempt(ctx context.Context, c claimed, at time.Time) (v decision, response egress.Response) {
	defer func() {
		if p := recover(); p != nil {
			d.log.Error("webhook attempt panicked", "delivery", c.ID, "panic", fmt.Sprint(p))
			v, response = d.schedule.judge(c.Step, internal, 0, d.jitter()), egress.Response{}
		}
	}()
	if v, ok := d.unsent(c); ok {
		return v, response
	}
	header := Headers(c.Type, c.ID, c.Attempts+1, c.OccurredAt)
	secrets, err := d.open(c, at)
	if err == nil {
		err = sign(header, secrets, c.EventID, at, c.Payload)
	}
	if err != nil {
		return d.unreadable(c, err), response
	}
	response = d.post(ctx, c, header)
	d.egressHealth.note(*c.URL, response.Status != 0, d.time())
	pause, _ := retryAfter(response.RetryAfter, d.time())
	return d.schedule.judge(c.Step, classify(response.Status, response.Err), pause, d.jitter()), response
}

// post sends a delivery, within the trace of the request that has recorded its event.
func (d *Deliverer) post(ctx context.Context, c claimed, header http.Header) egress.Response {
	ctx, span := d.tracer.Call(d.tracer.Continue(ctx, c.Trace), "webhook", c.Type)
	defer span.End()
	span.Inject(header)
	response := d.client.Post(ctx, *c.URL, header, c.Payload)
	span.Set("guildhall.guild_id", c.GuildID)
	span.Set("guildhall.endpoint_id", c.EndpointID)
	span.Set("guildhall.event_id", c.EventID)
	span.Set("guildhall.delivery_id", c.ID)
	span.SetInt("guildhall.attempt", c.Attempts+1)
	if response.Status != 0 {
		span.SetInt("http.response.status_code", response.Status)
	}
	if o := classify(response.Status, response.Err); o != delivered {
		span.Fail(string(o))
	}
	return response
}

// Headers returns the headers of an attempt, without the signature headers.
func Headers(eventType, deliveryID string, attempt int, occurredAt time.Time) http.Header {
	return http.Header{
		"Content-Type": {"application/json"},
		"User-Agent":   {userAgent},
		headerEvent:    {eventType},
		headerDelivery: {deliveryID},
		headerAttempt:  {strconv.Itoa(attempt)},
		headerSequence: {strconv.FormatInt(occurredAt.UnixMicro(), 10)},
	}
}

// unsent returns the decision on a delivery that must not be sent.
func (d *Deliverer) unsent(c claimed) (decision, bool) {
	switch {
	case time.Since(c.Locked) > beginWithin: // this process was frozen: the endpoint may be deleted by now
		return decision{State: StatePending, Step: c.Step}, true
	case c.URL == nil:
		return decision{State: StateFailed, Step: c.Step, Error: advice(endpointDeleted, 0, 0)}, true
	case !*c.Enabled && c.Cause != "test":
		return decision{State: StateHeld, Step: c.Step}, true
	case c.Now.Sub(c.OccurredAt) > keep:
		return decision{State: StateFailed, Step: c.Step, Error: errorExpired}, true
	case !json.Valid(c.Payload):
		return d.schedule.judge(c.Step, badPayload, 0, 0), true
	}
	return decision{}, false
}

// unreadable returns the decision if the endpoint's secret cannot be decrypted. The fault is the
// service's own: the delivery waits, no attempt is counted, and the log tells the operator.
func (d *Deliverer) unreadable(c claimed, err error) decision {
	d.metrics.unreadable.Inc()
	if d.quietly.Due(c.EndpointID, time.Now(), unreadablePause) {
		d.log.Error("the signing secret of a webhook endpoint cannot be read; its deliveries wait: is GUILDHALL_SECRET_KEY the one it was sealed with?",
			"guild", c.GuildID, "endpoint", c.EndpointID, "error", err)
	}
	return decision{State: StatePending, Step: c.Step, Quiet: unreadablePause}
}

// newResult combines an attempt and its decision into the form that is stored. If the attempt
// failed, newResult keeps the beginning of the response, because it often says why.
func newResult(c claimed, v decision, response egress.Response, at time.Time, took time.Duration) result {
	r := result{
		GuildID: c.GuildID, ID: c.ID, EndpointID: c.EndpointID, LeaseGen: c.LeaseGen,
		State: v.State, PauseMs: v.Pause.Milliseconds(), Step: v.Step,
		Logged: v.Logged, Later: !v.Logged && v.Quiet > 0, StartedAt: at, DurationMs: took.Milliseconds(), Outcome: v.Outcome,
		decision: v, quiet: c.Quiet, suspect: c.Suspect, recoveredAt: c.RecoveredAt,
	}
	if c.URL != nil {
		r.url = *c.URL
	}
	if response.Status != 0 {
		r.Status = &response.Status
	}
	if response.Status != 0 && v.Outcome != delivered {
		r.Excerpt = &response.Excerpt
	}
	if v.Logged {
		class := responseClass(response.Status)
		r.ResponseClass = &class
	}
	if text := advice(v.Outcome, response.Status, v.Quiet); text != "" {
		r.Error = &text
	}
	if v.Error != "" {
		r.Reason = &v.Error
	}
	return r
}

// responseClass returns the class of a status, as the log's filter names it.
func responseClass(status int) string {
	if status < 200 || status > 599 {
		return "none"
	}
	return strconv.Itoa(status/100) + "xx"
}

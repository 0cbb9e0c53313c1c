package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/event"
	"guildhall/internal/server/failure"
	"guildhall/internal/service/webhooks"
)

// sendQuota is the limit of tests, redeliveries and recoveries for one guild.
var sendQuota = ratelimit.Quota{Limit: 30, Window: time.Minute}

const (
	deliveriesPage = 20
	// testTimeout is how long the page of a test waits for the first attempt.
	testTimeout = 8 * time.Second
	// recoverBack is how far back a recovery may reach, because older events are deleted.
	recoverBack = 30 * 24 * time.Hour
)

// testWebhook sends a test event and waits shortly for the receiver's response.
func testWebhook(c *call, e endpointRow) (reply, error) {
	if err := c.sending(); err != nil {
		return reply{}, err
	}
	ctx, err := c.acting()
	if err != nil {
		return reply{}, err
	}
	id, err := webhooks.SendPing(ctx, c.cfg.DB, c.guild.ID, e.ID)
	if err != nil {
		return reply{}, err
	}
	c.wake()
	if e.Pull() {
		return c.back(c.path("webhooks", e.ID, "deliveries", id), "A ping waits to be fetched."), nil
	}
	if ping := c.awaitAttempt(e.ID, id); ping.State == delivery.StateDelivered && e.Waiting > 0 {
		return c.back(c.path("webhooks", e.ID, "deliveries", id), "The ping has arrived. What has waited is being sent: %s.", e.Upto(e.Waiting)), nil
	}
	return c.back(c.path("webhooks", e.ID, "deliveries", id), "A ping was sent; this is what became of it."), nil
}

// sending takes one from the guild's bucket of tests and redeliveries.
func (c *call) sending() error {
	if r := c.cfg.Limits.Spend(c.ctx, "dashboard:send:"+c.guild.ID, sendQuota); !r.Allowed {
		return fault.New(fault.Limited, "rate_limited", "This server has sent %d tests and redeliveries within a minute. Try again in %d seconds.",
			sendQuota.Limit, failure.Seconds(r.RetryAfter)).After(max(r.RetryAfter, time.Second))
	}
	return nil
}

// awaitAttempt waits until the first attempt of a delivery is made, at most testTimeout. The next
// page reloads itself and shows any error.
func (c *call) awaitAttempt(endpoint, id string) webhooks.Logged {
	ctx, cancel := context.WithTimeout(c.ctx, testTimeout)
	defer cancel()
	d, _ := webhooks.AwaitAttempt(ctx, c.cfg.DB.Reader(), c.guild.ID, endpoint, id)
	return d
}

func (c *call) wake() {
	if c.cfg.Wake != nil {
		c.cfg.Wake(c.guild.ID)
	}
}

func redeliver(c *call, e endpointRow) (reply, error) {
	if err := c.sending(); err != nil {
		return reply{}, err
	}
	ctx, err := c.acting()
	if err != nil {
		return reply{}, err
	}
	id, err := webhooks.SendAgain(ctx, c.cfg.DB, c.guild.ID, e.ID, c.r.PathValue("delivery"))
	if err != nil {
		return reply{}, err
	}
	c.wake()
	if e.Pull() {
		return c.back(c.path("webhooks", e.ID, "deliveries", id), "The event can be fetched once more, under the same event id."), nil
	}
	c.awaitAttempt(e.ID, id)
	return c.back(c.path("webhooks", e.ID, "deliveries", id), "The event was queued once more, under the same event id."), nil
}

type recoverView struct {
	Endpoint endpointRow
	Since    string    // as the person typed it
	From     time.Time // as it was parsed
	Count    int
	checked
}

const sinceWrong = "Write a time of the last 30 days in UTC, as in 2026-05-01T08:00."

// previewRecovery shows how many events a recovery would send, before the person starts the
// recovery.
func previewRecovery(c *call, e endpointRow) (reply, error) {
	v := &recoverView{Endpoint: e, Since: strings.TrimSpace(c.r.URL.Query().Get("since"))}
	status := 0
	var ok bool
	var err error
	if v.From, ok = c.since(v.Since); !ok {
		v.Problems.add("since", sinceWrong)
		status = http.StatusUnprocessableEntity
	} else if v.Count, err = webhooks.CountLost(c.ctx, c.cfg.DB.Reader(), c.guild.ID, e.ID, v.From); err != nil {
		return reply{}, err
	}
	return reply{status: status, page: "recover", view: v, frame: frame{
		Title: "Recover", Tab: "webhooks", Crumbs: []crumb{{"Webhooks", c.path("webhooks")}, {e.URL, c.path("webhooks", e.ID)}},
	}}, nil
}

// since parses the instant of a recovery: in the format of a form field, or RFC 3339.
func (c *call) since(text string) (time.Time, bool) {
	t, ok := instantOf(text)
	return t, ok && t.Before(c.now()) && c.now().Sub(t) <= recoverBack+time.Hour
}

func recoverWebhook(c *call, e endpointRow) (reply, error) {
	since, ok := c.since(strings.TrimSpace(c.form.Get("since")))
	if !ok {
		v := &recoverView{Endpoint: e, Since: c.form.Get("since")}
		v.Problems.add("since", sinceWrong)
		return reply{status: http.StatusUnprocessableEntity, page: "recover", view: v, frame: frame{Title: "Recover", Tab: "webhooks"}}, nil
	}
	if err := c.sending(); err != nil {
		return reply{}, err
	}
	ctx, err := c.acting()
	if err != nil {
		return reply{}, err
	}
	n, err := webhooks.Requeue(ctx, c.cfg.DB, c.guild.ID, e.ID, since)
	if err != nil {
		return reply{}, err
	}
	c.wake()
	if n == 1 {
		return c.back(c.path("webhooks", e.ID), "1 failed delivery is queued again."), nil
	}
	return c.back(c.path("webhooks", e.ID), "%s failed deliveries are queued again.", number(n)), nil
}

// webhookView is the page of one endpoint with its deliveries.
type webhookView struct {
	Endpoint   endpointRow
	Maker      maker
	Deliveries []deliveryRow
	Filter     webhooks.Filter
	Since      string
	Types      []string
	Next       string
	Typed      string
	RecoverAt  string
	Views      bool // the list has the views Tried and All
	checked
}

type deliveryRow struct{ webhooks.Logged }

// Tried reports whether the delivery may be sent again: an attempt was made, or the delivery is
// complete. A delivery that still waits for its first attempt would only be sent twice.
func (d deliveryRow) Tried() bool {
	return d.Attempts > 0 || d.State == delivery.StateDelivered || d.State == delivery.StateFailed
}

// Answer returns the receiver's response, or why there was none.
func (d deliveryRow) Answer() string {
	switch {
	case d.Status != nil:
		return strconv.Itoa(*d.Status)
	case d.Error != nil:
		return "none"
	default:
		return "–"
	}
}

func showWebhook(c *call, e endpointRow) (reply, error) {
	v, err := c.webhookView(e)
	if err != nil {
		return reply{}, err
	}
	return c.webhookPage(v, 0), nil
}

// webhookPage returns the page of an endpoint. The page reloads itself while it is open, except as
// the response to a form: the address of the form cannot be reloaded.
func (c *call) webhookPage(v *webhookView, status int) reply {
	return reply{status: status, page: "webhook", view: v, frame: frame{
		Title: v.Endpoint.URL, Tab: "webhooks", Live: status == 0, Crumbs: []crumb{{"Webhooks", c.path("webhooks")}},
	}}
}

func (c *call) webhookView(e endpointRow) (*webhookView, error) {
	q := c.r.URL.Query()
	v := &webhookView{
		Endpoint: e, Since: q.Get("since"), Types: append(slices.Clone(event.Types), event.Ping),
		RecoverAt: c.now().UTC().Add(-24 * time.Hour).Format("2006-01-02T15:04"),
		Filter:    webhooks.Filter{EventType: q.Get("event_type"), BelowID: q.Get("below")},
	}
	if s := q.Get("status"); slices.Contains(webhooks.Statuses, s) {
		v.Filter.Status = s
	}
	if s := q.Get("response_class"); slices.Contains(webhooks.ResponseClasses, s) {
		v.Filter.ResponseClass = s
	}
	if since, ok := c.since(v.Since); ok {
		v.Filter.Since = since
	}
	if at, err := time.Parse(time.RFC3339Nano, q.Get("below_at")); err == nil {
		v.Filter.BelowAt = at
	} else {
		v.Filter.BelowID = ""
	}
	if v.Views = !e.Pull() && v.Filter.Status == "" && v.Filter.EventType == "" && v.Filter.ResponseClass == ""; v.Views {
		view := q.Get("view")
		v.Filter.Tried = view == "tried" || view != "all" && e.State() == webhooks.HealthFailing
	}
	var err error
	if v.Maker, err = c.maker(audit.WebhookCreated, e.ID); err != nil {
		return nil, err
	}
	rows, err := webhooks.Log(c.ctx, c.cfg.DB.Reader(), c.guild.ID, e.ID, v.Filter, deliveriesPage+1)
	if err != nil {
		return nil, err
	}
	if len(rows) > deliveriesPage {
		rows = rows[:deliveriesPage]
		last := rows[deliveriesPage-1]
		next := url.Values{"below": {last.ID}, "below_at": {last.CreatedAt.UTC().Format(time.RFC3339Nano)}}
		for _, name := range []string{"status", "event_type", "response_class", "since", "view"} {
			if q.Get(name) != "" {
				next.Set(name, q.Get(name))
			}
		}
		v.Next = "?" + next.Encode()
	}
	for _, r := range rows {
		v.Deliveries = append(v.Deliveries, deliveryRow{r})
	}
	return v, nil
}

// deliveryView is the page of one delivery with its attempts.
type deliveryView struct {
	Endpoint endpointRow
	Delivery deliveryRow
	Body     string // as it was sent
	Indented string // body with indentation; empty if it is the same as Body
	Headers  []string
	Tries    []webhooks.Attempt
	Curl     string
	// WaitsUntil is when the failing endpoint is tried next for which the delivery waits,
	// never tried itself; nil for any other delivery.
	WaitsUntil *time.Time
	Problem    string // one sentence on what went wrong and how to fix it
}

func showDelivery(c *call, e endpointRow) (reply, error) {
	d, body, tries, err := webhooks.Detail(c.ctx, c.cfg.DB.Reader(), c.guild.ID, e.ID, c.r.PathValue("delivery"))
	if err != nil {
		return reply{}, err
	}
	v := &deliveryView{Endpoint: e, Delivery: deliveryRow{d}, Body: string(body), Tries: tries}
	var indented bytes.Buffer
	if json.Indent(&indented, body, "", "  ") == nil && indented.String() != v.Body {
		v.Indented = indented.String()
	}
	headers := delivery.Headers(d.EventType, d.ID, max(1, d.Attempts), d.OccurredAt)
	headers["webhook-id"] = []string{d.EventID}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		v.Headers = append(v.Headers, name+": "+headers[name][0])
	}
	if !e.Pull() {
		v.Curl = "curl -X POST"
		for _, h := range v.Headers {
			v.Curl += " -H " + shellQuote(h)
		}
		v.Curl += " --data-raw " + shellQuote(v.Body) + " " + shellQuote(e.URL)
	}
	if d.State != delivery.StateDelivered && !e.Pull() {
		v.Problem = d.Problem()
	}
	if d.State == delivery.StatePending && d.Attempts == 0 && e.State() == webhooks.HealthFailing && !e.Pull() {
		v.WaitsUntil = e.Health.NextAttemptAt
	}
	return reply{page: "delivery", view: v, frame: frame{
		Title: d.EventType, Tab: "webhooks", Live: true, Crumbs: []crumb{{"Webhooks", c.path("webhooks")}, {e.URL, c.path("webhooks", e.ID)}},
	}}, nil
}

// shellQuote quotes a word for a POSIX shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

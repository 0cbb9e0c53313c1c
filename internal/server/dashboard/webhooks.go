package dashboard

import (
	"cmp"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/webhooks"
)

func (s *Server) webhookRoutes(guild func(string, handler)) {
	endpoint := func(pattern string, h endpointHandler) { guild(pattern, onEndpoint(h)) }
	const w = "/guilds/{guild}/webhooks"
	guild("GET "+w, listWebhooks)
	guild("GET "+w+"/new", newWebhook)
	guild("POST "+w, createWebhook)
	endpoint("GET "+w+"/{id}", showWebhook)
	endpoint("GET "+w+"/{id}/edit", editWebhook)
	endpoint("POST "+w+"/{id}/edit", changeWebhook)
	endpoint("POST "+w+"/{id}/enable", switchWebhook(true))
	endpoint("POST "+w+"/{id}/disable", switchWebhook(false))
	endpoint("GET "+w+"/{id}/disable", askToDisable)
	endpoint("GET "+w+"/{id}/rotate", askToRotate)
	endpoint("POST "+w+"/{id}/rotate", rotateWebhook)
	endpoint("POST "+w+"/{id}/end-old-secrets", endOldSecrets)
	endpoint("POST "+w+"/{id}/test", testWebhook)
	endpoint("GET "+w+"/{id}/recover", previewRecovery)
	endpoint("POST "+w+"/{id}/recover", recoverWebhook)
	endpoint("POST "+w+"/{id}/remove", removeWebhook)
	endpoint("GET "+w+"/{id}/deliveries/{delivery}", showDelivery)
	endpoint("POST "+w+"/{id}/deliveries/{delivery}/redeliver", redeliver)
}

// endpointHandler responds to a call about one of the guild's endpoints.
type endpointHandler func(*call, endpointRow) (reply, error)

// onEndpoint finds the endpoint in the path. An endpoint of another guild counts as missing, and so
// does a delivery of another endpoint.
func onEndpoint(next endpointHandler) handler {
	return func(c *call) (reply, error) {
		e, err := webhooks.StandingOf(c.ctx, c.cfg.DB.Reader(), c.guild.ID, c.r.PathValue("id"))
		if err != nil {
			return reply{}, notHere(err)
		}
		r, err := next(c, rowOf(e))
		return r, notHere(err)
	}
}

// endpointRow is an endpoint as the pages show it.
type endpointRow struct{ webhooks.Standing }

// rowOf returns s for the pages. A pull endpoint has no address, so its description, or a name made
// from its id, replaces the URL.
func rowOf(s webhooks.Standing) endpointRow {
	if s.Delivery == delivery.Pull {
		s.URL = "Pull endpoint " + s.ID[max(0, len(s.ID)-6):]
		if s.Description != nil && strings.TrimSpace(*s.Description) != "" {
			s.URL = strings.TrimSpace(*s.Description)
		}
	}
	return endpointRow{s}
}

// CalledBy returns the URL to which events are sent, or a name made from the id.
func (e endpointRow) CalledBy() string {
	if e.Pull() {
		return "name"
	}
	return "address"
}

// Pull reports whether the endpoint's events are fetched instead of sent.
func (e endpointRow) Pull() bool { return e.Delivery == delivery.Pull }

// State returns one word for the state of an endpoint.
func (e endpointRow) State() string {
	return e.Health.State
}

// ManyEvents reports whether the list of event types is collapsed, so that a phone shows what is
// below the list.
func (e endpointRow) ManyEvents() bool { return len(e.Events) > 8 }

// Open returns the number of waiting and held deliveries, of any age.
func (e endpointRow) Open() int { return e.Waiting + e.Held }

// Total returns the number of deliveries that the bar shows.
func (e endpointRow) Total() int { return e.Delivered + e.Failed + e.Open() }

// Sum returns Total as text, with the number of failed attempts.
func (e endpointRow) Sum() string {
	if e.Pull() {
		return number(e.Delivered) + " acknowledged, " + number(e.Failed) + " given up, " + e.Upto(e.Open()) + " waiting"
	}
	text := number(e.Delivered) + " delivered, " + number(e.Failed) + " failed, " + e.Upto(e.Open()) + " waiting"
	if e.FailedAttempts > 0 {
		text += "; failed attempts: " + number(e.FailedAttempts)
	}
	return text
}

// Upto returns a number as text, marked if the counting stopped at the number.
func (endpointRow) Upto(n int) string {
	if n >= 1000 {
		return number(n) + " or more"
	}
	return number(n)
}

// webhooksSummary holds counts of the guild's endpoints and of their deliveries.
type webhooksSummary struct {
	Total, Failing, Disabled int
	Delivered, Failed, Open  int
	FailedAttempts           int
	Unwell                   []endpointRow
}

func (c *call) webhooksSummary() (webhooksSummary, error) {
	rows, err := webhooks.Standings(c.ctx, c.cfg.DB.Reader(), c.guild.ID)
	if err != nil {
		return webhooksSummary{}, err
	}
	sum := webhooksSummary{Total: len(rows)}
	for _, r := range rows {
		row := rowOf(r)
		sum.Delivered, sum.Failed, sum.Open = sum.Delivered+r.Delivered, sum.Failed+r.Failed, sum.Open+row.Open()
		sum.FailedAttempts += r.FailedAttempts
		switch row.State() {
		case "failing":
			sum.Failing++
			sum.Unwell = append(sum.Unwell, row)
		case "disabled":
			sum.Disabled++
			sum.Unwell = append(sum.Unwell, row)
		}
	}
	return sum, nil
}

// webhooksView is the list of the guild's endpoints.
type webhooksView struct {
	Rows []endpointRow
	Full bool // the guild has the maximum number of endpoints
	Max  int
}

func listWebhooks(c *call) (reply, error) {
	rows, err := webhooks.Standings(c.ctx, c.cfg.DB.Reader(), c.guild.ID)
	if err != nil {
		return reply{}, err
	}
	v := webhooksView{Max: webhooks.MaxEndpoints, Full: len(rows) >= webhooks.MaxEndpoints}
	for _, r := range rows {
		v.Rows = append(v.Rows, rowOf(r))
	}
	return reply{page: "webhooks", view: v, frame: frame{Title: "Webhooks", Tab: "webhooks", Live: true}}, nil
}

// webhookForm is the form for an endpoint, as the person filled it in.
type webhookForm struct {
	ID, URL, Description string
	Pull                 bool
	Chosen               []string
	Enabled              bool
	Once                 string
	UpdatedAt            time.Time       // updated_at of the endpoint when the form was opened
	Changes              []webhookChange // changes that another person has saved meanwhile
	Full                 bool            // the guild has the maximum number of endpoints
	Max                  int
	Types                []EventSample
	checked
}

// webhookChange is a field whose stored value differs from the value in the form.
type webhookChange struct{ Field, Stored, Typed string }

// allEvents is the form value for all current types of events.
const allEvents = "all"

// Has reports whether the box of an event type is checked.
func (f *webhookForm) Has(event string) bool { return slices.Contains(f.Chosen, event) }

func newWebhook(c *call) (reply, error) {
	q := c.r.URL.Query()
	rows, err := webhooks.Standings(c.ctx, c.cfg.DB.Reader(), c.guild.ID)
	if err != nil {
		return reply{}, err
	}
	f := &webhookForm{
		URL: q.Get("url"), Description: q.Get("description"), Enabled: true, Once: rand.Text(), Chosen: wire.Items(q["events"]...),
		Pull: q.Get("delivery") == delivery.Pull, Full: len(rows) >= webhooks.MaxEndpoints,
	}
	return c.webhookForm(f, 0), nil
}

func (c *call) webhookForm(f *webhookForm, status int) reply {
	f.Types, f.Max = c.cfg.Events, webhooks.MaxEndpoints
	title, crumbs := "New endpoint", []crumb{{"Webhooks", c.path("webhooks")}}
	if f.ID != "" {
		title, crumbs = "Edit endpoint", append(crumbs, crumb{cmp.Or(f.URL, f.Description, "Endpoint"), c.path("webhooks", f.ID)})
	}
	return reply{status: status, page: "webhook-form", view: f, frame: frame{Title: title, Tab: "webhooks", Crumbs: crumbs}}
}

type secretView struct {
	ID, URL, Secret string
	Rotated         bool
	OldUntil        *time.Time // nil means that only this secret signs
}

func createWebhook(c *call) (reply, error) {
	f, settings := c.readWebhook()
	if len(f.Problems) > 0 {
		return c.webhookForm(f, http.StatusUnprocessableEntity), nil
	}
	ctx, err := c.acting()
	if err != nil {
		return reply{}, err
	}
	made, err := webhooks.Create(ctx, c.hooks(), onceDoer{c.cfg.DB, c.guild.ID, f.Once}, c.guild.ID, settings)
	if errors.Is(err, errMade) {
		return c.back(c.path("webhooks"), "This form was sent before, and its endpoint was made then. Its secret cannot be shown again; rotate it to get another."), nil
	}
	if err != nil {
		return c.refusedForm(f, err)
	}
	return c.secretPage(secretView{ID: made.ID, URL: made.URL, Secret: made.Secret}, http.StatusCreated), nil
}

// readWebhook reads and checks the form. The form of a pull endpoint has no address.
func (c *call) readWebhook() (*webhookForm, webhooks.Settings) {
	chosen := wire.Items(c.form["events"]...)
	if slices.Contains(chosen, allEvents) {
		chosen = slices.Clone(event.Types)
	}
	f := &webhookForm{
		ID: c.r.PathValue("id"), URL: strings.TrimSpace(c.form.Get("url")), Description: strings.TrimSpace(c.form.Get("description")),
		Chosen: chosen, Enabled: c.form.Get("enabled") != "" && c.form.Get("enabled") != "false", Once: c.form.Get("once"),
	}
	f.UpdatedAt, _ = time.Parse(time.RFC3339Nano, c.form.Get("updated_at")) // zero without a valid updated_at
	if f.Pull = c.form.Get("delivery") == delivery.Pull; f.Pull {
		f.URL = ""
	} else if f.URL == "" {
		f.Problems.add("url", "Say where the events are to be sent: an address that begins with https://.")
	} else if u, err := egress.ParseURL(f.URL); err != nil {
		f.Problems.add("url", "The address cannot be used: it %s.", err)
	} else if u.Scheme == "http" && !c.cfg.Webhooks.Guard.AllowsPlain() {
		f.Problems.add("url", "The address cannot be used: it must start with https://.")
	}
	if n := len([]rune(f.Description)); n > 200 {
		f.Problems.add("description", "The description has %d characters; at most 200 fit.", n)
	} else if !wire.OneLine(f.Description) || wire.HasUnseen(f.Description) {
		f.Problems.add("description", "The description holds characters that cannot be seen. Type it anew.")
	}
	if len(f.Chosen) == 0 {
		f.Problems.add("events", "Choose at least one event.")
	}
	for _, e := range f.Chosen {
		if !slices.Contains(event.Types, e) {
			f.Problems.add("events", "%q is not an event.", e)
		}
	}
	settings := webhooks.Settings{
		URL: f.URL, Description: f.Description, Events: f.Chosen, Enabled: f.Enabled, UnchangedSince: f.UpdatedAt,
	}
	if f.Pull && f.ID == "" {
		settings.Delivery = delivery.Pull
	}
	return f, settings
}

// refusedForm shows the errors of the service beside the form's fields.
func (c *call) refusedForm(f *webhookForm, err error) (reply, error) {
	fl, ok := fault.As(err)
	unresolved := errors.Is(err, egress.ErrLookup)
	if !ok || fl.Kind != fault.Invalid && fl.Kind != fault.Refused && !unresolved {
		return reply{}, notHere(err)
	}
	rest, form := strings.CutPrefix(fl.Message, "body /url: ")
	switch {
	case form:
		f.Problems.add("url", "The address cannot be used: it %s.", rest)
	case fl.Code == "webhook_url_not_allowed" || unresolved:
		f.Problems.add("url", "The address cannot be used. %s", fl.Message)
	default:
		f.Problems.add("main", "%s", fl.Message)
	}
	return c.webhookForm(f, http.StatusUnprocessableEntity), nil
}

func (c *call) secretPage(v secretView, status int) reply {
	title := "Endpoint registered"
	if v.Rotated {
		title = "Secret rotated"
	}
	return reply{status: status, page: "webhook-secret", view: v, frame: frame{
		Title: title, Tab: "webhooks", Crumbs: []crumb{{"Webhooks", c.path("webhooks")}},
	}}
}

// hooks returns the configuration for changing endpoints.
func (c *call) hooks() webhooks.Config {
	cfg := c.cfg.Webhooks
	cfg.DB = c.cfg.DB
	return cfg
}

func editWebhook(c *call, e endpointRow) (reply, error) {
	return c.webhookForm(formOf(e), 0), nil
}

// formOf returns the form filled with the stored settings of an endpoint.
func formOf(e endpointRow) *webhookForm {
	f := &webhookForm{ID: e.ID, URL: e.URL, Pull: e.Pull(), Chosen: e.Events, Enabled: e.Enabled, UpdatedAt: e.UpdatedAt}
	if e.Description != nil {
		f.Description = *e.Description
	}
	if f.Pull {
		f.URL = ""
	}
	return f
}

// changedForm shows the form together with the changes that another person has saved since the form
// was opened. Sending the form again overwrites those changes.
func (c *call) changedForm(f *webhookForm) (reply, error) {
	stored, err := webhooks.StandingOf(c.ctx, c.cfg.DB.Reader(), c.guild.ID, f.ID)
	if err != nil {
		return reply{}, notHere(err)
	}
	e := formOf(endpointRow{stored})
	f.UpdatedAt = e.UpdatedAt
	word := map[bool]string{true: "yes", false: "no"}
	for _, change := range []webhookChange{
		{"Address", e.URL, f.URL},
		{"Description", e.Description, f.Description},
		{"Events", strings.Join(e.Chosen, ", "), strings.Join(inOrder(f.Chosen), ", ")},
		{"Enabled", word[e.Enabled], word[f.Enabled]},
	} {
		if change.Stored != change.Typed {
			f.Changes = append(f.Changes, change)
		}
	}
	f.Problems.add("changes", "Somebody has changed this endpoint since you opened the form. Compare, and save again to replace what they saved.")
	return c.webhookForm(f, http.StatusConflict), nil
}

// inOrder returns the known event types of a form in the order in which they are stored.
func inOrder(chosen []string) []string {
	return slices.DeleteFunc(slices.Clone(event.Types), func(t string) bool { return !slices.Contains(chosen, t) })
}

func changeWebhook(c *call, e endpointRow) (reply, error) {
	f, settings := c.readWebhook()
	if len(f.Problems) > 0 {
		return c.webhookForm(f, http.StatusUnprocessableEntity), nil
	}
	if e.Enabled && !f.Enabled { // asks first, as the button does
		switch c.form.Get("disable") {
		case "yes":
		case "no":
			return webhookAgain(c), nil
		default:
			return c.disablePage(disableView{e, c.r.URL.EscapedPath(), c.sent()}), nil
		}
	}
	ctx, err := c.acting()
	if err != nil {
		return reply{}, err
	}
	err = webhooks.Change(ctx, c.hooks(), c.guild.ID, f.ID, settings)
	if errors.Is(err, webhooks.ErrChanged) {
		return c.changedForm(f)
	}
	if err != nil {
		return c.refusedForm(f, err)
	}
	return c.back(c.path("webhooks", f.ID), "The endpoint is changed."), nil
}

func switchWebhook(enabled bool) endpointHandler {
	return func(c *call, e endpointRow) (reply, error) {
		ctx, err := c.acting()
		if err != nil {
			return reply{}, err
		}
		if err := webhooks.Switch(ctx, c.hooks(), c.guild.ID, e.ID, enabled); err != nil {
			return reply{}, err
		}
		if !enabled {
			return c.back(c.path("webhooks", e.ID), "The endpoint is disabled. What happens from now on is not kept for it; what waits is held."), nil
		}
		released := "%s held deliveries go out now."
		switch one := e.Held == 1; {
		case e.Pull() && one:
			released = "%s held event can be fetched now."
		case e.Pull():
			released = "%s held events can be fetched now."
		case one:
			released = "%s held delivery goes out now."
		}
		return c.back(c.path("webhooks", e.ID), "The endpoint is enabled. "+released, e.Upto(e.Held)), nil
	}
}

// removeWebhook deletes an endpoint if the person has typed its address.
func removeWebhook(c *call, e endpointRow) (reply, error) {
	if typed := c.form.Get("confirm"); strings.TrimSpace(typed) != strings.TrimSpace(e.URL) {
		v, err := c.webhookView(e)
		if err != nil {
			return reply{}, err
		}
		v.Typed = typed
		v.Problems.add("confirm", "Type the endpoint's %s, %s, to remove it.", e.CalledBy(), visible(e.URL))
		return c.webhookPage(v, http.StatusUnprocessableEntity), nil
	}
	ctx, err := c.acting()
	if err != nil {
		return reply{}, err
	}
	if err := webhooks.Delete(ctx, c.cfg.DB, c.guild.ID, e.ID); err != nil {
		return reply{}, err
	}
	return c.back(c.path("webhooks"), "The endpoint is removed, with what waited for it."), nil
}

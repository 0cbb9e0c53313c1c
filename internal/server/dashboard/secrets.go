package dashboard

import (
	"crypto/rand"
	"errors"
	"net/http"
	"strconv"
	"time"

	"guildhall/internal/service/webhooks"
)

// overlaps are the choices for how long a replaced secret still signs, in seconds.
var overlaps = []overlap{
	{"86400", "in 24 hours", "There is time to give the receiver the new one."},
	{"3600", "in an hour", "For a receiver that is changed right away."},
	{"0", "now", "For a secret that somebody else has seen. What is sent before the receiver knows the new one fails its check there, and is tried again."},
}

type overlap struct{ Seconds, Name, Says string }

// rotateView is the page that asks when the old secret ends.
type rotateView struct {
	Endpoint endpointRow
	Overlaps []overlap
	Chosen   string
	Once     string
	checked
}

func (c *call) rotatePage(v *rotateView, status int) reply {
	v.Overlaps = overlaps
	return reply{status: status, page: "webhook-rotate", view: v, frame: frame{Title: "Rotate secret", Tab: "webhooks", Crumbs: c.endpointCrumbs(v.Endpoint)}}
}

// endpointCrumbs returns the links to a page below an endpoint's page.
func (c *call) endpointCrumbs(e endpointRow) []crumb {
	return []crumb{{"Webhooks", c.path("webhooks")}, {e.URL, c.path("webhooks", e.ID)}}
}

func askToRotate(c *call, e endpointRow) (reply, error) {
	v := &rotateView{Endpoint: e, Chosen: overlaps[0].Seconds, Once: rand.Text()}
	return c.rotatePage(v, 0), nil
}

// overlapOf parses how long an old secret still signs.
func overlapOf(text string) (time.Duration, bool) {
	seconds, err := strconv.Atoi(text)
	overlap := time.Duration(seconds) * time.Second
	return overlap, err == nil && seconds >= 0 && seconds <= int(webhooks.MaxOverlap/time.Second)
}

func rotateWebhook(c *call, e endpointRow) (reply, error) {
	v := &rotateView{Endpoint: e, Chosen: overlaps[0].Seconds, Once: c.form.Get("once")}
	if c.form.Has("old_secret_expires_in") {
		v.Chosen = c.form.Get("old_secret_expires_in")
	}
	ends, ok := overlapOf(v.Chosen)
	if !ok {
		v.Problems.add("old_secret_expires_in", "Choose when the old secret stops signing.")
		return c.rotatePage(v, http.StatusUnprocessableEntity), nil
	}
	ctx, err := c.acting()
	if err != nil {
		return reply{}, err
	}
	made, err := webhooks.Rotate(ctx, c.hooks(), onceDoer{c.cfg.DB, c.guild.ID, v.Once}, c.guild.ID, e.ID, ends)
	if errors.Is(err, errMade) {
		return c.back(c.path("webhooks", e.ID), "This was sent before, and the secret was rotated then. Nothing was changed now."), nil
	}
	if err != nil {
		return reply{}, err
	}
	page := secretView{ID: made.ID, URL: made.URL, Secret: made.Secret, Rotated: true}
	if until := c.now().Add(ends); ends > 0 {
		page.OldUntil = &until
	}
	return c.secretPage(page, 0), nil
}

// endOldSecrets ends all secrets except the newest.
func endOldSecrets(c *call, e endpointRow) (reply, error) {
	ctx, err := c.acting()
	if err != nil {
		return reply{}, err
	}
	if err := webhooks.EndOldSecrets(ctx, c.cfg.DB, c.guild.ID, e.ID); err != nil {
		return reply{}, err
	}
	return c.back(c.path("webhooks", e.ID), "The old secret has ended. From now on the newest alone signs."), nil
}

// disableView is the page that asks whether to disable an endpoint, alone or with the other changes
// of its form.
type disableView struct {
	Endpoint endpointRow
	Action   string
	Sent     []pair // values of the form; none if the person used the button
}

// askToDisable shows the effects of disabling before the endpoint is disabled.
func askToDisable(c *call, e endpointRow) (reply, error) {
	return c.disablePage(disableView{Endpoint: e, Action: c.r.URL.EscapedPath()}), nil
}

func (c *call) disablePage(v disableView) reply {
	return reply{page: "webhook-disable", view: v, frame: frame{Title: "Disable endpoint", Tab: "webhooks", Crumbs: c.endpointCrumbs(v.Endpoint)}}
}

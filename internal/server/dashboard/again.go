package dashboard

import (
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"guildhall/internal/base/fault"
)

// The text that a person has typed is not lost if the service or the platform fails: the response
// shows the form as it was filled in. The form of an ended session is not shown again, because the
// next person to sign in with that browser may be another person.

// refilled returns the page of a form with the values that were sent, without any further lookup.
// It has an entry for the route of each form with more than a single word.
var refilled = map[string]func(*call) reply{
	"POST " + Prefix + "/guilds/{guild}/tokens":             func(c *call) reply { return c.tokenForm(c.readToken(), 0) },
	"POST " + Prefix + "/guilds/{guild}/webhooks":           webhookAgain,
	"POST " + Prefix + "/guilds/{guild}/webhooks/{id}/edit": webhookAgain,
}

func webhookAgain(c *call) reply {
	f, _ := c.readWebhook()
	f.Problems = nil // the form has not been checked yet
	return c.webhookForm(f, 0)
}

// comesBack reports whether the same form may succeed if it is sent again.
func (c *call) comesBack(f *fault.Error) bool {
	if c.r.Method != http.MethodPost || c.form == nil {
		return false
	}
	switch f.Kind {
	case fault.Invalid, fault.Refused, fault.Conflict, fault.Limited, fault.Upstream, fault.Unavailable, fault.Internal:
		return true
	default:
		return false
	}
}

// again returns the page of the form that was sent, with its values; ok is false if the request has
// no such form.
func (c *call) again() (reply, bool) {
	fill, ok := refilled[c.route]
	if !ok {
		return reply{}, false
	}
	if c.guild.ID == "" { // the request failed before the guild was looked up
		id := c.r.PathValue("guild")
		c.guild = guild{ID: id, Name: id}
	}
	return fill(c), true
}

// pair is one name and value of a form.
type pair struct{ Name, Value string }

// sent returns all values of the form, so that the form can be sent again.
func (c *call) sent() (list []pair) {
	for _, name := range slices.Sorted(maps.Keys(c.form)) {
		for _, v := range c.form[name] {
			list = append(list, pair{name, v})
		}
	}
	return list
}

// formPage returns the path of the page with the form that was sent, or with the action's button.
func (c *call) formPage() string {
	here := c.r.URL.EscapedPath()
	switch last := path.Base(c.route); {
	case !strings.Contains(c.route, "/guilds/{guild}/"): // the page of sessions
		return here
	case last == "tokens" || last == "webhooks":
		return here + "/new"
	case last == "edit" || last == "rotate" || last == "disable":
		return here
	case last == "recover":
		return here + "?" + url.Values{"since": {c.form.Get("since")}}.Encode()
	default:
		return path.Dir(here)
	}
}

// setCookie adds a cookie of the dashboard to the response; a negative time deletes the cookie.
func (c *call) setCookie(name, value string, keep time.Duration) {
	cookie := &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(keep / time.Second), Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
	c.cookies = append(c.cookies, cookie.String())
}

// ended returns the message for a person who has sent a form without a session.
func (c *call) ended() string {
	how := "Sign in again"
	if c.cfg.Discord == nil {
		how = "Open another link in this browser (`guildhall dashboard link --guild " + c.r.PathValue("guild") + "` makes one)"
	}
	return "Your session has ended, so nothing was done, and what you had typed was not kept. " + how + " and fill the form anew."
}

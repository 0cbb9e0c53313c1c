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

// A person's typing is not lost where the service or the platform fails: the response is
// the form as it was filled. A form of an ended session is not kept: whoever signs in next
// in that browser may be somebody else.

// refilled makes the page of a form from what was sent, and asks nobody for it:
// by route, of the forms that take more than a word.
var refilled = map[string]func(*call) reply{
	"POST " + Prefix + "/guilds/{guild}/tokens":             func(c *call) reply { return c.tokenForm(c.readToken(), 0) },
	"POST " + Prefix + "/guilds/{guild}/webhooks":           webhookAgain,
	"POST " + Prefix + "/guilds/{guild}/webhooks/{id}/edit": webhookAgain,
}

func webhookAgain(c *call) reply {
	f, _ := c.readWebhook()
	f.Problems = nil // it has not been judged yet
	return c.webhookForm(f, 0)
}

// comesBack reports whether what was sent may do when it is sent once more.
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

// again is the page of the form that was sent, filled as it was; none for a
// request that has no such form.
func (c *call) again() (reply, bool) {
	fill, ok := refilled[c.route]
	if !ok {
		return reply{}, false
	}
	if c.guild.ID == "" { // it failed before the guild was looked up
		id := c.r.PathValue("guild")
		c.guild = guild{ID: id, Name: id}
	}
	return fill(c), true
}

// pair is one value of a form.
type pair struct{ Name, Value string }

// sent is everything that the form holds, to be sent once more.
func (c *call) sent() (list []pair) {
	for _, name := range slices.Sorted(maps.Keys(c.form)) {
		for _, v := range c.form[name] {
			list = append(list, pair{name, v})
		}
	}
	return list
}

// formPage is the page with the form that was sent, or that asks for the action.
func (c *call) formPage() string {
	here := c.r.URL.EscapedPath()
	switch last := path.Base(c.route); {
	case !strings.Contains(c.route, "/guilds/{guild}/"): // the sessions
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

// setCookie adds a cookie of the dashboard's own to the response; a time that is
// over takes it away.
func (c *call) setCookie(name, value string, keep time.Duration) {
	cookie := &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(keep / time.Second), Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
	c.cookies = append(c.cookies, cookie.String())
}

// ended is the message of a page for somebody who has sent a form without a session.
func (c *call) ended() string {
	how := "Sign in again"
	if c.cfg.Discord == nil {
		how = "Open another link in this browser (`guildhall dashboard link --guild " + c.r.PathValue("guild") + "` makes one)"
	}
	return "Your session has ended, so nothing was done, and what you had typed was not kept. " + how + " and fill the form anew."
}

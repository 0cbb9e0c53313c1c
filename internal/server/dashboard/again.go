package dashboard

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"guildhall/internal/base/fault"
)

// A person's typing is not lost when it cannot be used now. Where the service or the
// platform fails, the response is the form as it was filled; where the session has
// ended, the browser keeps the form, sealed, until its person has signed in again.

const (
	draftCookie  = "__Host-guildhall-draft"
	draftSeal    = "dashboard/draft"
	draftTimeout = 30 * time.Minute
	// maxDraft is what browsers keep in a cookie, with its name and attributes.
	maxDraft = 3800
)

// draft is a form whose session had ended when it was sent.
type draft struct {
	Page  string     `json:"page"` // where the form stands
	Form  url.Values `json:"form"`
	Until time.Time  `json:"until"`
}

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

// keepDraft gives the form to the browser to keep, and reports whether it fits.
func (c *call) keepDraft() bool {
	text, err := json.Marshal(draft{c.formPage(), c.form, c.now().Add(draftTimeout)})
	if err != nil {
		return false
	}
	var small bytes.Buffer
	w, err := flate.NewWriter(&small, flate.BestCompression)
	if err != nil {
		return false
	}
	_, _ = w.Write(text) // into memory
	_ = w.Close()
	value := base64.RawURLEncoding.EncodeToString(c.cfg.Sealer.Seal(small.Bytes(), draftSeal))
	if len(value) > maxDraft {
		return false
	}
	c.setCookie(draftCookie, value, draftTimeout)
	return true
}

// draft returns the form that the browser keeps; the zero one if it keeps none.
func (c *call) draft() (d draft) {
	cookie, err := c.r.Cookie(draftCookie)
	if err != nil {
		return draft{}
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return draft{}
	}
	small, err := c.cfg.Sealer.Open(sealed, draftSeal)
	if err != nil {
		return draft{}
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(small)), 4*maxForm))
	if err != nil || json.Unmarshal(text, &d) != nil || !c.now().Before(d.Until) {
		return draft{}
	}
	return d
}

// takeDraft returns the form that was kept for this page, once.
func (c *call) takeDraft() (url.Values, bool) {
	d := c.draft()
	if d.Page == "" || d.Page != c.r.URL.EscapedPath() || c.r.Method != http.MethodGet {
		return nil, false
	}
	c.dropDraft()
	c.said = "This is what you had filled in before your session ended. Nothing was sent."
	return d.Form, true
}

func (c *call) dropDraft() {
	if _, err := c.r.Cookie(draftCookie); err == nil {
		c.setCookie(draftCookie, "", -time.Second)
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

// ended is what somebody reads who has sent a form without a session.
func (c *call) ended() string {
	how := "Sign in again"
	if c.cfg.Discord == nil {
		how = "Open another link in this browser (`guildhall dashboard link --guild " + c.r.PathValue("guild") + "` makes one)"
	}
	if !c.keepDraft() {
		return "Your session has ended, so nothing was done. What you have typed is too long to be kept while you sign in: go back, copy it, and then sign in again."
	}
	return "Your session has ended, so nothing was done. " + how + ", and you come back to the form as you had filled it."
}

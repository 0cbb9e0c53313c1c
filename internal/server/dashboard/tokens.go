package dashboard

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/access/usage"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/delivery"
)

// expiresSoon is how long before its expiry a token is marked.
const expiresSoon = 14 * 24 * time.Hour

// maxDays is the longest expiry in days.
const maxDays = 36500

// tokenRow is a token as the list shows it.
type tokenRow struct {
	auth.Token
	now time.Time
}

// State returns one word for the state of the token.
func (t tokenRow) State() string {
	switch {
	case t.RevokedAt != nil:
		return "revoked"
	case t.ExpiresAt != nil && !t.now.Before(*t.ExpiresAt):
		return "expired"
	default:
		return "active"
	}
}

// Soon reports whether an active token will expire soon.
func (t tokenRow) Soon() bool {
	return t.State() == "active" && t.ExpiresAt != nil && t.ExpiresAt.Sub(t.now) <= expiresSoon
}

// Days returns the number of days for a form that copies this token.
func (t tokenRow) Days() string {
	if t.ExpiresAt == nil {
		return ""
	}
	return strconv.Itoa(max(1, int((t.ExpiresAt.Sub(t.CreatedAt)+12*time.Hour)/(24*time.Hour))))
}

// tokensPage is how many tokens of each kind one page lists.
const tokensPage = 50

// tokensView is one page of active tokens and one page of ended tokens.
type tokensView struct {
	Active, Ended         []tokenRow
	MoreActive, MoreEnded string        // queries of the next pages; empty on the last page
	Skipped               bool          // this is not the first page of ended tokens
	Keys                  []auth.BotKey // keys of the operator's bot that include this guild
	Streams               []delivery.StreamStatus
}

// streamsUpto is the number up to which waiting events of a stream are counted.
const streamsUpto = 1000

// Upto calls endpointRow.Upto.
func (tokensView) Upto(n int) string { return endpointRow{}.Upto(n) }

func listTokens(c *call) (reply, error) {
	var v tokensView
	for _, part := range []struct {
		name  string
		ended bool
		rows  *[]tokenRow
		more  *string
	}{{"active", false, &v.Active, &v.MoreActive}, {"ended", true, &v.Ended, &v.MoreEnded}} {
		page := c.pageNumber(part.name)
		tokens, err := auth.Page(c.ctx, c.cfg.DB, c.guild.ID, part.ended, (page-1)*tokensPage, tokensPage+1)
		if err != nil {
			return reply{}, err
		}
		if len(tokens) > tokensPage {
			tokens = tokens[:tokensPage]
			*part.more = "?" + part.name + "=" + strconv.Itoa(page+1)
		}
		for _, t := range tokens {
			*part.rows = append(*part.rows, tokenRow{t, c.now()})
		}
		v.Skipped = part.ended && page > 1
	}
	keys, err := auth.KeysOf(c.ctx, c.cfg.DB, c.guild.ID)
	if err != nil {
		return reply{}, err
	}
	v.Keys = slices.DeleteFunc(keys, func(k auth.BotKey) bool {
		return k.RevokedAt != nil || k.ExpiresAt != nil && !c.now().Before(*k.ExpiresAt)
	})
	if v.Streams, err = delivery.StreamsOf(c.ctx, c.cfg.DB.Reader(), c.guild.ID, streamsUpto); err != nil {
		return reply{}, err
	}
	if len(v.Keys) == 0 { // most installations have no bot
		v.Streams = slices.DeleteFunc(v.Streams, func(s delivery.StreamStatus) bool { return s.Waiting == 0 })
	}
	return reply{page: "tokens", view: v, frame: frame{Title: "API tokens", Tab: "tokens"}}, nil
}

// tokenForm is the form for a new token, as the person filled it in.
type tokenForm struct {
	Name, Allow, Days string
	Other             bool // the person typed the number of days
	Chosen            []string
	Replaces          string   // id of the token whose limits are copied; empty if there is none
	Once              string   // value that makes sure that the same form creates only one token
	Unknown           []string // scopes in the link to the form that do not exist
	Groups            []scopeGroup
	checked
}

// Has reports whether the scope's box is checked.
func (f *tokenForm) Has(scope string) bool { return slices.Contains(f.Chosen, scope) }

// Never reports whether the token has no expiry.
func (f *tokenForm) Never() bool { return f.Days == "" && !f.Other }

// Presets returns the usual choices of days until expiry.
func (*tokenForm) Presets() []string { return []string{"7", "30", "90", "365"} }

// Understood returns the address ranges of the allowlist.
func (f *tokenForm) Understood() []netip.Prefix {
	ranges, _ := auth.ParsePrefixes(f.Allow) // the field shows the error
	return ranges
}

// newToken shows the form, filled with the values of the query string.
func newToken(c *call) (reply, error) {
	q := c.r.URL.Query()
	f := &tokenForm{Name: q.Get("name"), Allow: strings.Join(q["ip_allowlist"], " "), Days: "90", Replaces: q.Get("replaces"), Once: rand.Text()}
	if q.Has("expires_in_days") {
		f.Days = q.Get("expires_in_days")
	}
	for _, s := range wire.Items(q["scopes"]...) {
		if slices.Contains(auth.Scopes, s) {
			f.Chosen = append(f.Chosen, s)
		} else {
			f.Unknown = append(f.Unknown, s)
		}
	}
	return c.tokenForm(f, 0), nil
}

func (c *call) tokenForm(f *tokenForm, status int) reply {
	f.Groups = c.scopes
	return reply{status: status, page: "token-new", view: f, frame: frame{
		Title: "New token", Tab: "tokens", Crumbs: []crumb{{"API tokens", c.path("tokens")}},
	}}
}

type madeView struct {
	Token tokenRow
	Call  string
}

var errMade = errors.New("dashboard: this form has made its token already")

// createToken creates a token and shows its secret, for the only time.
func createToken(c *call) (reply, error) {
	f := c.readToken()
	n, wrong := f.token(c.guild.ID, c.cfg.Env)
	if len(wrong) > 0 {
		f.Problems = wrong
		return c.tokenForm(f, http.StatusUnprocessableEntity), nil
	}
	ctx, err := c.acting()
	if err != nil {
		return reply{}, err
	}
	if f.Replaces != "" {
		old, err := auth.Find(ctx, c.cfg.DB, c.guild.ID, f.Replaces)
		if err != nil {
			return reply{}, err
		}
		n.Limits = old.Limits
	}
	t, err := auth.Create(ctx, onceDoer{c.cfg.DB, c.guild.ID, f.Once}, n)
	if errors.Is(err, errMade) {
		return reply{page: "token-again", frame: frame{Title: "Already made", Tab: "tokens", Crumbs: []crumb{{"API tokens", c.path("tokens")}}}}, nil
	}
	if fl, ok := fault.As(err); ok && (fl.Kind == fault.Invalid || fl.Kind == fault.Refused) {
		f.Problems.add("name", "%s", fl.Message)
		return c.tokenForm(f, http.StatusUnprocessableEntity), nil
	}
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusCreated, page: "token-made", view: madeView{tokenRow{t, c.now()}, c.firstCall(t)}, frame: frame{
		Title: "Token created", Tab: "tokens", Crumbs: []crumb{{"API tokens", c.path("tokens")}},
	}}, nil
}

// readToken reads the form.
func (c *call) readToken() *tokenForm {
	f := &tokenForm{
		Name: c.form.Get("name"), Allow: strings.Join(c.form["ip_allowlist"], " "), Days: strings.TrimSpace(c.form.Get("expires_in_days")),
		Chosen: wire.Items(c.form["scopes"]...), Replaces: c.form.Get("replaces"), Once: c.form.Get("once"),
	}
	if f.Other = f.Days == "other"; f.Other {
		f.Days = strings.TrimSpace(c.form.Get("days"))
	}
	return f
}

// token checks the form and returns the token to create.
func (f *tokenForm) token(guild, env string) (auth.New, problems) {
	var wrong problems
	n := auth.New{GuildID: guild, Env: env, Name: strings.TrimSpace(f.Name), Scopes: f.Chosen, AllowIP: []string{f.Allow}}
	if err := auth.CheckName(n.Name); err != nil {
		wrong.add("name", "%s", messageOf(err))
	}
	if len(f.Chosen) == 0 {
		wrong.add("scopes", "Choose at least one thing that the token may do.")
	} else if _, err := auth.ParseScopes(f.Chosen...); err != nil {
		wrong.add("scopes", "%s", messageOf(err))
	}
	if _, err := auth.ParseAllowlist(f.Allow); err != nil {
		wrong.add("ip_allowlist", "%s Write addresses such as 203.0.113.9 or ranges such as 198.51.100.0/24.", messageOf(err))
	}
	if f.Other && f.Days == "" {
		wrong.add("expires_in_days", "Say after how many days the token expires, or choose “Never”.")
	} else if f.Days != "" {
		days, err := strconv.Atoi(f.Days)
		if err != nil || days < 1 || days > maxDays {
			wrong.add("expires_in_days", "%q is not a number of days from 1 to %d. Choose “Never” for a token that does not expire.", f.Days, maxDays)
		}
		n.ExpiresIn = time.Duration(days) * 24 * time.Hour
	}
	return n, wrong
}

// Custom reports whether the number of days is not one of the presets.
func (f *tokenForm) Custom() bool {
	return f.Other || f.Days != "" && !slices.Contains(f.Presets(), f.Days)
}

func messageOf(err error) string {
	if f, ok := fault.As(err); ok {
		return f.Message
	}
	return err.Error()
}

// onceDoer runs units of work that also store that their form was sent: a form that was sent before
// fails with errMade, and its unit of work changes nothing.
type onceDoer struct {
	db    *db.DB
	guild string
	form  string // id of the form; empty for no check
}

// Do implements db.Doer.
func (o onceDoer) Do(ctx context.Context, fn func(ctx context.Context, tx *db.Tx) error) error {
	return o.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if o.form != "" {
			first, err := once(ctx, tx, o.guild, "form", o.form)
			if err != nil {
				return err
			}
			if !first {
				return errMade
			}
		}
		return fn(ctx, tx)
	})
}

// firstCall returns an example call that the token's scopes allow.
func (c *call) firstCall(t auth.Token) string {
	path := "/me"
	for _, o := range c.cfg.Operations {
		if o.Method == http.MethodGet && !strings.Contains(o.Path, "{") && slices.Contains(t.Scopes, o.Scope) {
			path = o.Path
			break
		}
	}
	curl := "curl -sS"
	if c.cfg.CAFile != "" {
		curl += " --cacert " + shellQuote(c.cfg.CAFile)
	}
	return curl + " -H " + shellQuote("Authorization: Bearer "+t.Secret) + " " + shellQuote(c.base+"/api/v1"+path)
}

// tokenView is the page of one token with its usage.
type tokenView struct {
	Token     tokenRow
	Maker     maker
	Usage     usageView
	Addresses []usage.Address
	Refusals  []usage.Refusal
	After     usage.Ended   // use after its end; no requests means no use
	AfterFrom []usage.Ended // the same, by address
	Replace   string        // address of the form for a similar token
	Typed     string
	checked
}

func showToken(c *call) (reply, error) {
	v, err := c.tokenView()
	if err != nil {
		return reply{}, err
	}
	return c.tokenPage(v, 0), nil
}

func (c *call) tokenPage(v *tokenView, status int) reply {
	return reply{status: status, page: "token", view: v, frame: frame{
		Title: v.Token.Name, Tab: "tokens", Crumbs: []crumb{{"API tokens", c.path("tokens")}},
	}}
}

func (c *call) tokenView() (*tokenView, error) {
	t, err := auth.Find(c.ctx, c.cfg.DB, c.guild.ID, c.r.PathValue("id"))
	if err != nil {
		return nil, notHere(err)
	}
	v := &tokenView{Token: tokenRow{t, c.now()}}
	q := c.cfg.DB.Reader()
	if v.Maker, err = c.maker(audit.TokenCreated, t.ID); err != nil {
		return nil, err
	}
	if v.Usage, err = c.usageView(t.ID); err != nil {
		return nil, err
	}
	if v.Addresses, err = usage.Addresses(c.ctx, q, c.guild.ID, t.ID); err != nil {
		return nil, err
	}
	if v.Refusals, err = usage.Refusals(c.ctx, q, c.guild.ID, usage.RefusalFilter{Token: t.ID}, 10); err != nil {
		return nil, err
	}
	if v.After, v.AfterFrom, err = usage.EndedToken(c.ctx, q, c.guild.ID, t.ID); err != nil {
		return nil, err
	}
	v.AfterFrom = v.AfterFrom[:min(20, len(v.AfterFrom))]
	v.Replace = c.path("tokens", "new") + "?" + replaceQuery(v.Token)
	return v, nil
}

// revokeToken revokes a token if the person has typed its name.
func revokeToken(c *call) (reply, error) {
	v, err := c.tokenView()
	if err != nil {
		return reply{}, err
	}
	v.Typed = c.form.Get("confirm")
	if strings.TrimSpace(v.Typed) != strings.TrimSpace(v.Token.Name) {
		v.Problems.add("confirm", "Type the token's name, %s, to revoke it.", visible(v.Token.Name))
		return c.tokenPage(v, http.StatusUnprocessableEntity), nil
	}
	ctx, err := c.acting()
	if err != nil {
		return reply{}, err
	}
	if err := auth.Revoke(ctx, c.cfg.DB, c.guild.ID, v.Token.ID); err != nil {
		return reply{}, notHere(err)
	}
	return c.back(c.path("tokens"), "“%s” is revoked. No server accepts it any more.", visible(v.Token.Name)), nil
}

// deleteToken revokes a token for programs: it is the route of the specification. The caller must
// be allowed to manage the token's guild.
func deleteToken(c *call) (reply, error) {
	if c.who.ID == "" {
		return reply{}, errSignedIn
	}
	id := c.r.PathValue("id")
	owner, err := auth.GuildOf(c.ctx, c.cfg.DB, id)
	if err != nil {
		return reply{}, notHere(err)
	}
	if c.guild, err = c.enter(owner); err != nil {
		return reply{}, err
	}
	ctx, err := c.acting()
	if err != nil {
		return reply{}, err
	}
	if err := auth.Revoke(ctx, c.cfg.DB, c.guild.ID, id); err != nil {
		return reply{}, notHere(err)
	}
	return reply{status: http.StatusNoContent}, nil
}

// notHere turns each kind of NotFound into the same response.
func notHere(err error) error {
	if f, ok := fault.As(err); ok && f.Kind == fault.NotFound {
		return errNotHere.Because(err)
	}
	return err
}

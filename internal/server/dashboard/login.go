package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"regexp"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

const (
	loginCookie  = "__Host-guildhall-login"
	loginTimeout = 10 * time.Minute
	loginSeal    = "dashboard/login"
)

// pendingSignIn is a sign-in that has started. The browser stores it in an encrypted cookie, which
// only this server can read or make.
type pendingSignIn struct {
	State    string    `json:"state"`
	Verifier string    `json:"verifier"`
	To       string    `json:"to"`
	Until    time.Time `json:"until"`
}

var (
	errNoSignIn = fault.New(fault.NotFound, "not_found", "This server has no sign-in with Discord. Ask whoever runs it for a link: `guildhall dashboard link --guild ID` makes one.")
	errLogin    = fault.New(fault.Invalid, "sign_in_failed", "This sign-in was not begun in this browser, is too old, or was used already. Nobody was signed in: begin again.")
	errDeclined = fault.New(fault.Invalid, "sign_in_declined", "Discord says that the sign-in was declined. Nobody was signed in.")
	errLink     = fault.New(fault.NotFound, "not_found", "This link was used already, has expired, or never was one. Make another with `guildhall dashboard link`.")
)

// home shows the guilds that a signed-in person may manage, and shows everyone else how to sign in.
func home(c *call) (reply, error) {
	if c.who.ID == "" {
		return reply{page: "welcome", frame: frame{Title: "Dashboard"}, view: welcomeView{
			Discord: c.cfg.Discord != nil, SignedOut: c.r.URL.Query().Has("signed_out"), StandIn: c.standIn != nil,
		}}, nil
	}
	here, err := db.Select[guild](c.ctx, c.cfg.DB.Reader(), `
		SELECT id, name FROM guilds WHERE id = ANY ($1) AND removed_at IS NULL ORDER BY name, id`, db.Array(c.who.Guilds))
	if err != nil {
		return reply{}, fault.Wrap(err, "list guilds")
	}
	v := guildsView{}
	v.Guilds, v.Unsure = c.stillTheirs(here)
	return reply{page: "guilds", frame: frame{Title: "Servers"}, view: v}, nil
}

// guildsView is the list of the guilds that a person may manage. A guild whose rights are unknown
// now is not listed.
type guildsView struct {
	Guilds []guild
	Unsure int
}

type welcomeView struct{ Discord, SignedOut, StandIn bool }

// login redirects the browser to Discord's page of consent.
func login(c *call) (reply, error) {
	a := pendingSignIn{
		State: rand.Text(), Verifier: oauth2.GenerateVerifier(), To: localPath(c.r.URL.Query().Get("to")), Until: c.now().Add(loginTimeout),
	}
	text, err := json.Marshal(a)
	if err != nil {
		return reply{}, err
	}
	c.setCookie(loginCookie, base64.RawURLEncoding.EncodeToString(c.cfg.Sealer.Seal(text, loginSeal)), loginTimeout)
	return reply{to: c.cfg.Discord.oauth(c.base).AuthCodeURL(a.State, oauth2.S256ChallengeOption(a.Verifier))}, nil
}

// callback completes a sign-in that started in this browser. Each sign-in can be used once, even if
// it fails; the error page links to a new one.
func callback(c *call) (reply, error) {
	a, err := c.pendingSignIn()
	c.anew = Prefix + "/login?to=" + url.QueryEscape(localPath(a.To))
	if err != nil {
		return reply{}, err
	}
	if c.r.URL.Query().Get("error") != "" {
		return reply{}, errDeclined
	}
	p, err := c.cfg.Discord.identify(c.ctx, c.base, c.r.URL.Query().Get("code"), a.Verifier)
	var away *awayError
	switch {
	case errors.Is(err, errCode):
		return reply{}, errLogin.Because(err)
	case errors.As(err, &away):
		return reply{}, fault.New(fault.Unavailable, "discord_unavailable", "Discord does not answer, so nobody was signed in. Try again in a moment.").Because(err)
	case err != nil:
		return reply{}, err
	}
	if p.Guilds, err = c.known(p.Guilds); err != nil {
		return reply{}, err
	}
	if err := c.signIn(p); err != nil {
		return reply{}, err
	}
	c.setCookie(loginCookie, "", -time.Second)
	return reply{to: a.To}, nil
}

// pendingSignIn returns the sign-in that the browser has started and that the callback names. Each
// sign-in can be used for one callback.
func (c *call) pendingSignIn() (pendingSignIn, error) {
	cookie, err := c.r.Cookie(loginCookie)
	if err != nil {
		return pendingSignIn{}, errLogin.Because(err)
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return pendingSignIn{}, errLogin.Because(err)
	}
	text, err := c.cfg.Sealer.Open(sealed, loginSeal)
	if err != nil {
		return pendingSignIn{}, errLogin.Because(err)
	}
	var a pendingSignIn
	if err := json.Unmarshal(text, &a); err != nil {
		return pendingSignIn{}, errLogin.Because(err)
	}
	state := c.r.URL.Query().Get("state")
	if subtle.ConstantTimeCompare([]byte(state), []byte(a.State)) != 1 || !c.now().Before(a.Until) {
		return pendingSignIn{}, errLogin
	}
	first := false
	err = c.cfg.DB.Do(c.ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		first, err = once(ctx, tx, "", "login", state)
		return err
	})
	if err == nil && !first {
		err = errLogin
	}
	return a, err
}

// once reports whether something happens for the first time, and stores that when the transaction
// commits.
func once(ctx context.Context, tx *db.Tx, guild, kind, name string) (bool, error) {
	key := sha256.Sum256([]byte(kind + "\x00" + name))
	n, err := db.Exec(ctx, tx, `INSERT INTO dashboard_once (guild_id, key) VALUES ($1, $2) ON CONFLICT DO NOTHING`, guild, key[:])
	return n == 1, fault.Wrap(err, "note a", kind)
}

// known returns the guilds that exist in the database.
func (c *call) known(ids []string) (here []string, err error) {
	here, err = db.Select[string](c.ctx, c.cfg.DB.Reader(), `SELECT id FROM guilds WHERE id = ANY ($1) AND removed_at IS NULL ORDER BY id`, db.Array(ids))
	return here, fault.Wrap(err, "look for guilds")
}

// plainPath matches every path of the dashboard to which a sign-in may lead.
var plainPath = regexp.MustCompile(`^` + Prefix + `/[A-Za-z0-9_.:,/-]*(\?[A-Za-z0-9_.:,%+&=*@~-]*)?$`)

// localPath returns to if to is a path of the dashboard, otherwise the dashboard's start page.
// localPath decodes nothing and refuses everything unusual.
func localPath(to string) string {
	path, _, _ := strings.Cut(to, "?")
	if !plainPath.MatchString(to) || strings.Contains(path, "//") || strings.Contains(path, "..") {
		return Prefix + "/"
	}
	return to
}

// linkKeyLength is the length of 32 random bytes in base64url.
const linkKeyLength = 43

// Link is a link for an operator that can be used once.
type Link struct {
	Path      string    // path below the dashboard's host; contains the secret
	ExpiresAt time.Time // if unused
}

// NewLink creates a link that opens the dashboard of one guild, once. If the guild does not exist
// or is being removed, the error is NotFound.
func NewLink(ctx context.Context, d db.Doer, guild string, expiresIn time.Duration) (Link, error) {
	var b [32]byte
	rand.Read(b[:])
	key := base64.RawURLEncoding.EncodeToString(b[:])
	hash := sha256.Sum256([]byte(key))
	l := Link{Path: Prefix + "/link/" + url.PathEscape(guild) + "/" + key}
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		err := auth.WantGuild(ctx, tx, guild)
		if err != nil {
			return err
		}
		id := db.NewID()
		l.ExpiresAt, err = db.Get[time.Time](ctx, tx, `
			INSERT INTO dashboard_links (guild_id, hash, id, expires_at)
			VALUES ($1, $2, $3, now() + $4::bigint * interval '1 second')
			RETURNING expires_at`, guild, hash[:], id, int64(expiresIn/time.Second))
		if err != nil {
			return fault.Wrap(err, "make a link to the dashboard of guild", guild)
		}
		return audit.Record(ctx, tx, audit.Change{Guild: guild, Action: audit.LinkCreated, Target: id, Name: "operator link", After: map[string]any{"expires_at": l.ExpiresAt}})
	})
	if err != nil {
		return Link{}, err
	}
	return l, nil
}

type linkView struct {
	Guild  guild
	Action string
}

// showLink shows the button that uses a link. A program that fetches links for a preview does not
// press the button.
func showLink(c *call) (reply, error) {
	key := c.r.PathValue("key")
	hash := sha256.Sum256([]byte(key))
	g, err := db.Get[guild](c.ctx, c.cfg.DB.Reader(), `
		SELECT g.id, g.name
		FROM dashboard_links l
		JOIN guilds g ON g.id = l.guild_id AND g.removed_at IS NULL
		WHERE l.guild_id = $1 AND l.hash = $2 AND l.used_at IS NULL AND l.expires_at > now()`, c.r.PathValue("guild"), hash[:])
	if db.Missing(err) || len(key) != linkKeyLength {
		return reply{}, errLink
	}
	if err != nil {
		return reply{}, fault.Wrap(err, "read a link")
	}
	return reply{page: "link", frame: frame{Title: "Open the dashboard"}, view: linkView{g, c.r.URL.EscapedPath()}}, nil
}

// spendLink uses the link and signs the operator in for the link's guild.
func spendLink(c *call) (reply, error) {
	guildID, key := c.r.PathValue("guild"), c.r.PathValue("key")
	hash := sha256.Sum256([]byte(key))
	p := person{Kind: audit.Operator, Name: "Operator", Guilds: []string{guildID}}
	err := c.cfg.DB.Do(c.ctx, func(ctx context.Context, tx *db.Tx) error {
		var err error
		p.ID, err = db.Get[string](ctx, tx, `
			UPDATE dashboard_links SET used_at = now()
			WHERE guild_id = $1 AND hash = $2 AND used_at IS NULL AND expires_at > now()
			RETURNING id`, guildID, hash[:])
		if err != nil {
			return err
		}
		ctx = audit.With(ctx, c.load.actor(p))
		return audit.Record(ctx, tx, audit.Change{Guild: guildID, Action: audit.LinkUsed, Target: p.ID, Name: "operator link"})
	})
	if db.Missing(err) {
		return reply{}, errLink
	}
	if err != nil {
		return reply{}, fault.Wrap(err, "spend a link")
	}
	if err := c.signIn(p); err != nil {
		return reply{}, err
	}
	to := Prefix + "/guilds/" + url.PathEscape(guildID) + "/"
	return reply{to: to}, nil
}

package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/alexedwards/scs/v2"
	"github.com/mileusna/useragent"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

const (
	// With the prefix __Host-, a browser accepts the cookie only from this host and for all paths.
	// So no other host of the domain, and no longer path, can set a cookie that comes before it.
	cookieName = "__Host-guildhall"
	// idleTimeout ends a session that is not used, and lifetime ends every session.
	idleTimeout = 2 * time.Hour
	lifetime    = 12 * time.Hour
	// touchInterval is how much the stored expiry of a session may lag, so that reading pages does
	// not write to the database each time.
	touchInterval = time.Minute
)

// A session stores these values. All of them are text, and none is a secret.
const (
	keyKind   = "kind"
	keyID     = "id"
	keyName   = "name"
	keyGuilds = "guilds"
	keyNotice = "notice" // a sentence for the next page
)

// person is the signed-in person; the zero value means no person.
type person struct {
	Kind   string // audit.User or audit.Operator
	ID     string
	Name   string
	Guilds []string  // guilds that the person may be able to manage
	Since  time.Time // when the platform named these guilds, at the sign-in
}

func (p person) account() string { return p.Kind + ":" + p.ID }

func newSessions(store sessionStore) *scs.SessionManager {
	m := scs.New()
	m.IdleTimeout, m.Lifetime = idleTimeout, lifetime
	m.HashTokenInStore = true
	m.Codec, m.Store = textCodec{}, store
	m.Cookie.Name, m.Cookie.Path = cookieName, "/"
	m.Cookie.Secure, m.Cookie.HttpOnly, m.Cookie.SameSite, m.Cookie.Persist = true, true, http.SameSiteLaxMode, false
	return m
}

// sessionToken returns the token in the session's cookie. If a request has two such cookies, the
// server cannot know which one came from the sign-in, and an attacker may have set one:
// sessionToken then refuses both and deletes them in the browser.
func (c *call) sessionToken() string {
	switch cookies := c.r.CookiesNamed(cookieName); {
	case len(cookies) > 1:
		c.setCookie(cookieName, "", -time.Second)
	case len(cookies) == 1 && len(cookies[0].Value) <= 64:
		return cookies[0].Value
	}
	return ""
}

// loadSession reads the session of a token.
func (c *call) loadSession(token string) error {
	c.load.address, c.load.agent, c.load.request = addressText(c.from), plainText(c.r.UserAgent(), 200), c.id
	ctx, err := c.sessions.Load(c.ctx, token)
	if err != nil {
		return fault.Wrap(err, "read a session")
	}
	c.ctx = ctx
	c.r = c.r.WithContext(ctx)
	c.who = person{
		Kind: c.sessions.GetString(ctx, keyKind), ID: c.sessions.GetString(ctx, keyID), Name: c.sessions.GetString(ctx, keyName),
		Guilds: strings.Fields(c.sessions.GetString(ctx, keyGuilds)), Since: c.sessions.Deadline(ctx).Add(-lifetime),
	}
	return nil
}

// keepSession stores the session of the call and sets its cookie.
func (c *call) keepSession(h http.Header) error {
	if c.who.ID == "" && !c.load.signing && !c.load.ended {
		return nil // no one is signed in or signing in
	}
	if c.refreshing() {
		return nil
	}
	w := &buffered{header: h}
	switch c.sessions.Status(c.ctx) {
	case scs.Modified:
		token, expiry, err := c.sessions.Commit(c.ctx)
		if err != nil {
			return fault.Wrap(err, "store a session")
		}
		if c.load.signing {
			c.sessions.WriteSessionCookie(c.ctx, w, token, expiry)
		}
	case scs.Destroyed:
		c.sessions.WriteSessionCookie(c.ctx, w, "", time.Time{})
	case scs.Unmodified:
	}
	h["Cache-Control"] = fixedHeaders["Cache-Control"] // the session library adds a weaker header
	return nil
}

// signIn signs the caller in as p, with a new session id.
func (c *call) signIn(p person) error {
	if err := c.sessions.Clear(c.ctx); err != nil {
		return err
	}
	if err := c.sessions.RenewToken(c.ctx); err != nil {
		return fault.Wrap(err, "renew a session")
	}
	c.load.signing, c.load.id = true, db.NewID()
	for key, value := range map[string]string{
		keyKind: p.Kind, keyID: p.ID, keyName: p.Name, keyGuilds: strings.Join(p.Guilds, " "),
	} {
		c.sessions.Put(c.ctx, key, value)
	}
	c.who = p
	return nil
}

// logout ends the session, in the database too.
func logout(c *call) (reply, error) {
	if c.who.ID != "" {
		if err := c.sessions.Destroy(c.ctx); err != nil {
			return reply{}, fault.Wrap(err, "end a session")
		}
		c.load.ended = true
	}
	return reply{to: Prefix + "/?signed_out=1"}, nil
}

// loaded is the state of the call's session in the store.
type loaded struct {
	id             string // id of the row, for the list of sessions
	data           []byte
	expiry         time.Time
	signing, ended bool // this call starts, or ends, a session
	address, agent string
	request        string // the request's X-Request-Id
}

// actor returns p as the actor of the audit log for changes made by this call.
func (l *loaded) actor(p person) audit.Actor {
	return audit.Actor{Type: p.Kind, ID: p.ID, Name: p.Name, Address: l.address, RequestID: l.request}
}

type loadedKey struct{}

// sessionStore stores sessions in the database, by the hash of their token.
type sessionStore struct{ db *db.DB }

// FindCtx returns a session unless it has expired.
func (s sessionStore) FindCtx(ctx context.Context, hash string) ([]byte, bool, error) {
	type stored struct {
		ID     string    `db:"id"`
		Data   []byte    `db:"data"`
		Expiry time.Time `db:"expires_at"`
	}
	row, err := db.Get[stored](ctx, s.db.Reader(), `
		SELECT id, data, expires_at FROM dashboard_sessions WHERE hash = $1 AND expires_at > now()`, hash)
	if db.Missing(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if l, ok := ctx.Value(loadedKey{}).(*loaded); ok {
		l.id, l.data, l.expiry = row.ID, row.Data, row.Expiry
	}
	return row.Data, true, nil
}

// CommitCtx stores a session. Only a sign-in inserts a session: a session that was ended during a
// request stays ended.
func (s sessionStore) CommitCtx(ctx context.Context, hash string, data []byte, expiry time.Time) error {
	l, ok := ctx.Value(loadedKey{}).(*loaded)
	if !ok {
		return fmt.Errorf("dashboard: a session outside a call")
	}
	if !l.signing && bytes.Equal(data, l.data) && expiry.Sub(l.expiry) < touchInterval {
		return nil
	}
	p, err := personIn(data)
	if err != nil {
		return err
	}
	return s.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if !l.signing {
			_, err := db.Exec(ctx, tx, `
				UPDATE dashboard_sessions SET data = $2, expires_at = $3, seen_at = now(), address = $4
				WHERE hash = $1`, hash, data, expiry, l.address)
			return err
		}
		_, err := db.Exec(ctx, tx, `
			INSERT INTO dashboard_sessions (hash, id, account, data, address, agent, expires_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`, hash, l.id, p.account(), data, l.address, l.agent, expiry)
		if err != nil {
			return err
		}
		return auditSessions(audit.With(ctx, l.actor(p)), tx, audit.SignedIn, endedSession{l.id, data})
	})
}

// DeleteCtx ends a session on behalf of its person, who signs out or signs in again.
func (s sessionStore) DeleteCtx(ctx context.Context, hash string) error {
	l, ok := ctx.Value(loadedKey{}).(*loaded)
	if !ok {
		return fmt.Errorf("dashboard: a session outside a call")
	}
	if l.data != nil {
		p, err := personIn(l.data)
		if err != nil {
			return err
		}
		ctx = audit.With(ctx, l.actor(p))
	}
	_, err := end(ctx, s.db, audit.SignedOut, `DELETE FROM dashboard_sessions WHERE hash = $1 RETURNING id, data`, hash)
	return err
}

// The library requires these methods without a context and never calls them.

// Find implements scs.Store.
func (sessionStore) Find(string) ([]byte, bool, error) { return nil, false, errNoContext }

// Commit implements scs.Store.
func (sessionStore) Commit(string, []byte, time.Time) error { return errNoContext }

// Delete implements scs.Store.
func (sessionStore) Delete(string) error { return errNoContext }

var errNoContext = fmt.Errorf("dashboard: the store of sessions needs a context")

// textCodec encodes a session as JSON, because its values are text.
type textCodec struct{}

type stored struct {
	Deadline time.Time         `json:"deadline"`
	Values   map[string]string `json:"values"`
}

// Encode implements scs.Codec.
func (textCodec) Encode(deadline time.Time, values map[string]any) ([]byte, error) {
	s := stored{deadline, map[string]string{}}
	for key, v := range values {
		text, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("dashboard: a session holds text, not %T", v)
		}
		s.Values[key] = text
	}
	return json.Marshal(s)
}

// Decode implements scs.Codec.
func (textCodec) Decode(b []byte) (time.Time, map[string]any, error) {
	var s stored
	if err := json.Unmarshal(b, &s); err != nil {
		return time.Time{}, nil, err
	}
	values := map[string]any{}
	for key, text := range s.Values {
		values[key] = text
	}
	return s.Deadline, values, nil
}

// sessionRow is one session in the list of sessions.
type sessionRow struct {
	ID      string    `db:"id"`
	Address string    `db:"address"`
	Agent   string    `db:"agent"`
	Created time.Time `db:"created_at"`
	Seen    time.Time `db:"seen_at"`
	Expires time.Time `db:"expires_at"`
	Current bool      `db:"-"`
}

// agentName returns the browser and the system of a User-Agent header, such as "Firefox on
// Windows". If the header names no known browser, agentName returns the header itself.
func agentName(header string) string {
	a := useragent.Parse(header)
	if a.Name == "" || a.OS == "" {
		return header
	}
	return a.Name + " on " + a.OS
}

// sessionsPage is how many sessions one page lists.
const sessionsPage = 50

// sessionsView is one page of a person's sessions.
type sessionsView struct {
	Rows   []sessionRow
	More   string // query of the next page; empty on the last page
	Others bool   // the user has other sessions besides the current one
}

const mySessions = `
	SELECT id, address, agent, created_at, seen_at, expires_at
	FROM dashboard_sessions
	WHERE account = $1 AND expires_at > now()
	ORDER BY created_at DESC, id DESC
	LIMIT $2 OFFSET $3`

func listSessions(c *call) (reply, error) {
	page := c.pageNumber("page")
	rows, err := db.Select[sessionRow](c.ctx, c.cfg.DB.Reader(), mySessions, c.who.account(), sessionsPage+1, (page-1)*sessionsPage)
	if err != nil {
		return reply{}, fault.Wrap(err, "list sessions")
	}
	v := sessionsView{Rows: rows[:min(sessionsPage, len(rows))], Others: page > 1 || len(rows) > 1}
	if len(rows) > sessionsPage {
		v.More = "?page=" + strconv.Itoa(page+1)
	}
	for i := range v.Rows {
		v.Rows[i].Current = v.Rows[i].ID == c.load.id
	}
	return reply{page: "sessions", view: v, frame: frame{Title: "Sessions"}}, nil
}

const (
	endMine     = `DELETE FROM dashboard_sessions WHERE account = $1 AND id = $2 RETURNING id, data`
	endMyOthers = `DELETE FROM dashboard_sessions WHERE account = $1 AND id <> $2 RETURNING id, data`
)

// endSessions ends the session named in the form, or all except this one.
func endSessions(c *call) (reply, error) {
	id := c.form.Get("id")
	if id == c.load.id {
		return logout(c)
	}
	ctx := audit.With(c.ctx, c.load.actor(c.who))
	var err error
	if id != "" {
		_, err = end(ctx, c.cfg.DB, audit.SessionEnded, endMine, c.who.account(), id)
	} else {
		_, err = end(ctx, c.cfg.DB, audit.SessionEnded, endMyOthers, c.who.account(), c.load.id)
	}
	if err != nil {
		return reply{}, err
	}
	if id == "" {
		return c.back(Prefix+"/sessions", "Every other session has ended."), nil
	}
	return c.back(Prefix+"/sessions", "The session has ended."), nil
}

package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/server/failure"
)

const (
	// requestTimeout is how long a page may take in all.
	requestTimeout = 12 * time.Second
	// answering is how much of it is left when the database stops working for the page.
	answering = 500 * time.Millisecond
	// maxForm bounds what is read of a form.
	maxForm = 64 << 10
)

// call is one request on its way, with what has been found out about it.
type call struct {
	*Server
	r       *http.Request
	ctx     context.Context
	id      string     // its X-Request-Id
	from    netip.Addr // the client's address; the zero one when it cannot be known
	base    string     // the public address of the dashboard, as far as the host
	route   string     // the pattern, for log and metrics
	allow   string     // the methods that the address takes, where it does not take this one
	handler handler
	form    url.Values // of a POST
	who     person
	guild   guild
	load    *loaded    // what the session's store has read and may write
	cookies []string   // to be set beside the session's
	said    string     // a sentence for the page itself
	failure *errorView // what went wrong with the form that the page shows again
	anew    string     // where a sign-in is begun again, if this one fails
}

// handler answers a call, or fails.
type handler func(*call) (reply, error)

type callKey struct{}

func callOf(r *http.Request) *call { return r.Context().Value(callKey{}).(*call) }

// refreshHeader marks a page that reads itself again while somebody has it open:
// nobody has done anything, so the session is not used.
const refreshHeader = "Guildhall-Refresh"

func (c *call) refreshing() bool {
	return c.r.Method == http.MethodGet && c.r.Header.Get(refreshHeader) != ""
}

// reply is what a handler has to say: a page, a redirect, or a body of its own.
type reply struct {
	status int // 0: 200
	page   string
	view   any
	frame  frame
	to     string // redirect
	body   []byte
	small  []byte // body, compressed before
	header http.Header
	stream func(context.Context, io.Writer) error // what is too long to be held, in place of body
}

var (
	errNotHere   = fault.New(fault.NotFound, "not_found", "There is nothing here, or nothing that you may see.")
	errSignedIn  = fault.New(fault.Unauthenticated, "not_signed_in", "Sign in first.")
	errPlain     = fault.New(fault.Forbidden, "https_required", "The dashboard answers over HTTPS only.")
	errElsewhere = fault.New(fault.Forbidden, "not_this_machine", "The stand-in for Discord signs in people who sit at this machine, and you come from another.")
	errCross     = fault.New(fault.Forbidden, "cross_site", "This was sent from another site, so nothing was done. Open the dashboard itself and try again.")
	errBigForm   = fault.New(fault.Invalid, "invalid_request", "The form is too large, or cannot be read.")
	errMethod    = fault.New(fault.Forbidden, failure.MethodNotAllowed, "This address does not take that method.")
)

// ServeHTTP answers one request below Prefix.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := s.now()
	c := &call{Server: s, id: db.NewID(), load: &loaded{}}
	h := w.Header()
	for name, value := range fixedHeaders {
		h[name] = value
	}
	h["X-Request-Id"] = []string{c.id}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	c.ctx = onAccount(context.WithValue(context.WithValue(ctx, callKey{}, c), loadedKey{}, c.load), db.Caller{})
	c.r = r.WithContext(c.ctx)
	c.from = auth.ClientIP(auth.Peer(r.RemoteAddr), r.Header.Values("X-Forwarded-For"), s.cfg.Proxies)
	c.route = "none"

	out, err := c.respond()
	if err == nil && out.page != "" {
		out.body, err = c.render(out)
	}
	if err == nil {
		err = c.keepSession(h)
	}
	if err != nil {
		out = c.refuse(err)
	}
	for name, values := range out.header {
		h[name] = values
	}
	if len(c.cookies) > 0 {
		h["Set-Cookie"] = append(c.cookies, h["Set-Cookie"]...) // a session's that begins comes last, and holds
	}
	status := out.status
	switch {
	case out.to != "":
		h.Set("Location", out.to)
		status = http.StatusSeeOther
	case status == 0:
		status = http.StatusOK
	}
	if len(out.body) > 0 && h.Get("Content-Type") == "" {
		h.Set("Content-Type", "text/html; charset=utf-8")
	}
	c.shrink(&out, h)
	w.WriteHeader(status)
	switch {
	case r.Method == http.MethodHead:
	case out.stream != nil && err == nil:
		c.send(r.Context(), w, out)
	default:
		_, _ = w.Write(out.body) // a caller that has gone tells nobody anything
	}
	took := s.now().Sub(start)
	s.met.WithLabelValues(c.route, strconv.Itoa(status)).Observe(took.Seconds())
	c.log(status, took, err)
}

// chunkTimeout is how long a caller may take to read what is written at a time of a
// file that is too long to be held.
const chunkTimeout = 30 * time.Second

// paced writes under chunkTimeout.
type paced struct {
	w   io.Writer
	rc  *http.ResponseController
	now func() time.Time
}

func (p paced) Write(b []byte) (int, error) {
	_ = p.rc.SetWriteDeadline(p.now().Add(chunkTimeout)) // where the server can
	return p.w.Write(b)
}

// send writes what is too long to be held. Where it cannot be finished the connection
// is broken, so that a file that was cut is not taken for a whole one.
func (c *call) send(ctx context.Context, w http.ResponseWriter, out reply) {
	if err := out.stream(ctx, paced{w, http.NewResponseController(w), c.now}); err != nil {
		c.cfg.Log.WarnContext(c.ctx, "a file of the dashboard was cut off", "request_id", c.id, "error", err)
		panic(http.ErrAbortHandler)
	}
}

// fixedHeaders are those of every response, whatever it is.
var fixedHeaders = http.Header{
	"Content-Security-Policy": {"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"},
	"Cross-Origin-Opener-Policy":   {"same-origin"},
	"Cross-Origin-Resource-Policy": {"same-origin"},
	"Referrer-Policy":              {"no-referrer"},
	"X-Content-Type-Options":       {"nosniff"},
	"X-Frame-Options":              {"DENY"},
	"Cache-Control":                {"no-store"},
	"Strict-Transport-Security":    {"max-age=31536000"},
}

// respond runs the checks that stand before every route, and the route.
func (c *call) respond() (out reply, err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default:
			err = fault.Panicked(p)
		}
	}()
	r := c.r
	if !auth.IsHTTPS(r.TLS != nil, auth.Peer(r.RemoteAddr), r.Header.Values("X-Forwarded-Proto"), c.cfg.Proxies) {
		return reply{}, errPlain
	}
	if !c.hostIsOurs() {
		return reply{}, errNotHere
	}
	if a, ok := c.assets[strings.TrimPrefix(r.URL.Path, Prefix+"/assets/")]; ok && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return c.asset(a), nil
	}
	if r.URL.Path == Prefix {
		return reply{to: Prefix + "/"}, nil
	}
	if !readable(r.URL) {
		return reply{}, errNotHere
	}
	if err := c.foreign.Check(r); err != nil {
		return reply{}, errCross.Because(err)
	}
	if c.standIn != nil && strings.HasPrefix(r.URL.Path, standInPath) {
		c.route = "stand-in"
		if !c.from.IsLoopback() {
			return reply{}, errElsewhere
		}
		return c.foreignPage(c.standIn)
	}
	if err := c.find(); err != nil {
		return reply{}, err
	}
	if err := c.readForm(); err != nil {
		return reply{}, err
	}
	token := c.sessionToken()
	bucket := bucketOf(token)
	if c.cfg.Limits.Exhausted(c.ctx, bucket, c.cfg.Session) {
		if err := c.take(bucket); err != nil { // which counts the refusal; its session is not read
			return reply{}, err
		}
	}
	if err := c.loadSession(token); err != nil {
		return reply{}, err
	}
	if err := c.spend(bucket); err != nil {
		return reply{}, err
	}
	return c.handler(c)
}

// readForm reads what was sent with the request.
func (c *call) readForm() error {
	if c.r.Method != http.MethodPost {
		return nil
	}
	c.r.Body = http.MaxBytesReader(nil, c.r.Body, maxForm)
	if err := c.r.ParseForm(); err != nil {
		return errBigForm.Because(err)
	}
	c.form = c.r.PostForm //nolint:forbidigo // a request's form, not a call
	for _, values := range c.form {
		if slices.ContainsFunc(values, func(v string) bool { return !isText(v) }) {
			return errBigForm
		}
	}
	return nil
}

// onAccount has the database work on an account, for as long as a page may take.
func onAccount(ctx context.Context, by db.Caller) context.Context {
	ctx = db.As(ctx, by)
	if end, ok := ctx.Deadline(); ok {
		db.EndBy(ctx, end.Add(-answering))
	}
	return ctx
}

// isText reports whether the database can hold s.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// readable reports whether everything that a URL says is text.
func readable(u *url.URL) bool {
	query, err := url.QueryUnescape(u.RawQuery)
	return err == nil && isText(u.Path) && isText(query)
}

// find looks the route up and notes its handler.
func (c *call) find() error {
	rec := &buffered{header: http.Header{}}
	c.mux.ServeHTTP(rec, c.r)
	switch {
	case c.handler != nil:
		return nil
	case rec.status == http.StatusMethodNotAllowed:
		c.allow = rec.header.Get("Allow")
		return errMethod
	default: // nothing, or the router's redirect to a cleaner path
		return errNotHere
	}
}

// hostIsOurs reports whether the request names the dashboard's own host, and
// notes the public address. A server for this machine alone answers to this
// machine's own names, so that no other name can be bound to it.
func (c *call) hostIsOurs() bool {
	if u := c.cfg.URL; u != nil {
		c.base = "https://" + u.Host
		return strings.EqualFold(withoutPort443(c.r.Host), withoutPort443(u.Host))
	}
	c.base = "https://" + c.r.Host
	host := c.r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && addr.IsLoopback()
}

func withoutPort443(host string) string { return strings.TrimSuffix(host, ":443") }

// refuse turns a failure into the page that says so, or, for the one route that
// programs call, into the API's form of an error.
func (c *call) refuse(err error) reply {
	f := words.Of(err)
	status, header := failure.Status(f), http.Header{}
	if f.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(failure.Seconds(f.RetryAfter)))
	}
	if c.allow != "" {
		header.Set("Allow", c.allow)
	}
	if c.r.Method == http.MethodDelete {
		header.Set("Content-Type", "application/json")
		body := fmt.Sprintf(`{"error":{"code":%q,"message":%q}}`, f.Code, f.Message)
		return reply{status: status, header: header, body: []byte(body)}
	}
	v := errorView{Title: titleOf(f), Code: f.Code, Message: f.Message, RequestID: c.id, To: c.loginPath(), SignIn: f == errSignedIn && c.cfg.Discord != nil}
	if f == errSignedIn && c.r.Method == http.MethodPost {
		v.Message, v.To = c.ended(), Prefix+"/login?to="+url.QueryEscape(c.formPage())
	}
	if c.anew != "" {
		v.SignIn, v.To = true, c.anew
	}
	out := reply{page: "error", frame: frame{Title: v.Title}, view: v}
	if c.comesBack(f) {
		if form, ok := c.again(); ok {
			c.failure, out = &v, form
		} else {
			v.Action, v.Sent = c.r.URL.EscapedPath(), c.sent()
			out.view = v
		}
	}
	out.status, out.header = status, header
	body, err := c.render(out)
	if err != nil {
		c.cfg.Log.ErrorContext(c.ctx, "the dashboard's page for errors cannot be made", "error", err)
		body = []byte(f.Message)
	}
	out.body = body
	return out
}

type errorView struct {
	Title, Code, Message, RequestID, To string
	SignIn                              bool
	Action                              string // where what was sent may be sent again; empty: it may not
	Sent                                []pair
}

// words are how the dashboard tells people what went wrong behind it.
var words = failure.Words{
	Unavailable: fault.New(fault.Unavailable, "service_unavailable",
		"The database does not answer, so nothing can be shown or changed now. This page works again as soon as it does: reload it in a few seconds.").
		After(5 * time.Second),
	Internal: fault.New(fault.Internal, "internal_error", "Something went wrong on our side. The request id helps whoever runs this server to find out what."),
}

// titles are those of the pages that say so.
var titles = map[int]string{
	http.StatusUnauthorized:        "Sign in",
	http.StatusForbidden:           "Refused",
	http.StatusNotFound:            "Not found",
	http.StatusTooManyRequests:     "Too often",
	http.StatusServiceUnavailable:  "Not available now",
	http.StatusInternalServerError: "Something went wrong",
}

func titleOf(f *fault.Error) string { return cmp.Or(titles[failure.Status(f)], "Not possible") }

// log writes the request's line: the route's pattern, never the path, because a
// link's path is a secret.
func (c *call) log(status int, took time.Duration, err error) {
	level := slog.LevelInfo
	if status >= http.StatusInternalServerError && c.ctx.Err() == nil {
		level = slog.LevelError
	}
	attrs := []slog.Attr{
		slog.String("request_id", c.id), slog.String("method", c.r.Method), slog.String("route", c.route),
		slog.Int("status", status), slog.Float64("took_ms", float64(took.Microseconds())/1000), slog.String("from", c.from.String()),
	}
	if c.who.ID != "" {
		attrs = append(attrs, slog.String("account", c.who.account()))
	}
	if c.guild.ID != "" {
		attrs = append(attrs, slog.String("guild_id", c.guild.ID))
	}
	if err != nil {
		f := words.Of(err)
		attrs = append(attrs, slog.String("code", f.Code))
		if cause := f.Unwrap(); cause != nil {
			attrs = append(attrs, slog.String("cause", cause.Error()))
		}
	}
	c.cfg.Log.LogAttrs(c.ctx, level, "dashboard", attrs...)
}

// buffered is a response that is kept, not sent.
type buffered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *buffered) Header() http.Header { return b.header }

func (b *buffered) Write(p []byte) (int, error) {
	if b.status == 0 {
		b.status = http.StatusOK
	}
	return b.body.Write(p)
}

func (b *buffered) WriteHeader(status int) {
	if b.status == 0 {
		b.status = status
	}
}

// foreignPage answers by a handler that knows nothing of calls.
func (c *call) foreignPage(h http.Handler) (reply, error) {
	c.r.Body = http.MaxBytesReader(nil, c.r.Body, maxForm)
	rec := &buffered{header: http.Header{}}
	h.ServeHTTP(rec, c.r)
	return reply{status: rec.status, header: rec.header, body: rec.body.Bytes()}, nil
}

// acting is the context in which the signed-in person makes a change, once the
// platform has said that they may. Nothing is changed without it, and it comes
// last: after the form is found to be right.
func (c *call) acting() (context.Context, error) {
	switch may, err := c.access.may(c.ctx, c.who, c.guild.ID, toChange); {
	case err != nil:
		return nil, err
	case !may:
		return nil, errNotHere
	}
	return audit.With(c.ctx, c.load.actor(c.who)), nil
}

func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// path is a path of the guild's: path("tokens", id).
func (c *call) path(parts ...string) string {
	p := Prefix + "/guilds/" + url.PathEscape(c.guild.ID) + "/"
	for i, part := range parts {
		if i > 0 {
			p += "/"
		}
		p += url.PathEscape(part)
	}
	return p
}

// back redirects to a path with a sentence for the next page.
func (c *call) back(to, format string, args ...any) reply {
	c.sessions.Put(c.ctx, keyNotice, fmt.Sprintf(format, args...))
	return reply{to: to}
}

func (c *call) loginPath() string {
	to := ""
	if c.r.Method == http.MethodGet && c.r.URL.Path != Prefix+"/" {
		to = "?to=" + url.QueryEscape(c.r.URL.RequestURI())
	}
	return Prefix + "/login" + to
}

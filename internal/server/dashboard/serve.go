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
	// requestTimeout bounds the time for one page.
	requestTimeout = 12 * time.Second
	// answering is the part of requestTimeout that is left for the response when the database
	// queries are cancelled.
	answering = 500 * time.Millisecond
	// maxForm bounds the size of a form.
	maxForm = 64 << 10
)

// call is one request with the data that was found out about it.
type call struct {
	*Server
	r       *http.Request
	ctx     context.Context
	id      string     // the request's X-Request-Id
	from    netip.Addr // the client's address; zero if it is unknown
	base    string     // public address of the dashboard, up to the host
	route   string     // the pattern, for log and metrics
	allow   string     // the methods that the path accepts, if it does not accept this one
	handler handler
	form    url.Values // of a POST request
	who     person
	guild   guild
	load    *loaded    // the session as it was read and may be written
	cookies []string   // to be set in addition to the session's cookie
	said    string     // a sentence to show on the page
	failure *errorView // error of the form that the page shows again
	anew    string     // where to start a new sign-in if this one fails
}

// handler responds to a call, or returns an error.
type handler func(*call) (reply, error)

type callKey struct{}

func callOf(r *http.Request) *call { return r.Context().Value(callKey{}).(*call) }

// refreshHeader marks the request of a page that reloads itself: the person has done nothing, so
// the session is not extended.
const refreshHeader = "Guildhall-Refresh"

func (c *call) refreshing() bool {
	return c.r.Method == http.MethodGet && c.r.Header.Get(refreshHeader) != ""
}

// reply is the result of a handler: a page, a redirect or another body.
type reply struct {
	status int // 0 means 200
	page   string
	view   any
	frame  frame
	to     string // redirect
	body   []byte
	small  []byte // body in compressed form
	header http.Header
	stream func(context.Context, io.Writer) error // writes a body that is too long for memory; replaces body
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

// ServeHTTP responds to one request below Prefix.
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
		h["Set-Cookie"] = append(c.cookies, h["Set-Cookie"]...) // the cookie of a new session comes last and so is the one that counts
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
		_, _ = w.Write(out.body) // the client may be gone, so the error is ignored
	}
	took := s.now().Sub(start)
	s.met.WithLabelValues(c.route, strconv.Itoa(status)).Observe(took.Seconds())
	c.log(status, took, err)
}

// chunkTimeout is how long a client may take to read one chunk of a streamed file.
const chunkTimeout = 30 * time.Second

// paced writes with a deadline of chunkTimeout for each write.
type paced struct {
	w   io.Writer
	rc  *http.ResponseController
	now func() time.Time
}

func (p paced) Write(b []byte) (int, error) {
	_ = p.rc.SetWriteDeadline(p.now().Add(chunkTimeout)) // if the server supports it
	return p.w.Write(b)
}

// send writes a streamed body. If the body cannot be completed, send breaks the connection, so that
// the client does not take a part for the whole file.
func (c *call) send(ctx context.Context, w http.ResponseWriter, out reply) {
	if err := out.stream(ctx, paced{w, http.NewResponseController(w), c.now}); err != nil {
		c.cfg.Log.WarnContext(c.ctx, "a file of the dashboard was cut off", "request_id", c.id, "error", err)
		panic(http.ErrAbortHandler)
	}
}

// fixedHeaders are the headers of every response.
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

// respond runs the checks before every route, and then the route.
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
		if err := c.take(bucket); err != nil { // take counts the refusal; the session is not read
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

// readForm reads the form of the request.
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

// onAccount makes the database count the work for a caller, at most for the time of one page.
func onAccount(ctx context.Context, by db.Caller) context.Context {
	ctx = db.As(ctx, by)
	if end, ok := ctx.Deadline(); ok {
		db.EndBy(ctx, end.Add(-answering))
	}
	return ctx
}

// isText reports whether the database can store s.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// readable reports whether all parts of a URL are valid text.
func readable(u *url.URL) bool {
	query, err := url.QueryUnescape(u.RawQuery)
	return err == nil && isText(u.Path) && isText(query)
}

// find finds the route and stores its handler.
func (c *call) find() error {
	rec := &buffered{header: http.Header{}}
	c.mux.ServeHTTP(rec, c.r)
	switch {
	case c.handler != nil:
		return nil
	case rec.status == http.StatusMethodNotAllowed:
		c.allow = rec.header.Get("Allow")
		return errMethod
	default: // no route, or the router's redirect to a cleaned path
		return errNotHere
	}
}

// hostIsOurs reports whether the request names the dashboard's host, and stores the public address.
// A server for this machine alone accepts only this machine's names, so that no other domain name
// can be pointed at the server.
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

// refuse turns an error into an error page or, for the one route that programs call, into the error
// format of the API.
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
	Action                              string // URL for sending the form again; empty if not allowed
	Sent                                []pair
}

// words are the dashboard's texts for errors that are not the person's.
var words = failure.Words{
	Unavailable: fault.New(fault.Unavailable, "service_unavailable",
		"The database does not answer, so nothing can be shown or changed now. This page works again as soon as it does: reload it in a few seconds.").
		After(5 * time.Second),
	Internal: fault.New(fault.Internal, "internal_error", "Something went wrong on our side. The request id helps whoever runs this server to find out what."),
}

// titles are the titles of the error pages.
var titles = map[int]string{
	http.StatusUnauthorized:        "Sign in",
	http.StatusForbidden:           "Refused",
	http.StatusNotFound:            "Not found",
	http.StatusTooManyRequests:     "Too often",
	http.StatusServiceUnavailable:  "Not available now",
	http.StatusInternalServerError: "Something went wrong",
}

func titleOf(f *fault.Error) string { return cmp.Or(titles[failure.Status(f)], "Not possible") }

// log writes the log line of the request. The line has the route's pattern and never the path,
// because the path of a link is a secret.
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

// buffered is a response that is stored instead of sent.
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

// foreignPage runs a handler that does not use calls.
func (c *call) foreignPage(h http.Handler) (reply, error) {
	c.r.Body = http.MaxBytesReader(nil, c.r.Body, maxForm)
	rec := &buffered{header: http.Header{}}
	h.ServeHTTP(rec, c.r)
	return reply{status: rec.status, header: rec.header, body: rec.body.Bytes()}, nil
}

// acting returns the context in which the signed-in person makes a change, after asking the
// platform whether the person may. Every change needs this context, and acting is called last,
// after the form was checked.
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

// path returns a path of the guild: path("tokens", id).
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

// back redirects to a path and shows a sentence on the next page.
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

package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// AttemptTimeout is how long an attempt may take, unless a Client says otherwise.
const AttemptTimeout = 15 * time.Second

// MaxExcerpt is how many bytes of a response's body are kept, at most.
const MaxExcerpt = 2 << 10

const (
	connectTimeout = 5 * time.Second

	maxBody    = 64 << 10 // bytes read of a response's body
	maxHeaders = 32 << 10

	// idleTimeout is shorter than any usual receiver keeps an idle connection
	// open, so that a request is not written into one that is just closing.
	idleTimeout = 3 * time.Second

	// Many guilds may have their endpoints at the same integrator's.
	maxIdlePerHost = 64
	maxIdle        = 512
)

// Client makes single attempts. It follows no redirect, uses no proxy, offers
// and decodes no compression, and connects only where its Guard permits.
type Client struct {
	// Timeout bounds one attempt, from the lookup of the name to the end of what
	// is read of the response. It is not changed once attempts are made.
	Timeout time.Duration

	secure, plain *http.Client
}

// NewClient makes a Client that trusts the authorities, or the system's if they
// are nil.
func NewClient(g *Guard, authorities *x509.CertPool) *Client {
	return &Client{secure: through(g, authorities, false), plain: through(g, authorities, true), Timeout: AttemptTimeout}
}

func through(g *Guard, authorities *x509.CertPool, plain bool) *http.Client {
	dialer := &net.Dialer{
		Timeout:  connectTimeout,
		Resolver: g.resolver,
		Control:  g.control(plain),
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:       nil,
			DialContext: dialer.DialContext,
			TLSClientConfig: &tls.Config{
				MinVersion: tls.VersionTLS12, RootCAs: authorities,
				ClientSessionCache: tls.NewLRUClientSessionCache(1024),
			},
			TLSHandshakeTimeout:    AttemptTimeout,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeaders,
			MaxIdleConns:           maxIdle,
			MaxIdleConnsPerHost:    maxIdlePerHost,
			IdleConnTimeout:        idleTimeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Authorities is the system's trusted authorities and those of a PEM file's
// content.
func Authorities(pem []byte) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("webhook CA: no certificate in it")
	}
	return pool, nil
}

// Response is what came back of one attempt: a status, or an error. The status
// decides, whatever became of the body after it.
type Response struct {
	Status     int
	Excerpt    string // the body's beginning, as text that the database takes
	RetryAfter string // the header as it came
	Err        error
}

var errNoStatus = errors.New("the answer's status is below 100")

// Post makes one attempt within the timeout. Its error is ErrNotAllowed, in
// the sense of errors.Is, if the address was not permitted.
func (c *Client) Post(ctx context.Context, url string, header http.Header, body []byte) Response {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil || ambiguous(req.URL.Hostname()) {
		return Response{Err: ErrNotAllowed}
	}
	req.Header = header
	via := c.secure
	if req.URL.Scheme != "https" {
		via = c.plain
	}
	res, err := via.Do(req)
	if err != nil {
		return Response{Err: err}
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode < http.StatusContinue { // net/http takes any three digits
		return Response{Err: errNoStatus}
	}
	if res.StatusCode == http.StatusSwitchingProtocols { // its body is the bare connection, which no timeout ends
		return Response{Status: res.StatusCode}
	}
	// The rest of a small response is read so that the connection can serve again; an
	// endless one is cut off with its connection.
	head, _ := io.ReadAll(io.LimitReader(res.Body, MaxExcerpt))
	_, _ = io.CopyN(io.Discard, res.Body, maxBody-MaxExcerpt)
	return Response{Status: res.StatusCode, Excerpt: excerpt(head), RetryAfter: res.Header.Get("Retry-After")}
}

// Close ends idle connections.
func (c *Client) Close() {
	c.secure.CloseIdleConnections()
	c.plain.CloseIdleConnections()
}

// excerpt makes text of what a receiver sent: valid UTF-8 without NUL, which
// the database refuses.
func excerpt(b []byte) string {
	s := strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= MaxExcerpt {
		return s
	}
	return strings.ToValidUTF8(s[:MaxExcerpt], "")
}

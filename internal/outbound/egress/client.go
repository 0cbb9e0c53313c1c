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

// AttemptTimeout is how long a delivery attempt may take, unless Client.Timeout differs.
const AttemptTimeout = 15 * time.Second

// MaxExcerpt is how many bytes of a response's body are stored at most.
const MaxExcerpt = 2 << 10

const (
	connectTimeout = 5 * time.Second

	maxBody = 64 << 10 // bytes of a response's body that are read
	// MaxHeaders is how many bytes the headers of a response may have.
	MaxHeaders = 32 << 10

	// idleTimeout is shorter than the idle timeouts of usual receivers, so that no request is sent
	// over a connection that the receiver is just closing.
	idleTimeout = 3 * time.Second

	// Endpoints of many guilds may have the same host.
	maxIdlePerHost = 64
	maxIdle        = 512
)

// Client makes single HTTP requests to receivers. It follows no redirects, uses no proxy, does not
// decompress, and connects only to addresses that its Guard permits.
type Client struct {
	// Timeout bounds one request, from the name lookup to reading the response. It must not be
	// changed once requests are made.
	Timeout time.Duration

	secure, plain *http.Client
}

// NewClient returns a Client that trusts the given authorities, or the system's if nil.
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
			MaxResponseHeaderBytes: MaxHeaders,
			MaxIdleConns:           maxIdle,
			MaxIdleConnsPerHost:    maxIdlePerHost,
			IdleConnTimeout:        idleTimeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Authorities returns the system's certificate authorities plus those in a PEM file's content.
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

// Response is the result of one request: a status, or an error. If there is a status, it decides,
// whatever happens while the body is read.
type Response struct {
	Status     int
	Excerpt    string // the beginning of the body, as text that Postgres can store
	RetryAfter string // the unparsed header
	Err        error
}

var errNoStatus = errors.New("the answer's status is below 100")

// Post sends one POST request within the timeout. If the address is not permitted, errors.Is(err,
// ErrNotAllowed) holds for its error.
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
	if res.StatusCode < http.StatusContinue { // net/http accepts any three digits as a status
		return Response{Err: errNoStatus}
	}
	if res.StatusCode == http.StatusSwitchingProtocols { // the body is the raw connection, on which no timeout is set
		return Response{Status: res.StatusCode}
	}
	// The rest of a small body is read, so that the connection can be reused. An endless body is
	// cut off by closing the connection.
	head, _ := io.ReadAll(io.LimitReader(res.Body, MaxExcerpt))
	_, _ = io.CopyN(io.Discard, res.Body, maxBody-MaxExcerpt)
	return Response{Status: res.StatusCode, Excerpt: excerpt(head), RetryAfter: res.Header.Get("Retry-After")}
}

// Close closes idle connections.
func (c *Client) Close() {
	c.secure.CloseIdleConnections()
	c.plain.CloseIdleConnections()
}

// excerpt turns the bytes of a body into valid UTF-8 without NUL, which Postgres refuses.
func excerpt(b []byte) string {
	s := strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= MaxExcerpt {
		return s
	}
	return strings.ToValidUTF8(s[:MaxExcerpt], "")
}

package webhooks

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

const (
	attemptLimit = 15 * time.Second
	connectLimit = 5 * time.Second

	answerLimit  = 64 << 10 // bytes read of an answer, at most
	excerptLimit = 2 << 10  // bytes kept of it
	headersLimit = 32 << 10

	// idleLimit is shorter than any usual receiver keeps an idle connection
	// open, so that a request is not written into one that is just closing.
	idleLimit = 3 * time.Second

	// hostConns idle connections are kept to one host: many guilds may have their
	// endpoints at the same integrator's.
	hostConns = 64

	userAgent = "Service-Webhooks/1"
)

// client makes single attempts. It follows no redirect, uses no proxy, offers
// and decodes no compression, and connects only where the guard lets it.
type client struct {
	secure, plain *http.Client
	limit         time.Duration // of one attempt
}

// newClient makes a client that trusts the system's authorities and those of
// extra.
func newClient(g *Guard, extra *x509.CertPool) *client {
	through := func(plain bool) *http.Client {
		dialer := &net.Dialer{
			Timeout:  connectLimit,
			Resolver: g.resolver,
			Control:  g.control(plain),
		}
		return &http.Client{
			Transport: &http.Transport{
				Proxy:       nil,
				DialContext: dialer.DialContext,
				TLSClientConfig: &tls.Config{
					MinVersion: tls.VersionTLS12, RootCAs: extra,
					ClientSessionCache: tls.NewLRUClientSessionCache(1024),
				},
				TLSHandshakeTimeout:    attemptLimit,
				DisableCompression:     true,
				MaxResponseHeaderBytes: headersLimit,
				MaxIdleConns:           512,
				MaxIdleConnsPerHost:    hostConns,
				IdleConnTimeout:        idleLimit,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return &client{secure: through(false), plain: through(true), limit: attemptLimit}
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

// answer is what came back of one attempt. The status decides, whatever became
// of the body after it.
type answer struct {
	Status     int
	Excerpt    string
	RetryAfter string
	Err        error
}

// send makes one attempt within the limit.
func (c *client) send(ctx context.Context, url string, header http.Header, body []byte) answer {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil || odd(req.URL.Hostname()) {
		return answer{Err: errNotAllowed}
	}
	req.Header = header
	via := c.secure
	if req.URL.Scheme != "https" {
		via = c.plain
	}
	res, err := via.Do(req)
	if err != nil {
		return answer{Err: err}
	}
	defer func() { _ = res.Body.Close() }()
	// What is left of a small answer is read so that the connection can serve
	// again; an endless one is cut off with its connection.
	head, _ := io.ReadAll(io.LimitReader(res.Body, excerptLimit))
	_, _ = io.CopyN(io.Discard, res.Body, answerLimit-excerptLimit)
	return answer{Status: res.StatusCode, Excerpt: excerpt(head), RetryAfter: res.Header.Get("Retry-After")}
}

// close ends idle connections.
func (c *client) close() {
	c.secure.CloseIdleConnections()
	c.plain.CloseIdleConnections()
}

// excerpt makes text of what a receiver sent: valid UTF-8 without NUL, which
// the database refuses.
func excerpt(b []byte) string {
	s := strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= excerptLimit {
		return s
	}
	return strings.ToValidUTF8(s[:excerptLimit], "")
}

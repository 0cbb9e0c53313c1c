package webhooks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Schedule is the pauses between the attempts of one delivery: one attempt more
// than it has pauses.
type Schedule []time.Duration

// DefaultSchedule is 13 attempts over 71.7 hours: dense at the start, for
// receivers that restart, and long enough for one that is down over a weekend.
func DefaultSchedule() Schedule {
	return Schedule{
		5 * time.Second, 30 * time.Second,
		2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 12 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// ParseSchedule reads a setting such as "1s,5s,1m". Empty is DefaultSchedule.
func ParseSchedule(s string) (Schedule, error) {
	if strings.TrimSpace(s) == "" {
		return DefaultSchedule(), nil
	}
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' })
	out := make(Schedule, 0, len(parts))
	for _, part := range parts {
		d, err := time.ParseDuration(part)
		if err != nil || d <= 0 || d > maxPause {
			return nil, fmt.Errorf("webhook retries: %q is not a pause between 1ms and %s", part, maxPause)
		}
		out = append(out, d)
	}
	if len(out) > 100 {
		return nil, fmt.Errorf("webhook retries: %d pauses, at most 100 make sense", len(out))
	}
	return out, nil
}

const (
	// maxPause bounds what a receiver's Retry-After and a setting may ask for.
	maxPause = 24 * time.Hour

	// spread is how far jitter moves a pause, either way.
	spread = 0.2

	// blockAfter failures in a row an endpoint is left alone for a while:
	// firstBlock, doubling to longestBlock. Then one attempt decides.
	blockAfter   = 5
	firstBlock   = 30 * time.Second
	longestBlock = 15 * time.Minute

	// disableAfter nothing but failures an endpoint is switched off, if two of
	// them lie disableSpan apart.
	disableAfter = 5 * 24 * time.Hour
	disableSpan  = 12 * time.Hour

	// refusedLimit attempts in a row at an address that is not allowed pause
	// the endpoint, and poisonLimit tries give up on a delivery that cannot be
	// sent at all.
	refusedLimit = 3
	poisonLimit  = 3
)

// next is the pause after the given failed attempt, the first being 1, moved by
// jitter in [0, 1) over the whole spread. There is none after the last.
func (s Schedule) next(attempt int, jitter float64) (time.Duration, bool) {
	if attempt < 1 || attempt > len(s) {
		return 0, false
	}
	return time.Duration(float64(s[attempt-1]) * (1 - spread + 2*spread*jitter)), true
}

// retryAfter reads a Retry-After header, seconds or a date, as a pause from now
// of at most maxPause. What is past, zero or neither of the two asks for nothing.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0, false
	}
	if isDigits(value) {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(maxPause/time.Second) {
			return maxPause, true // more digits than an int64 holds are still a number
		}
		return time.Duration(seconds) * time.Second, seconds > 0
	}
	at, err := http.ParseTime(value)
	if err != nil || !at.After(now) {
		return 0, false
	}
	return min(at.Sub(now), maxPause), true
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// outcome is the class of what became of one attempt, as the log and the
// metrics name it.
type outcome string

const (
	delivered   outcome = "delivered"
	redirected  outcome = "redirect"
	gone        outcome = "gone"
	throttled   outcome = "throttled"
	clientError outcome = "client_error"
	serverError outcome = "server_error"
	timedOut    outcome = "timeout"
	noName      outcome = "dns"
	refused     outcome = "connection_refused"
	reset       outcome = "connection_reset"
	badTLS      outcome = "tls"
	unreachable outcome = "unreachable"
	badAddress  outcome = "address_not_allowed"
	badAnswer   outcome = "invalid_response"

	// These three never reach the network.
	noSecret   outcome = "unreadable_secret" //nolint:gosec // the name of a failure
	badPayload outcome = "invalid_payload"
	noEndpoint outcome = "endpoint_deleted"
	internal   outcome = "internal"
)

// outcomes is every class, for metrics that start at zero.
var outcomes = []outcome{
	delivered, redirected, gone, throttled, clientError, serverError, timedOut, noName, refused, reset,
	badTLS, unreachable, badAddress, badAnswer, noSecret, badPayload, noEndpoint, internal,
}

// classify names what an attempt came to: by the receiver's status if there is
// one, else by what went wrong on the way. It never fails to find a class, and
// no network error is final.
func classify(status int, err error) outcome {
	switch {
	case status >= 200 && status < 300:
		return delivered
	case status == http.StatusGone:
		return gone
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return throttled
	case status >= 500:
		return serverError
	case status >= 400:
		return clientError
	case status >= 300:
		return redirected
	case status > 0:
		return badAnswer
	}

	var (
		dns    *net.DNSError
		verify *tls.CertificateVerificationError
		record tls.RecordHeaderError
		alert  tls.AlertError
		name   x509.HostnameError
		root   x509.UnknownAuthorityError
		cert   x509.CertificateInvalidError
		netErr net.Error
	)
	switch {
	case err == nil:
		return badAnswer
	case errors.Is(err, errNotAllowed):
		return badAddress
	case errors.As(err, &dns):
		return noName
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return timedOut
	case errors.As(err, &verify), errors.As(err, &record), errors.As(err, &alert),
		errors.As(err, &name), errors.As(err, &root), errors.As(err, &cert),
		errors.Is(err, http.ErrSchemeMismatch), strings.Contains(err.Error(), "tls: "):
		return badTLS
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		return unreachable
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return reset
	default:
		return badAnswer
	}
}

// advice is the sentence the log shows for a failed attempt. It says what the
// owner can do, and nothing of what lies behind an address.
func advice(o outcome, status int) string {
	switch o {
	case delivered:
		return ""
	case redirected:
		return fmt.Sprintf("The receiver answered %d. Redirects are not followed: register the final URL.", status)
	case gone:
		return "The receiver answered 410, so the endpoint was disabled."
	case throttled:
		return fmt.Sprintf("The receiver answered %d and asked for a pause.", status)
	case clientError:
		return fmt.Sprintf("The receiver answered %d. Check your receiver.", status)
	case serverError:
		return fmt.Sprintf("The receiver answered %d.", status)
	case timedOut:
		return fmt.Sprintf("No answer within %s.", attemptLimit)
	case noName:
		return "The receiver's name could not be resolved."
	case refused:
		return "The receiver refused the connection."
	case reset:
		return "The connection broke before an answer arrived."
	case badTLS:
		return "No trusted TLS connection could be made. Check the receiver's certificate."
	case unreachable:
		return "The receiver's network could not be reached."
	case badAddress:
		return notAllowed
	case badAnswer:
		return "The receiver's answer was not valid HTTP."
	case noSecret:
		return "The endpoint's signing secret could not be read. Rotate it."
	case badPayload:
		return "The stored event could not be read."
	case noEndpoint:
		return "The endpoint was deleted."
	case internal:
		return "The attempt failed inside the service."
	}
	return ""
}

// target checks the form of a receiver's URL: absolute, https or http, no
// credentials, no fragment, a port that exists. What it allows may still lead
// to an address that is not allowed. The error is a sentence for the caller.
func target(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, errors.New("is not a URL")
	case strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }):
		return nil, errors.New("must not contain white space, control characters or backslashes")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("must start with https://")
	case u.Opaque != "" || u.Hostname() == "":
		return nil, errors.New("must name a host")
	case u.User != nil:
		return nil, errors.New("must not contain credentials")
	case strings.Contains(raw, "#"):
		return nil, errors.New("must not have a fragment")
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errors.New("must have a port between 1 and 65535")
		}
	}
	return u, nil
}

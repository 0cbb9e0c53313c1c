package delivery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"guildhall/internal/outbound/egress"
)

// outcome is the class of the result of one attempt, as the log and the metrics name it.
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
	badResponse outcome = "invalid_response"
	longHeaders outcome = "headers_too_large"

	// These outcomes are of deliveries that are not sent at all.
	badPayload outcome = "invalid_payload"
	internal   outcome = "internal"

	// This outcome does not belong to an attempt.
	endpointDeleted outcome = "endpoint_deleted"
)

// Failure is the last failed attempt at an endpoint, as webhook_schedule keeps it.
type Failure struct {
	At         time.Time `json:"at"`
	DeliveryID string    `json:"delivery_id"`
	Status     *int      `json:"status"`
	Outcome    string    `json:"outcome"`
	Error      string    `json:"error"`
}

// ParseFailure reads a stored Failure; nil where there is none.
func ParseFailure(stored []byte) (*Failure, error) {
	if len(stored) == 0 {
		return nil, nil //nolint:nilnil // no attempt has failed
	}
	var f Failure
	return &f, json.Unmarshal(stored, &f)
}

// failure returns r as a failed attempt; nil if r is not a failure, or if the fault is the
// service's own.
func (r result) failure(at time.Time) *Failure {
	if !r.Logged || r.Outcome == delivered || r.Outcome == badPayload || r.Outcome == internal {
		return nil
	}
	status := 0
	if r.Status != nil {
		status = *r.Status
	}
	return &Failure{At: at, DeliveryID: r.ID, Status: r.Status, Outcome: string(r.Outcome), Error: advice(r.Outcome, status, r.decision.Quiet)}
}

// outcomes are all classes, for metrics that start at zero.
var outcomes = []outcome{
	delivered, redirected, gone, throttled, clientError, serverError, timedOut, noName, refused, reset,
	badTLS, unreachable, badAddress, badResponse, longHeaders, badPayload, internal,
}

// classify returns the class of an attempt's result: by the status of the receiver if there is one,
// or else by the network error. classify always finds a class, and no network error is final.
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
		return badResponse
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
		return badResponse
	case errors.Is(err, egress.ErrNotAllowed):
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
	// net/http has a type for neither: the first is of HTTP/1.1, the second of HTTP/2.
	case strings.Contains(err.Error(), "response headers exceeded"), strings.Contains(err.Error(), "header list larger than"):
		return longHeaders
	default:
		return badResponse
	}
}

// advice returns the sentence that the log shows for a failed attempt. After some failures, the
// receiver may have asked for a pause. The sentence says what the owner can do, and reveals nothing
// about the network behind an address.
func advice(o outcome, status int, quiet time.Duration) string {
	switch o {
	case delivered:
		return ""
	case redirected:
		return fmt.Sprintf("The receiver answered %d. Redirects are not followed: register the final URL.", status)
	case gone:
		return "The receiver answered 410, so the endpoint was disabled."
	case throttled:
		if quiet > 0 {
			return fmt.Sprintf("The receiver answered %d and asked for a pause.", status)
		}
		return fmt.Sprintf("The receiver answered %d.", status)
	case clientError:
		return fmt.Sprintf("The receiver answered %d. Check your receiver.", status)
	case serverError:
		return fmt.Sprintf("The receiver answered %d.", status)
	case timedOut:
		return fmt.Sprintf("No answer within %s.", egress.AttemptTimeout)
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
		return "The URL must lead to a public address."
	case badResponse:
		return "The receiver's answer was not valid HTTP."
	case longHeaders:
		return fmt.Sprintf("The headers of the receiver's answer are larger than %d KiB.", egress.MaxHeaders>>10)
	case endpointDeleted:
		return "The endpoint was deleted."
	case badPayload:
		return "The stored event could not be read."
	case internal:
		return "The attempt failed inside the service."
	}
	return ""
}

package webhooks

import (
	"net/http"
	"strconv"

	"guildhall/internal/outbound/delivery"
)

// Problem returns one sentence that says why a delivery has not arrived and how to fix that, or ""
// if nothing has gone wrong.
func (d Logged) Problem() string {
	if d.State == delivery.StateDelivered {
		return ""
	}
	if d.Outcome != nil && !d.EndedEarly {
		if text := problem(*d.Outcome, d.Status); text != "" {
			switch {
			case d.Status == nil || *d.Outcome != "client_error" && *d.Outcome != "server_error":
			case d.NextAttemptAt != nil:
				text += " It is tried again by itself."
			case d.State == delivery.StateFailed:
				text += " Redeliver once that is mended."
			}
			return text
		}
	}
	if d.Error != nil {
		return *d.Error
	}
	return ""
}

// problem returns the sentence about a failed attempt, by its outcome and the status of the
// receiver's response, if there was one. It returns "" for an outcome that is not the receiver's
// fault.
func problem(outcome string, status *int) string {
	text := remedies[outcome]
	if status == nil || text == "" || outcome == "invalid_response" {
		return text
	}
	switch *status {
	case http.StatusUnauthorized, http.StatusForbidden:
		text = "so it does not know who asks: check that it verifies the signature with this endpoint’s secret."
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		text = "so nothing there takes the event: check the address’s path, and that it takes POST."
	case http.StatusServiceUnavailable:
		text = "so it, or a proxy in front of it, takes nothing for now: check that it runs. It is tried again by itself."
	}
	return "The receiver answered " + strconv.Itoa(*status) + ", " + text
}

// remedies says how to fix each outcome of an attempt. If the receiver responded with a status, the
// sentence begins with it.
var remedies = map[string]string{
	"redirect":            "and redirects are not followed: edit the endpoint, and give it the final address.",
	"gone":                "so the endpoint was disabled: enable it once it takes events again.",
	"throttled":           "which asks for a pause: it is tried again by itself.",
	"client_error":        "so it does not accept the request: its log says what it expects.",
	"server_error":        "so something went wrong in the receiver: its log says what.",
	"timeout":             "The receiver did not answer within 15 seconds: let it answer first, and do its work afterwards.",
	"dns":                 "The receiver’s name could not be resolved: check the address for a slip.",
	"connection_refused":  "Nothing takes connections at this address: check that the receiver runs, and the port.",
	"connection_reset":    "The connection broke before an answer arrived: the receiver, or a proxy in front of it, hung up.",
	"tls":                 "No trusted TLS connection could be made: check the receiver’s certificate, its chain and its names.",
	"unreachable":         "No network leads to the receiver: check where its name points to.",
	"address_not_allowed": "The receiver’s name leads to an address that may not be called: it must be a public one.",
	"headers_too_large":   "The headers of the receiver’s answer are larger than 32 KiB: answer with fewer or shorter ones, such as cookies.",
	"invalid_response":    "What the receiver answered is not HTTP: check what listens at this port.",
}

package webhooks

import (
	"strings"
	"testing"
)

// Each cause of a failure has its own sentence, which says how to fix it.
func TestEachCauseHasItsSentence(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for cause, c := range map[string]struct {
		outcome string
		status  int
		text    string
	}{
		"500":                {"server_error", 500, "answered 500, so something went wrong in the receiver"},
		"401":                {"client_error", 401, "answered 401, so it does not know who asks"},
		"404":                {"client_error", 404, "answered 404, so nothing there takes the event"},
		"400":                {"client_error", 400, "answered 400, so it does not accept the request"},
		"301":                {"redirect", 301, "answered 301, and redirects are not followed"},
		"410":                {"gone", 410, "answered 410, so the endpoint was disabled"},
		"503":                {"throttled", 503, "answered 503, so it, or a proxy in front of it, takes nothing for now"},
		"429":                {"throttled", 429, "answered 429, which asks for a pause"},
		"a certificate":      {"tls", 0, "check the receiver’s certificate"},
		"a name":             {"dns", 0, "name could not be resolved"},
		"silence":            {"connection_reset", 0, "broke before an answer arrived"},
		"a refused one":      {"connection_refused", 0, "check that the receiver runs, and the port"},
		"a slow answer":      {"timeout", 0, "did not answer within 15 seconds"},
		"no HTTP":            {"invalid_response", 0, "is not HTTP"},
		"a status below 100": {"invalid_response", 99, "is not HTTP"},
		"a private address":  {"address_not_allowed", 0, "must be a public one"},
		"large headers":      {"headers_too_large", 0, "larger than 32 KiB"},
		"no network":         {"unreachable", 0, "No network leads to the receiver"},
	} {
		var status *int
		if c.status != 0 {
			status = &c.status
		}
		text := problem(c.outcome, status)
		if !strings.Contains(text, c.text) || !strings.HasSuffix(text, ".") {
			t.Errorf("%s: %q, want %q", cause, text, c.text)
		}
		if other, ok := seen[text]; ok && c.outcome != "invalid_response" {
			t.Errorf("%s and %s have one sentence: %s", cause, other, text)
		}
		seen[text] = cause
	}
	if text := problem("invalid_payload", nil); text != "" {
		t.Errorf("a fault of the service is the receiver's: %s", text)
	}
}

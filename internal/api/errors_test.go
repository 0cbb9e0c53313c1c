package api

import (
	"bytes"
	"compress/gzip"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"guildhall/internal/fault"
)

func TestSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "1", time.Nanosecond: "1", time.Second: "1", time.Second + 1: "2",
		59*time.Second + time.Millisecond: "60",
	} {
		if got := seconds(d); got != want {
			t.Errorf("%v is %s seconds, want %s", d, got, want)
		}
	}
}

func TestWhatEchoRefusesIsTheCallersFault(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]string{
		399: "internal_error", 400: "invalid_request", 404: "not_found", 405: "method_not_allowed", 413: "payload_too_large",
		499: "invalid_request", 500: "internal_error",
	} {
		if got := classify(echo.NewHTTPError(code, "secret"), "id"); got.Code != want || strings.Contains(got.Message, "secret") {
			t.Errorf("%d is %s: %s, want %s", code, got.Code, got.Message, want)
		}
	}
}

func TestOnlyOurOwnFailuresAreHidden(t *testing.T) {
	t.Parallel()
	if f := classify(fault.New(fault.Internal, "some_code", "secret"), "id"); f.Code != "internal_error" ||
		strings.Contains(f.Message, "secret") || !strings.Contains(f.Error(), "secret") {
		t.Errorf("a failure of ours is shown as %s: %s, and logged as %v", f.Code, f.Message, f)
	}
	if f := classify(fault.New(fault.Refused, "some_code", "a reason"), "id"); f.Code != "some_code" || f.Message != "a reason" {
		t.Errorf("a refusal is shown as %s: %s", f.Code, f.Message)
	}
}

func TestRetryAfterIsSaidWhereItIsKnown(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]string{-1: "", 0: "", 1: "1", 5 * time.Second: "5"} {
		w := httptest.NewRecorder()
		writeFault(w, fault.New(fault.Unavailable, "service_unavailable", "Later.").After(after))
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%v is said as %q, want %q", after, got, want)
		}
	}
}

// Compressing a short document makes it longer.
func TestADocumentIsCompressedWhereThatMakesItShorter(t *testing.T) {
	t.Parallel()
	equal := false
	for n := range 64 {
		body := bytes.Repeat([]byte("a"), n)
		p := newPage("text/plain", body)
		var packed bytes.Buffer
		z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = z.Write(body)
		_ = z.Close()
		equal = equal || packed.Len() == n
		if got, want := p.small != nil, packed.Len() < n; got != want {
			t.Errorf("%d bytes that compress to %d: compressed %v, want %v", n, packed.Len(), got, want)
		}
	}
	if !equal {
		t.Error("no document was as long as its compressed form")
	}
}

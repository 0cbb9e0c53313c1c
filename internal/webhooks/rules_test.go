package webhooks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTheScheduleIsThirteenAttemptsOver72Hours(t *testing.T) {
	t.Parallel()
	s := DefaultSchedule()
	if len(s) != 12 {
		t.Fatalf("%d pauses, want 12", len(s))
	}
	var sum time.Duration
	for attempt := 1; ; attempt++ {
		d, ok := s.next(attempt, 0.5)
		if !ok {
			if attempt != 13 {
				t.Errorf("no attempt after the %d-th, want the 13th", attempt)
			}
			break
		}
		sum += d
	}
	if h := sum.Hours(); h < 71.6 || h > 71.8 {
		t.Errorf("the attempts spread over %.1f h, want 71.7", h)
	}
}

func TestJitterStaysWithinAFifth(t *testing.T) {
	t.Parallel()
	s := DefaultSchedule()
	for attempt := 1; attempt <= len(s); attempt++ {
		for _, jitter := range []float64{0, 0.25, 0.999999} {
			d, _ := s.next(attempt, jitter)
			if base := s[attempt-1]; d < base*8/10 || d > base*12/10 {
				t.Errorf("pause %d with jitter %v is %s, base %s", attempt, jitter, d, base)
			}
		}
	}
	if _, ok := s.next(0, 0.5); ok {
		t.Error("there is a pause before the first attempt")
	}
}

func TestParseSchedule(t *testing.T) {
	t.Parallel()
	got, err := ParseSchedule("1s, 5s,1m")
	if err != nil || fmt.Sprint(got) != "[1s 5s 1m0s]" {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := ParseSchedule(" "); err != nil || len(got) != 12 {
		t.Errorf("an empty setting is %v, %v", got, err)
	}
	for _, bad := range []string{"1", "-1s", "0s", "25h", "1s,x", strings.Repeat("1s,", 101)} {
		if _, err := ParseSchedule(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

// Fault 31: what a receiver may ask for.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 15, 9, 30, 0, 0, time.UTC)
	for _, c := range []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"120", 2 * time.Minute, true},
		{" 7 ", 7 * time.Second, true},
		{"0", 0, false},
		{"86400", 24 * time.Hour, true},
		{"315360000", 24 * time.Hour, true},
		{"99999999999999999999999999", 24 * time.Hour, true},
		{"Mon, 15 Jun 2026 09:31:00 GMT", time.Minute, true},
		{"Monday, 15-Jun-26 09:31:00 GMT", time.Minute, true},
		{"Mon, 15 Jun 2036 09:31:00 GMT", 24 * time.Hour, true},
		{"Mon, 15 Jun 2026 09:29:00 GMT", 0, false},
		{"", 0, false},
		{"soon", 0, false},
		{"-5", 0, false},
		{"1.5", 0, false},
		{"1e3", 0, false},
		{"12 34", 0, false},
		{"２０", 0, false},
	} {
		if got, ok := retryAfter(c.value, now); got != c.want || ok != c.ok {
			t.Errorf("retryAfter(%q) = %s, %v, want %s, %v", c.value, got, ok, c.want, c.ok)
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error {
		return &url.Error{Op: "Post", URL: "https://x", Err: &net.OpError{Op: "dial", Net: "tcp", Err: err}}
	}
	for _, c := range []struct {
		status int
		err    error
		want   outcome
	}{
		{200, nil, delivered},
		{204, nil, delivered},
		{299, nil, delivered},
		{301, nil, redirected},
		{308, nil, redirected},
		{304, nil, redirected},
		{400, nil, clientError},
		{401, nil, clientError},
		{404, nil, clientError},
		{410, nil, gone},
		{429, nil, throttled},
		{503, nil, throttled},
		{500, nil, serverError},
		{502, nil, serverError},
		{599, nil, serverError},
		{101, nil, badAnswer},
		{0, nil, badAnswer},
		{0, wrap(&net.DNSError{Err: "no such host", IsNotFound: true}), noName},
		{0, wrap(&net.DNSError{Err: "i/o timeout", IsTimeout: true}), noName},
		{0, wrap(context.DeadlineExceeded), timedOut},
		{0, wrap(os.ErrDeadlineExceeded), timedOut},
		{0, wrap(&os.SyscallError{Syscall: "connect", Err: syscall.ECONNREFUSED}), refused},
		{0, wrap(&os.SyscallError{Syscall: "read", Err: syscall.ECONNRESET}), reset},
		{0, wrap(io.EOF), reset},
		{0, wrap(io.ErrUnexpectedEOF), reset},
		{0, wrap(syscall.EHOSTUNREACH), unreachable},
		{0, wrap(syscall.ENETUNREACH), unreachable},
		{0, wrap(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), badTLS},
		{0, wrap(tls.RecordHeaderError{Msg: "not TLS"}), badTLS},
		{0, wrap(errNotAllowed), badAddress},
		{0, errors.New("malformed HTTP response"), badAnswer},
	} {
		if got := classify(c.status, c.err); got != c.want {
			t.Errorf("classify(%d, %v) = %s, want %s", c.status, c.err, got, c.want)
		}
		if c.want != delivered && advice(c.want, c.status) == "" {
			t.Errorf("%s has no sentence for the log", c.want)
		}
	}
}

// The table of outcomes: what becomes of the delivery and of the endpoint.
func TestJudge(t *testing.T) {
	t.Parallel()
	s := Schedule{10 * time.Second, time.Minute}
	now := time.Date(2026, 6, 15, 9, 30, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		step int
		a    answer
		want verdict
	}{
		{"2xx", 0, answer{Status: 200}, verdict{State: stateDelivered, Step: 1, Logged: true, Outcome: delivered, Healthy: true}},
		{"410", 1, answer{Status: 410}, verdict{State: stateHeld, Step: 2, Logged: true, Outcome: gone, Disable: reasonGone}},
		{"500", 0, answer{Status: 500}, verdict{State: statePending, Pause: 10 * time.Second, Step: 1, Logged: true, Outcome: serverError, Failing: true, Blocks: true}},
		{"500 with Retry-After", 0, answer{Status: 500, RetryAfter: "60"}, verdict{State: statePending, Pause: 10 * time.Second, Step: 1, Logged: true, Outcome: serverError, Failing: true, Blocks: true}},
		{"404", 1, answer{Status: 404}, verdict{State: statePending, Pause: time.Minute, Step: 2, Logged: true, Outcome: clientError, Failing: true, Blocks: true}},
		{"the last attempt", 2, answer{Status: 404}, verdict{State: stateFailed, Step: 3, Logged: true, Outcome: clientError, Failing: true, Blocks: true}},
		{"429 asks for more than the schedule", 0, answer{Status: 429, RetryAfter: "60"}, verdict{State: statePending, Pause: time.Minute, Quiet: time.Minute, Step: 1, Logged: true, Outcome: throttled, Failing: true}},
		{"503 asks for less", 1, answer{Status: 503, RetryAfter: "1"}, verdict{State: statePending, Pause: time.Minute, Quiet: time.Second, Step: 2, Logged: true, Outcome: throttled, Failing: true}},
		{"429 asks for nothing", 0, answer{Status: 429, RetryAfter: "junk"}, verdict{State: statePending, Pause: 10 * time.Second, Step: 1, Logged: true, Outcome: throttled, Failing: true, Blocks: true}},
		{"an address", 0, answer{Err: errNotAllowed}, verdict{State: statePending, Pause: 10 * time.Second, Step: 1, Logged: true, Outcome: badAddress, Failing: true, Blocks: true, Refused: true}},
		{"no network error is final", 0, answer{Err: io.EOF}, verdict{State: statePending, Pause: 10 * time.Second, Step: 1, Logged: true, Outcome: reset, Failing: true, Blocks: true}},
	} {
		if got := s.judge(claimed{Step: c.step}, c.a, now, 0.5); got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

func TestWhatCannotBeSentIsGivenUpSoon(t *testing.T) {
	t.Parallel()
	s := DefaultSchedule()
	for step := range 3 {
		v := s.unsendable(claimed{Step: step}, noSecret, 0.5)
		if want := map[bool]string{true: stateFailed, false: statePending}[step == 2]; v.State != want || v.Failing {
			t.Errorf("try %d: %+v", step+1, v)
		}
	}
	for _, o := range []outcome{badPayload, noEndpoint} {
		if v := s.unsendable(claimed{}, o, 0.5); v.State != stateFailed {
			t.Errorf("%s: %+v", o, v)
		}
	}
}

func TestTarget(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"https://hooks.example.net", "https://hooks.example.net/", "https://hooks.example.net:8443/a/b?c=d&e=%20", "HTTPS://EXAMPLE.net/x",
		"https://[2001:4860:4860::8888]/x", "http://127.0.0.1:9000/", "https://example.net./x",
	} {
		if _, err := target(good); err != nil {
			t.Errorf("%q is refused: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "hooks.example.net", "//hooks.example.net/x", "ftp://example.net/", "file:///etc/passwd", "gopher://example.net", "javascript:alert(1)",
		"https://", "https:///path", "https:example.net", "https://user@example.net/", "https://user:pw@example.net/", "https://@example.net/", "https://example.net@127.0.0.1/",
		"https://example.net/#", "https://example.net/#frag", "https://example.net:0/", "https://example.net:65536/", "https://example.net:/", "https://example.net:x/",
		"https://exa mple.net/", "https://example.net/\n", "https://example.net\\@127.0.0.1/", "https://example.net/%zz", "https://[::1", "https://example.net/\x00", "https://%31%32%37.0.0.1/",
	} {
		if u, err := target(bad); err == nil {
			t.Errorf("%q passes as %v", bad, u)
		}
	}
}

func TestExcerptIsTextOfAtMost2KiB(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "ok", "a\x00b", "\xff\xfe", strings.Repeat("ü", 2000), strings.Repeat("\xff", 4096), strings.Repeat("x", 2047) + "ü"} {
		got := excerpt([]byte(in))
		if len(got) > excerptLimit || strings.ContainsRune(got, 0) || strings.ToValidUTF8(got, "?") != got {
			t.Errorf("excerpt(%.10q…) is %d bytes: %.20q", in, len(got), got)
		}
	}
}

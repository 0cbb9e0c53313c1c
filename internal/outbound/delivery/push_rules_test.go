package delivery

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
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"guildhall/internal/outbound/egress"
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
			if base := s[attempt-1]; d < base*8/10 || d > base*12/10 || jitter == 0 && d > base*81/100 {
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
	got, err := ParseSchedule("1s, 5s\t1m\n2m")
	if err != nil || fmt.Sprint(got) != "[1s 5s 1m0s 2m0s]" {
		t.Errorf("got %v, %v", got, err)
	}
	const published = "[5s 30s 2m0s 10m0s 30m0s 1h0m0s 2h0m0s 4h0m0s 8h0m0s 12h0m0s 20h0m0s 24h0m0s]"
	if got, err := ParseSchedule(" "); err != nil || fmt.Sprint(got) != published {
		t.Errorf("an empty setting is %v, %v", got, err)
	}
	if got, err := ParseSchedule(strings.Repeat("24h,", 100)); err != nil || len(got) != 100 {
		t.Errorf("the longest schedule is %v, %v", got, err)
	}
	for _, bad := range []string{",", " , ", "1", "-1s", "0s", "25h", "1s,x", strings.Repeat("1s,", 101)} {
		if _, err := ParseSchedule(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

// A receiver may ask for these pauses.
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
		{300, nil, redirected},
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
		{101, nil, badResponse},
		{0, nil, badResponse},
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
		{0, wrap(egress.ErrNotAllowed), badAddress},
		{0, errors.New("malformed HTTP response"), badResponse},
	} {
		if got := classify(c.status, c.err); got != c.want {
			t.Errorf("classify(%d, %v) = %s, want %s", c.status, c.err, got, c.want)
		}
		if c.want != delivered && advice(c.want, c.status, 0) == "" {
			t.Errorf("%s has no sentence for the log", c.want)
		}
	}
}

// The log says that a receiver has asked for a pause exactly if it has.
func TestALogSaysThatAPauseWasAskedForWhereItWas(t *testing.T) {
	t.Parallel()
	for pause, want := range map[time.Duration]string{
		0: "The receiver answered 429.", time.Hour: "The receiver answered 429 and asked for a pause.",
	} {
		v := DefaultSchedule().judge(0, throttled, pause, 0)
		if r := newResult(claimed{}, v, egress.Response{Status: 429}, time.Now(), time.Second); *r.Error != want {
			t.Errorf("after a Retry-After of %s the log says: %s", pause, *r.Error)
		}
	}
}

// The table of outcomes: what becomes of the delivery and of the endpoint.
func TestJudge(t *testing.T) {
	t.Parallel()
	s := Schedule{10 * time.Second, time.Minute}
	now := time.Date(2026, 6, 15, 9, 30, 0, 0, time.UTC)
	for _, c := range []struct {
		name     string
		step     int
		response egress.Response
		want     decision
	}{
		{
			name: "2xx", response: egress.Response{Status: 200},
			want: decision{State: StateDelivered, Step: 1, Logged: true, Outcome: delivered, Healthy: true},
		},
		{
			name: "410", step: 1, response: egress.Response{Status: 410},
			want: decision{State: StateHeld, Step: 2, Logged: true, Outcome: gone, Disable: reasonGone},
		},
		{
			name: "500", response: egress.Response{Status: 500},
			want: decision{State: StatePending, Pause: 10 * time.Second, Step: 1, Logged: true, Outcome: serverError, Failing: true, Blocks: true},
		},
		{
			name: "500 with Retry-After", response: egress.Response{Status: 500, RetryAfter: "60"},
			want: decision{State: StatePending, Pause: 10 * time.Second, Step: 1, Logged: true, Outcome: serverError, Failing: true, Blocks: true},
		},
		{
			name: "404", step: 1, response: egress.Response{Status: 404},
			want: decision{State: StatePending, Pause: time.Minute, Step: 2, Logged: true, Outcome: clientError, Failing: true, Blocks: true},
		},
		{
			name: "the last attempt", step: 2, response: egress.Response{Status: 404},
			want: decision{State: StateFailed, Step: 3, Logged: true, Outcome: clientError, Failing: true, Blocks: true},
		},
		{
			name: "429 asks for more than the schedule", response: egress.Response{Status: 429, RetryAfter: "60"},
			want: decision{State: StatePending, Pause: time.Minute, Quiet: time.Minute, Step: 1, Logged: true, Outcome: throttled, Failing: true},
		},
		{
			name: "503 asks for less", step: 1, response: egress.Response{Status: 503, RetryAfter: "1"},
			want: decision{State: StatePending, Pause: time.Minute, Quiet: time.Second, Step: 2, Logged: true, Outcome: throttled, Failing: true},
		},
		{
			name: "429 asks for nothing", response: egress.Response{Status: 429, RetryAfter: "junk"},
			want: decision{State: StatePending, Pause: 10 * time.Second, Step: 1, Logged: true, Outcome: throttled, Failing: true, Blocks: true},
		},
		{
			name: "an address", response: egress.Response{Err: egress.ErrNotAllowed},
			want: decision{
				State: StatePending, Pause: 10 * time.Second, Step: 1, Logged: true,
				Outcome: badAddress, Failing: true, Blocks: true, Refused: true,
			},
		},
		{
			name: "no network error is final", response: egress.Response{Err: io.EOF},
			want: decision{State: StatePending, Pause: 10 * time.Second, Step: 1, Logged: true, Outcome: reset, Failing: true, Blocks: true},
		},
	} {
		pause, _ := retryAfter(c.response.RetryAfter, now)
		if got := s.judge(c.step, classify(c.response.Status, c.response.Err), pause, 0.5); got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

// RELIABILITY.md, Events.
func TestWhatCannotBeSentIsGivenUpSoon(t *testing.T) {
	t.Parallel()
	s := DefaultSchedule()
	for step := range 3 {
		v := s.judge(step, internal, 0, 0.5)
		if want := map[bool]string{true: StateFailed, false: StatePending}[step == 2]; v.State != want || v.Failing {
			t.Errorf("try %d: %+v", step+1, v)
		}
	}
	if v := s.judge(0, badPayload, 0, 0.5); v.State != StateFailed {
		t.Errorf("%+v", v)
	}
}

// An endpoint is disabled after three refusals in a row, each at least five minutes after the one
// before, however many attempts a single wrong answer of its name server makes fail.
// RELIABILITY.md, Outgoing calls.
func TestRefusalsCountWhenTheyLieApart(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 15, 9, 30, 0, 0, time.UTC)
	refusal, failure := decision{Failing: true, Blocks: true, Refused: true}, decision{Failing: true, Blocks: true}
	for about, tt := range map[string]struct {
		minutes []float64 // instants of refusals; a negative number is another failure
		want    string
	}{
		"six at once":                        {[]float64{0, 0, 0, 0, 0.1, 0.1}, ""},
		"three that lie apart":               {[]float64{0, 5, 10}, reasonAddress},
		"many within ten minutes":            {[]float64{0, 2, 4, 6, 8, 9.9}, ""},
		"many over more than ten minutes":    {[]float64{0, 2, 4, 6, 8, 11}, reasonAddress},
		"another failure lies between them":  {[]float64{0, 5, -6, 10, 15}, ""},
		"and then there are three once more": {[]float64{0, 5, -6, 10, 15, 20}, reasonAddress},
	} {
		h, at := health{}, now
		for _, m := range tt.minutes {
			v := refusal
			if m < 0 {
				m, v = -m, failure
			}
			at = now.Add(time.Duration(m * float64(time.Minute)))
			h = h.after(v, at, nil)
		}
		if got := h.disable(at); got != tt.want {
			t.Errorf("%s: disabled for %q, want %q", about, got, tt.want)
		}
	}
}

// A success ends a pause that is over, or that its claim knew, and no other pause.
func TestASuccessEndsTheQuietTimeThatItKnew(t *testing.T) {
	t.Parallel()
	at := time.Now()
	past, soon, later := at.Add(-time.Minute), at.Add(time.Minute), at.Add(2*time.Minute)
	for _, c := range []struct{ quiet, knew, want *time.Time }{
		{nil, nil, nil}, {&past, nil, nil}, {&soon, nil, &soon}, {&soon, &soon, nil}, {&later, &soon, &later},
	} {
		h := health{Failures: 1, QuietUntil: c.quiet}.after(decision{Healthy: true}, at, c.knew)
		if h != (health{QuietUntil: c.want}) {
			t.Errorf("quiet until %v, of which it knew %v: %+v", c.quiet, c.knew, h)
		}
	}
}

// From the fifth failure in a row on, each failure blocks the endpoint for longer, unless the
// endpoint is already blocked.
func TestWhatAFailureBlocks(t *testing.T) {
	t.Parallel()
	at := time.Now()
	past, soon := at.Add(-time.Minute), at.Add(time.Minute)
	in := func(d time.Duration) *time.Time { until := at.Add(d); return &until }
	for _, c := range []struct{ is, want health }{
		{health{Failures: blockAfter - 2}, health{Failures: blockAfter - 1}},
		{health{Failures: blockAfter - 1}, health{Failures: blockAfter, Blocks: 1, BlockedUntil: in(firstBlock)}},
		{health{Failures: 5, Blocks: 1, BlockedUntil: &soon}, health{Failures: 6, Blocks: 1, BlockedUntil: &soon}},
		{health{Failures: 5, Blocks: 1, BlockedUntil: &at}, health{Failures: 6, Blocks: 2, BlockedUntil: in(2 * firstBlock)}},
		{health{Failures: 5, Blocks: 2, BlockedUntil: &past}, health{Failures: 6, Blocks: 3, BlockedUntil: in(4 * firstBlock)}},
		{health{Failures: 99, Blocks: 60, BlockedUntil: &past}, health{Failures: 100, Blocks: 61, BlockedUntil: in(longestBlock)}},
	} {
		if got := c.is.blocked(at); !reflect.DeepEqual(got, c.want) {
			t.Errorf("one more failure makes of %+v %+v, want %+v", c.is, got, c.want)
		}
	}
	if h := (health{}).after(decision{Failing: true}, at, nil); h.Failures != 0 || h.FailingSince == nil {
		t.Errorf("a failure that blocks nothing makes %+v", h)
	}
}

// A later pause makes an earlier one longer, never shorter, and a pause of zero is no pause. An
// endpoint waits until the later end of its block and its pause.
func TestQuietTimesAreLengthened(t *testing.T) {
	t.Parallel()
	at := time.Now()
	soon, later := at.Add(time.Minute), at.Add(2*time.Minute)
	for _, c := range []struct {
		is    *time.Time
		quiet time.Duration
		want  *time.Time
	}{{nil, 0, nil}, {nil, time.Minute, &soon}, {&soon, 2 * time.Minute, &later}, {&later, time.Minute, &later}} {
		if h := (health{QuietUntil: c.is}).after(decision{Quiet: c.quiet}, at, nil); !reflect.DeepEqual(h, health{QuietUntil: c.want}) {
			t.Errorf("%v more makes of quiet until %v %+v, want until %v", c.quiet, c.is, h, c.want)
		}
	}
	for _, h := range []health{{QuietUntil: &later, BlockedUntil: &soon}, {QuietUntil: &soon, BlockedUntil: &later}, {BlockedUntil: &later}} {
		if got := h.notBefore(); got != later {
			t.Errorf("%+v is left alone until %v, want %v", h, got, later)
		}
	}
}

// The log can be filtered by the class of a status; a status that no receiver can mean has no
// class.
func TestTheClassOfAStatus(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{0: "none", 199: "none", 200: "2xx", 299: "2xx", 300: "3xx", 599: "5xx", 600: "none"} {
		if got := responseClass(status); got != want {
			t.Errorf("%d is of class %s, want %s", status, got, want)
		}
	}
}

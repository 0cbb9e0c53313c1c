package ratelimit_test

import (
	"testing"
	"time"

	"guildhall/internal/access/ratelimit"
)

func TestParseQuota(t *testing.T) {
	t.Parallel()
	good := map[string]ratelimit.Quota{
		"600/1m":     {Limit: 600, Window: time.Minute},
		" 120/60s ":  {Limit: 120, Window: time.Minute},
		"1/1h":       {Limit: 1, Window: time.Hour},
		"5000/250ms": {Limit: 5000, Window: 250 * time.Millisecond},
		"off":        {},
	}
	for text, want := range good {
		got, err := ratelimit.ParseQuota(text)
		if err != nil || got != want {
			t.Errorf("ParseQuota(%q) = %v, %v; want %v", text, got, err, want)
		}
		if again, err := ratelimit.ParseQuota(got.String()); err != nil || again != got {
			t.Errorf("%q does not survive its own text %q: %v, %v", text, got.String(), again, err)
		}
	}
	for _, text := range []string{
		"", "600", "/1m", "600/", "0/1m", "-1/1m", "600/1", "600/0s", "600/-1m", "1e3/1m", "600/1m/1m", "Off",
		"99999999999/1m", "2000000000/1s", "6 0/1m", "10/9000h",
	} {
		if got, err := ratelimit.ParseQuota(text); err == nil {
			t.Errorf("ParseQuota(%q) = %v; want an error", text, got)
		}
	}
}

func FuzzParseQuota(f *testing.F) {
	for _, s := range []string{"600/1m", "off", "1/1ns", "9/9h9m9s", "+1/1m", "1/1.5s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q, err := ratelimit.ParseQuota(s)
		if err != nil || q.Off() {
			return
		}
		if q.Limit < 1 || q.Window < time.Millisecond || q.Window/time.Duration(q.Limit) < 1 {
			t.Fatalf("ParseQuota(%q) let %+v through", s, q)
		}
		if again, err := ratelimit.ParseQuota(q.String()); err != nil || again != q {
			t.Fatalf("%q became %q, which became %+v, %v", s, q.String(), again, err)
		}
	})
}

func TestResetAt(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000_200)
	for d, want := range map[time.Duration]int64{0: 1_000_001, 800 * time.Millisecond: 1_000_001, time.Second: 1_000_002} {
		if got := (ratelimit.Result{Reset: d}).ResetAt(now); got != want {
			t.Errorf("ResetAt in %v = %d, want %d", d, got, want)
		}
	}
}

package chat

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/disgoorg/disgo/rest"
)

// TestRefusalBudget: the platform bans an address after too many refusals, so
// calls stop leaving before that.
func TestRefusalBudget(t *testing.T) {
	t.Parallel()
	l := newLimits(rest.NewNoopRateLimiter())
	at := rest.CreateMessage.Compile(nil, "1")
	answer := func(status int, header http.Header) {
		t.Helper()
		if err := l.UnlockBucket(at, &http.Response{StatusCode: status, Header: header}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 * invalidAll {
		answer(200, http.Header{})
		answer(404, http.Header{})
		answer(500, http.Header{})
		answer(429, http.Header{"X-Ratelimit-Scope": {"shared"}, "X-Ratelimit-Bucket": {"b"}, "Content-Type": {"application/json"}})
	}
	if l.spent(true) {
		t.Fatal("answers that bring no ban nearer were counted")
	}
	for i := range invalidAll {
		if l.spent(false) || l.spent(true) != (i >= invalidBackground) {
			t.Fatalf("after %d refusals: spent %v, in the background %v", i, l.spent(false), l.spent(true))
		}
		answer([]int{401, 403}[i%2], http.Header{})
	}
	if !l.spent(false) {
		t.Fatal("calls go on after the budget is spent")
	}
	l.window = l.window.Add(-invalidWindow - time.Second)
	if l.spent(true) {
		t.Fatal("still spent ten minutes later")
	}
	answer(403, http.Header{})
	if l.invalid != 1 {
		t.Errorf("a new window starts with %d refusals, want 1", l.invalid)
	}
}

// TestSpentSendsNothing: the refusal is our own then, and certain.
func TestSpentSendsNothing(t *testing.T) {
	t.Parallel()
	d, err := NewDiscord(Config{Token: "t", URL: "http://127.0.0.1:1/api/v10"})
	if err != nil {
		t.Fatal(err)
	}
	d.limits.window, d.limits.invalid = time.Now(), invalidAll
	f, ok := func() (*Failure, bool) {
		_, err := d.SendMessage(context.Background(), Message{ChannelID: "1", Content: "x"})
		f, ok := err.(*Failure) //nolint:errorlint // the very type is promised
		return f, ok
	}()
	if !ok || f.Uncertain || f.Message != errSpent.Error() {
		t.Errorf("got %+v", f)
	}
}

func TestUserOf(t *testing.T) {
	t.Parallel()
	for token, want := range map[string]string{
		"MTIzNDU2Nzg5MDEyMzQ1Njc4.GxYzAb.secret": "123456789012345678",
		"bm90IGEgbnVtYmVy.x.y":                   "",
		"chattest-bot-token":                     "",
		"":                                       "",
	} {
		if got := userOf(token); got != want {
			t.Errorf("userOf(%q) = %q, want %q", token, got, want)
		}
	}
}

package chat

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/disgoorg/disgo/rest"
)

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

// TestBucketsAreDropped: the number of buckets stays bounded while many callers come and go. No two
// calls of one bucket are made concurrently, and no caller unlocks a bucket that another has
// locked.
func TestBucketsAreDropped(t *testing.T) {
	t.Parallel()
	l := newLimits()
	l.large = 4
	var mu sync.Mutex
	under := map[string]int{}
	var group sync.WaitGroup
	for i := range 32 {
		group.Go(func() {
			for j := range 200 {
				channel := fmt.Sprint((i + j) % 9)
				l.mu.Lock()
				l.next, l.large = time.Time{}, 4 // without a rate, and dropping idle buckets all the time
				l.mu.Unlock()
				turn, err := l.wait(context.Background(), rest.CreateMessage.Compile(nil, channel))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if under[channel]++; under[channel] != 1 {
					t.Errorf("%d calls at once", under[channel])
				}
				mu.Unlock()
				mu.Lock()
				under[channel]--
				mu.Unlock()
				turn.end()
			}
		})
	}
	group.Wait()
	l.large = 4
	for i := range 50 {
		l.release(l.acquire("route", fmt.Sprint(i)))
		l.large = 4
	}
	if n := len(l.buckets); n > 5 {
		t.Errorf("%d idle buckets are kept", n)
	}
}

// TestBucketsOfThePlatform: routes that share a bucket of the platform wait for one another.
// RELIABILITY.md, Messages.
func TestBucketsOfThePlatform(t *testing.T) {
	t.Parallel()
	l := newLimits()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, route := range []*rest.Endpoint{rest.CreateMessage, rest.GetMessages} {
		turn, err := l.wait(ctx, route.Compile(nil, "1"))
		if err != nil {
			t.Fatal(err)
		}
		turn.learn(&roundTrip{status: 200, header: http.Header{
			"X-Ratelimit-Bucket": {"shared"}, "X-Ratelimit-Remaining": {"3"}, "X-Ratelimit-Reset-After": {"3600"},
		}}, nil)
		turn.end()
	}
	turn, err := l.wait(ctx, rest.CreateMessage.Compile(nil, "1"))
	if err != nil {
		t.Fatal(err)
	}
	turn.learn(&roundTrip{status: 200, header: http.Header{
		"X-Ratelimit-Bucket": {"shared"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset-After": {"3600.5"},
	}}, nil)
	turn.end()
	if _, err := l.wait(ctx, rest.GetMessages.Compile(nil, "1")); err == nil {
		t.Error("the other route of an empty bucket may go")
	}
	if turn, err := l.wait(ctx, rest.GetMessages.Compile(nil, "2")); err != nil {
		t.Errorf("another channel may not: %v", err)
	} else {
		turn.end()
	}
}

package webhooks

import (
	"testing"
	"testing/synctest"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// A guild that needs many lookups gets an eighth of the slots; its further lookups wait and get an
// error that says so. Other guilds are not affected.
func TestAGuildWaitsForItsOwnLookups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lookups := newLookups()
		look := func(guild string, d time.Duration) error {
			release, err := lookups.Acquire(t.Context(), db.Caller{Guild: guild})
			if err != nil {
				return err
			}
			time.Sleep(d)
			release()
			return nil
		}
		results := make(chan error, 100)
		for range cap(results) {
			go func() { results <- look("greedy", 1500*time.Millisecond) }()
		}
		synctest.Wait()
		if s := lookups.Stats(); s.Held != 2 {
			t.Errorf("one guild has %d lookups at once, want 2", s.Held)
		}
		began := time.Now()
		if err := look("modest", 0); err != nil || time.Since(began) > 0 {
			t.Errorf("another guild waited %s: %v", time.Since(began), err)
		}
		counts := map[string]int{}
		for range cap(results) {
			err := <-results
			f, _ := fault.As(err)
			if err == nil {
				counts["looked up"]++
			} else {
				counts[f.Code]++
			}
		}
		// Two at a time take 1.5 s each, and none starts after 2 s.
		if counts["looked up"] != 2*guildLookups || counts["rate_limited"] != cap(results)-2*guildLookups {
			t.Errorf("got %v", counts)
		}
	})
}

// When other guilds use all slots, the error says that.
func TestWhoFindsNoLookupFreeIsToldToComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lookups := newLookups()
		for i := range 16 {
			if _, err := lookups.Acquire(t.Context(), db.Caller{Guild: string(rune('a' + i/guildLookups))}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := lookups.Acquire(t.Context(), db.Caller{Guild: "z"})
		if f, ok := fault.As(err); !ok || f.Kind != fault.Unavailable || f.RetryAfter != time.Second {
			t.Errorf("got %v", err)
		}
	})
}

// A URL is accepted only with the result of its own lookup.
func TestAnAddressIsUsedAsItWasLookedUp(t *testing.T) {
	t.Parallel()
	const url = "https://receiver.example/"
	refusal := fault.New(fault.Refused, "webhook_url_not_allowed", "No.")
	if err := lookupResult(withLookup(t.Context(), url, nil), url); err != nil {
		t.Errorf("looked up: %v", err)
	}
	if err := lookupResult(withLookup(t.Context(), url, refusal), url); err != error(refusal) { //nolint:errorlint // it is this very error
		t.Errorf("looked up and refused: %v", err)
	}
	if lookupResult(t.Context(), url) == nil || lookupResult(withLookup(t.Context(), url, nil), "https://other.example/") == nil {
		t.Error("an address is used that was not looked up")
	}
}

package chat_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/outbound/chat"
)

// people starts a platform with one guild, 5. User 1 owns it, user 2 has role 8, which may manage
// it, user 7 has role 9, which administers it, user 3 has no role, and no other user is a member.
func people(t *testing.T, before func(w http.ResponseWriter, r *http.Request) bool) (*chat.Discord, string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /guilds/5", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"owner_id":"1","roles":[` +
			`{"id":"5","permissions":"1024"},{"id":"8","permissions":"32"},{"id":"9","permissions":"8"}]}`))
	})
	for user, roles := range map[string]string{"2": `["8"]`, "3": `[]`, "7": `["9"]`} {
		mux.HandleFunc("GET /guilds/5/members/"+user, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"roles":%s}`, roles)
		})
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if before == nil || before(w, r) {
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	d, err := chat.NewDiscord(chat.Config{Token: "t", URL: srv.URL, Budget: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return d, srv.URL
}

func TestWhoManagesAGuildIsThePlatformsToTell(t *testing.T) {
	t.Parallel()
	d, _ := people(t, nil)
	for user, want := range map[string]chat.Rights{
		"1": {Manage: true, Administer: true}, "2": {Manage: true}, "3": {}, "4": {},
		"7": {Manage: true, Administer: true},
	} {
		if rights, err := d.RightsOf(t.Context(), "5", user); err != nil || rights != want {
			t.Errorf("user %s: %v, %v", user, rights, err)
		}
	}
	if rights, err := d.RightsOf(t.Context(), "6", "1"); rights != (chat.Rights{}) || !errors.Is(err, chat.ErrNotInGuild) {
		t.Errorf("where the bot is not: %v, %v", rights, err)
	}
	for permissions, want := range map[string]bool{"32": true, "8": true, "40": true, "1024": false, "0": false, "": false, "x": false} {
		if chat.Manages(permissions) != want {
			t.Errorf("permissions %q: %v", permissions, !want)
		}
	}
}

// RELIABILITY.md, Overload.
func TestQuestionsAboutPeopleLeaveTheBotMostOfItsRate(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var at []time.Time
	d, _ := people(t, func(http.ResponseWriter, *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
		return true
	})
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() { _, _ = d.RightsOf(t.Context(), "5", "1") })
	}
	all.Wait()
	slices.SortFunc(at, time.Time.Compare)
	for i := range at {
		if i >= 20 && at[i].Sub(at[i-20]) < time.Second {
			t.Fatalf("%d calls came within %v", 21, at[i].Sub(at[i-20]))
		}
	}
	if len(at) < 20 {
		t.Errorf("%d calls came in all", len(at))
	}
}

// A call with another authorization counts as a call of our address.
func TestCallsBesideTheBotsSpendTheSameBudgets(t *testing.T) {
	t.Parallel()
	var calls, status atomic.Int64
	status.Store(http.StatusForbidden)
	d, url := people(t, func(w http.ResponseWriter, _ *http.Request) bool {
		calls.Add(1)
		if s := int(status.Load()); s != http.StatusOK {
			w.Header().Set("Retry-After", "30")
			w.Header().Set("X-RateLimit-Global", "true")
			w.WriteHeader(s)
			return false
		}
		return true
	})
	client := &http.Client{Transport: d.Beside()}
	get := func() (int, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/users/@me", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		return res.StatusCode, res.Body.Close()
	}
	if got, err := get(); err != nil || got != http.StatusForbidden {
		t.Fatalf("answers %d, %v", got, err)
	}
	if n := d.Refused(t.Context()); n != 1 {
		t.Errorf("%d refused calls are counted, want 1", n)
	}
	status.Store(http.StatusTooManyRequests) // all calls pause, including the bot's
	if got, err := get(); err != nil || got != http.StatusTooManyRequests {
		t.Fatalf("answers %d, %v", got, err)
	}
	status.Store(http.StatusOK)
	before := calls.Load()
	if _, err := get(); err == nil {
		t.Error("a call leaves while everything pauses")
	}
	if _, err := d.RightsOf(t.Context(), "5", "1"); err == nil {
		t.Error("a question leaves while everything pauses")
	}
	if calls.Load() != before {
		t.Error("the platform was asked while everything pauses")
	}
}

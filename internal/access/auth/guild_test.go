package auth

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// A token acts in its own guild; a bot key acts in the guilds that it lists, or in every guild if
// it lists none.
func TestWhereACredentialActs(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	n := s.tokens(t)
	key := func(guilds ...string) string {
		k, err := CreateKey(t.Context(), s.DB, NewKey{Env: "test", Name: "k", Guilds: guilds})
		if err != nil {
			t.Fatal(err)
		}
		return k.Secret
	}
	for what, c := range map[string]struct {
		secret string
		serves map[string]bool
	}{
		"a token":              {s.token(t).Secret, map[string]bool{guild: true, "2": false, "3": false}},
		"a key of two guilds":  {key(guild, "2"), map[string]bool{guild: true, "2": true, "3": false}},
		"a key of every guild": {key(), map[string]bool{guild: true, "2": true, "3": true}},
	} {
		p, err := n.Authenticate(t.Context(), c.secret, anywhere)
		if err != nil {
			t.Fatal(err)
		}
		for id, want := range c.serves {
			if p.Serves(id) != want {
				t.Errorf("%s acts in guild %s: %t, want %t", what, id, !want, want)
			}
		}
	}
}

// That a guild exists is cached as long as a token's row, while the cache is trusted; any other
// state is read anew each time.
func TestThatAGuildIsThereIsRemembered(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	begun := time.Now()
	now := begun
	n := s.tokens(t, func(c *Config) { c.Clock = func() time.Time { return now } })
	leaves := func(leaves bool) {
		t.Helper()
		var at, after *time.Time
		if leaves {
			at, after = new(begun), new(begun.Add(time.Hour))
		}
		dbtest.Exec(t, s.DB, `UPDATE guilds SET removed_at = $1, removed_after = $2`, at, after)
	}
	want := func(when string, want Presence) {
		t.Helper()
		if got, err := n.Guild(t.Context(), guild); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", when, got, err, want)
		}
	}
	// at sets the clock and lets a heartbeat return that was sent at that time.
	at := func(after time.Duration) {
		now = begun.Add(after)
		sent := now
		n.lease.Store(&sent)
	}
	want("without trust", Present)
	leaves(true)
	want("without trust, once it leaves", Leaving)
	at(0)
	n.gens.all.Add(1) // a new connection of the listener begins
	want("with trust", Leaving)
	want("with trust, asked again", Leaving)
	leaves(false)
	want("taken back", Present)
	leaves(true)
	want("remembered", Present)
	at(tokenTTL)
	want("remembered for as long as a row", Present)
	at(tokenTTL + 1)
	want("after that", Leaving)
	at(-1)
	want("by a clock that went back", Leaving)
	at(0)
	n.gens.all.Add(1)
	want("after an announcement", Leaving)
}

// Metrics show whether the cache is trusted, and whether the listener's connection is silent.
func TestTrustAndSilenceAreMeasured(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	reg := prometheus.NewRegistry()
	sent := time.Now()
	n := s.tokens(t, func(c *Config) { c.Metrics, c.Clock = reg, func() time.Time { return sent } })
	want := func(trusted, silent float64) {
		t.Helper()
		for name, want := range map[string]float64{"guildhall_token_cache_in_sync": trusted, "guildhall_listener_down": silent} {
			if got := testutil.Metric(t, reg, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	}
	want(0, 0)
	n.lease.Store(&sent)
	n.silent.Store(true)
	want(1, 1)
}

// Without an authenticated caller there is no actor.
func TestWithoutACredentialThereIsNoAuthor(t *testing.T) {
	t.Parallel()
	p := &Principal{By: By{GuildID: "1", ID: "t"}}
	if got := From(With(t.Context(), p)); got != p {
		t.Errorf("the context has %v", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("a context without a credential has one")
		}
	}()
	From(context.Background())
}

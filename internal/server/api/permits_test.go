package api

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"guildhall/internal/access/auth"
)

// large returns a request with a large body, from a token of the guild or from a bot key.
func large(t *testing.T, by auth.By) *reqState {
	t.Helper()
	rs := stated(t.Context())
	rs.by = &auth.Principal{By: by}
	return rs
}

// The permits for large bodies are limited by guild and by bot key.
func TestLargeBodiesHavePermitsByGuildAndByKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		permits := &largeBodyPermits{}
		acquired := func(by auth.By) bool {
			begun := time.Now()
			_, err := permits.acquire(large(t, by))
			if waited := time.Since(begun); err == nil && waited != 0 || err != nil && (!errors.Is(err, errLargeBodies) || waited != 2*time.Second) {
				t.Fatalf("%v after %v", err, waited)
			}
			return err == nil
		}
		count := func(n int, by func(i int) auth.By) (got int) {
			for i := range n {
				if acquired(by(i)) {
					got++
				}
			}
			return got
		}
		if got := count(3, func(int) auth.By { return auth.By{GuildID: "a", ID: "t"} }); got != 2 {
			t.Errorf("a guild's tokens have %d permits", got)
		}
		if got := count(8, func(i int) auth.By { return auth.By{GuildID: string(rune('b' + i/2)), ID: "t"} }); got != 6 {
			t.Errorf("other guilds have %d permits", got)
		}
		key := func(id string) auth.By { return auth.By{GuildID: "a", ID: "bk_" + id} }
		if got := count(5, func(int) auth.By { return key("one") }); got != 4 {
			t.Errorf("a bot key has %d permits", got)
		}
		if got := count(6, func(i int) auth.By { return key(string(rune('a' + i))) }); got != 4 {
			t.Errorf("other bot keys have %d permits", got)
		}
	})
}

func TestALargeBodyWaitsForAPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		permits, by := &largeBodyPermits{}, auth.By{GuildID: "a", ID: "t"}
		var release func(error)
		for range largeBodiesOfGuild {
			var err error
			if release, err = permits.acquire(large(t, by)); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		time.AfterFunc(time.Second, func() { release(nil) })
		if _, err := permits.acquire(large(t, by)); err != nil || time.Since(begun) != time.Second {
			t.Errorf("it waited for %v: %v", time.Since(begun), err)
		}
		gone := large(t, by)
		var leave context.CancelFunc
		gone.ctx, leave = context.WithCancel(gone.ctx)
		time.AfterFunc(time.Second, leave)
		if _, err := permits.acquire(gone); !errors.Is(err, context.Canceled) || time.Since(begun) != 2*time.Second {
			t.Errorf("whose caller has gone waited until %v: %v", time.Since(begun), err)
		}
	})
}

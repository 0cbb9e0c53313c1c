package webhooks

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/fault"
)

// holdPlace takes a place and keeps it for the given time.
func holdPlace(t *testing.T, p *places, guild string, d time.Duration) error {
	t.Helper()
	release, err := p.take(t.Context(), guild)
	if err != nil {
		return err
	}
	time.Sleep(d)
	release()
	return nil
}

func TestAGuildWaitsForItsOwnLookups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces()
		results := make(chan error, 100)
		for range cap(results) {
			go func() { results <- holdPlace(t, p, "greedy", 1500*time.Millisecond) }()
		}
		synctest.Wait()
		if got := p.held["greedy"]; got != guildPlaces {
			t.Errorf("one guild has %d lookups at once, want %d", got, guildPlaces)
		}
		began := time.Now()
		if err := holdPlace(t, p, "modest", 0); err != nil || time.Since(began) > 0 {
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
		// Two at once, 1.5 s each, and nobody begins after 2 s.
		if counts["looked up"] != 2*guildPlaces || counts["rate_limited"] != cap(results)-2*guildPlaces {
			t.Errorf("got %v", counts)
		}
		if len(p.held)+len(p.waits)+len(p.turns) != 0 || p.free != lookupPlaces {
			t.Errorf("left behind: %+v", p)
		}
	})
}

func TestGuildsGetPlacesInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces()
		var release []func()
		for i := range lookupPlaces {
			r, err := p.take(t.Context(), string(rune('a'+i/guildPlaces)))
			if err != nil {
				t.Fatal(err)
			}
			release = append(release, r)
		}
		order := make(chan string, 3)
		wait := func(guild string) {
			go func() {
				if _, err := p.take(t.Context(), guild); err == nil {
					order <- guild
				}
			}()
			synctest.Wait()
		}
		wait("x")
		wait("x")
		wait("y")
		for range 3 {
			release[0]()
			release = release[1:]
			synctest.Wait()
		}
		if got := <-order + <-order + <-order; got != "xyx" {
			t.Errorf("places went to %s, want xyx", got)
		}
		_, err := p.take(t.Context(), "z") // all are taken, by others
		if f, ok := fault.As(err); !ok || f.Kind != fault.Unavailable || f.RetryAfter != time.Second {
			t.Errorf("who waits for others gets %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.take(ctx, "z"); err == nil {
			t.Error("a caller that has gone got a place")
		}
	})
}

// Whatever is asked for, given back and given up, no guild has more than its
// share and no place stays free that somebody could have.
func TestPlacesAreNeitherLostNorMade(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPlaces()
		guild := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"})
		waiting := map[string][]<-chan struct{}{}
		taken := map[string]int{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			g := guild.Draw(t, "guild")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				waiting[g] = append(waiting[g], p.ask(g))
			case 2:
				if taken[g] > 0 {
					taken[g]--
					p.giveBack(g)
				}
			case 3:
				if n := len(waiting[g]); n > 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "who")
					p.forget(g, waiting[g][i])
					waiting[g] = append(waiting[g][:i:i], waiting[g][i+1:]...)
				}
			}
			sum := 0
			for g, line := range waiting {
				for len(line) > 0 {
					select {
					case <-line[0]:
						line = line[1:]
						taken[g]++
						continue
					default:
					}
					break
				}
				waiting[g] = line
				if len(line) > 0 && p.free > 0 && taken[g] < guildPlaces {
					t.Fatalf("%s waits beside %d free places", g, p.free)
				}
			}
			for g, n := range taken {
				if sum += n; n > guildPlaces || n != p.held[g] {
					t.Fatalf("%s has %d places, the book says %d", g, n, p.held[g])
				}
			}
			if sum+p.free != lookupPlaces {
				t.Fatalf("%d taken and %d free", sum, p.free)
			}
		}
	})
}

package idempotency

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var unanswered = func(context.Context, Request) (*Answer, error) { return nil, nil }

// entered is what Enter came to, and after how long.
type entered struct {
	leave  func()
	answer *Answer
	err    error
	after  time.Duration
}

// enter calls Enter on a goroutine of its own.
func enter(ctx context.Context, g *Gate, r Request, replay func(context.Context, Request) (*Answer, error)) <-chan entered {
	done := make(chan entered, 1)
	begun := time.Now()
	go func() {
		leave, answer, err := g.Enter(ctx, r, replay)
		done <- entered{leave, answer, err, time.Since(begun)}
	}()
	return done
}

// RELIABILITY.md, Writes.
func TestGate(t *testing.T) {
	t.Parallel()
	r := Request{TokenID: "t", Key: "k"}
	// inside returns a gate with somebody inside.
	inside := func(t *testing.T) (*Gate, func()) {
		t.Helper()
		g := NewGate()
		leave, answer, err := g.Enter(t.Context(), r, func(context.Context, Request) (*Answer, error) {
			return nil, errors.New("whoever comes first asks for no answer")
		})
		if leave == nil || answer != nil || err != nil {
			t.Fatalf("the first: %v, %v", answer, err)
		}
		return g, leave
	}
	for name, test := range map[string]func(t *testing.T){
		"other keys and other tokens are other doors": func(t *testing.T) {
			g, _ := inside(t)
			for _, other := range []Request{{TokenID: "t", Key: "l"}, {TokenID: "u", Key: "k"}} {
				if e := <-enter(t.Context(), g, other, unanswered); e.leave == nil || e.err != nil || e.after != 0 {
					t.Errorf("%v: %+v", other, e)
				}
			}
		},
		"a duplicate gets the answer that is there at once": func(t *testing.T) {
			g, _ := inside(t)
			e := <-enter(t.Context(), g, r, func(_ context.Context, asked Request) (*Answer, error) {
				return &Answer{Status: 200, Location: asked.Key}, nil
			})
			if e.leave != nil || e.err != nil || e.after != 0 || e.answer == nil || e.answer.Location != "k" {
				t.Errorf("%+v", e)
			}
		},
		"a duplicate that cannot look fails": func(t *testing.T) {
			g, _ := inside(t)
			gone := errors.New("gone")
			if e := <-enter(t.Context(), g, r, func(context.Context, Request) (*Answer, error) { return nil, gone }); !errors.Is(e.err, gone) || e.leave != nil {
				t.Errorf("%+v", e)
			}
		},
		"who waited gets the answer that was made meanwhile": func(t *testing.T) {
			g, leave := inside(t)
			var answer *Answer
			e := enter(t.Context(), g, r, func(context.Context, Request) (*Answer, error) { return answer, nil })
			synctest.Wait()
			time.Sleep(time.Second)
			answer = &Answer{Status: 201}
			leave()
			if e := <-e; e.answer != answer || e.leave != nil || e.err != nil || e.after != time.Second {
				t.Errorf("%+v", e)
			}
		},
		"who waited and finds no answer gets in, one at a time": func(t *testing.T) {
			g, leave := inside(t)
			waiting := make(chan entered, 2)
			for range 2 {
				go func() { waiting <- <-enter(t.Context(), g, r, unanswered) }()
			}
			synctest.Wait()
			leave()
			synctest.Wait()
			if len(waiting) != 1 {
				t.Fatalf("%d got in", len(waiting))
			}
			first := <-waiting
			first.leave()
			if e := <-waiting; e.leave == nil || e.err != nil {
				t.Errorf("%+v", e)
			}
		},
		"after two seconds the key is in use": func(t *testing.T) {
			g, _ := inside(t)
			if e := <-enter(t.Context(), g, r, unanswered); !errors.Is(e.err, inUse) || e.after != 2*time.Second {
				t.Errorf("%+v", e)
			}
		},
		"two seconds are all, however often somebody else gets in first": func(t *testing.T) {
			g, leave := inside(t)
			e := enter(t.Context(), g, r, func(context.Context, Request) (*Answer, error) {
				_, _ = g.try(gateKey{r.TokenID, r.Key}) // whoever is free to gets in before
				return nil, nil
			})
			synctest.Wait()
			time.Sleep(1500 * time.Millisecond)
			leave()
			if e := <-e; !errors.Is(e.err, inUse) || e.after != 2*time.Second {
				t.Errorf("%+v", e)
			}
		},
		"the ninth that waits for keys of one token is refused at once": func(t *testing.T) {
			g, leave := inside(t)
			waiting := make(chan entered)
			for range 8 {
				go func() { waiting <- <-enter(t.Context(), g, r, unanswered) }()
			}
			synctest.Wait()
			if e := <-enter(t.Context(), g, r, unanswered); !errors.Is(e.err, inUse) || e.after != 0 {
				t.Errorf("the ninth: %+v", e)
			}
			if e := <-enter(t.Context(), g, Request{TokenID: "u", Key: "k"}, unanswered); e.err != nil {
				t.Errorf("another token: %+v", e)
			}
			leave()
			for range 8 {
				e := <-waiting
				if e.err != nil {
					t.Fatal(e.err)
				}
				e.leave()
			}
			if len(g.running) != 1 || len(g.waiting) != 0 { // one: the other token's
				t.Errorf("%d are inside and %d tokens wait after all have left", len(g.running), len(g.waiting))
			}
		},
		"a caller that leaves waits no longer": func(t *testing.T) {
			g, _ := inside(t)
			ctx, hangUp := context.WithTimeout(t.Context(), time.Second)
			defer hangUp()
			if e := <-enter(ctx, g, r, unanswered); !errors.Is(e.err, context.DeadlineExceeded) || e.after != time.Second || len(g.waiting) != 0 {
				t.Errorf("%+v, %d wait", e, len(g.waiting))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, test)
		})
	}
}

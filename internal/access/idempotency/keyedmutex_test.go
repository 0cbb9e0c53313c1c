package idempotency

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var unfinished = func(context.Context, Request) (*Response, error) { return nil, nil }

// entered is the result of a call of Lock, and how long it took.
type entered struct {
	unlock   func()
	response *Response
	err      error
	after    time.Duration
}

// enter calls Lock in a goroutine.
func enter(ctx context.Context, m *KeyedMutex, r Request, replay func(context.Context, Request) (*Response, error)) <-chan entered {
	done := make(chan entered, 1)
	begun := time.Now()
	go func() {
		unlock, response, err := m.Lock(ctx, r, replay)
		done <- entered{unlock, response, err, time.Since(begun)}
	}()
	return done
}

// RELIABILITY.md, Writes.
func TestKeyedMutex(t *testing.T) {
	t.Parallel()
	r := Request{TokenID: "t", Key: "k"}
	// inside returns a locked mutex.
	inside := func(t *testing.T) (*KeyedMutex, func()) {
		t.Helper()
		m := NewKeyedMutex()
		unlock, response, err := m.Lock(t.Context(), r, func(context.Context, Request) (*Response, error) {
			return nil, errors.New("whoever comes first asks for no answer")
		})
		if unlock == nil || response != nil || err != nil {
			t.Fatalf("the first: %v, %v", response, err)
		}
		return m, unlock
	}
	for name, test := range map[string]func(t *testing.T){
		"other keys, tokens and guilds are other doors": func(t *testing.T) {
			m, _ := inside(t)
			for _, other := range []Request{{TokenID: "t", Key: "l"}, {TokenID: "u", Key: "k"}, {GuildID: "1", TokenID: "t", Key: "k"}} {
				if e := <-enter(t.Context(), m, other, unfinished); e.unlock == nil || e.err != nil || e.after != 0 {
					t.Errorf("%v: %+v", other, e)
				}
			}
		},
		"a duplicate gets the answer that is there at once": func(t *testing.T) {
			m, _ := inside(t)
			e := <-enter(t.Context(), m, r, func(_ context.Context, asked Request) (*Response, error) {
				return &Response{Status: 200, Location: asked.Key}, nil
			})
			if e.unlock != nil || e.err != nil || e.after != 0 || e.response == nil || e.response.Location != "k" {
				t.Errorf("%+v", e)
			}
		},
		"a duplicate that cannot look fails": func(t *testing.T) {
			m, _ := inside(t)
			gone := errors.New("gone")
			e := <-enter(t.Context(), m, r, func(context.Context, Request) (*Response, error) { return nil, gone })
			if !errors.Is(e.err, gone) || e.unlock != nil {
				t.Errorf("%+v", e)
			}
		},
		"who waited gets the answer that was made meanwhile": func(t *testing.T) {
			m, unlock := inside(t)
			var response *Response
			e := enter(t.Context(), m, r, func(context.Context, Request) (*Response, error) { return response, nil })
			synctest.Wait()
			time.Sleep(time.Second)
			response = &Response{Status: 201}
			unlock()
			if e := <-e; e.response != response || e.unlock != nil || e.err != nil || e.after != time.Second {
				t.Errorf("%+v", e)
			}
		},
		"who waited and cannot look fails": func(t *testing.T) {
			m, unlock := inside(t)
			var gone error
			e := enter(t.Context(), m, r, func(context.Context, Request) (*Response, error) { return nil, gone })
			synctest.Wait()
			gone = errors.New("gone")
			unlock()
			if e := <-e; !errors.Is(e.err, gone) || e.unlock != nil {
				t.Errorf("%+v", e)
			}
		},
		"who waited and finds no answer gets in, one at a time": func(t *testing.T) {
			m, unlock := inside(t)
			waiting := make(chan entered, 2)
			for range 2 {
				go func() { waiting <- <-enter(t.Context(), m, r, unfinished) }()
			}
			synctest.Wait()
			unlock()
			synctest.Wait()
			if len(waiting) != 1 {
				t.Fatalf("%d got in", len(waiting))
			}
			first := <-waiting
			first.unlock()
			if e := <-waiting; e.unlock == nil || e.err != nil {
				t.Errorf("%+v", e)
			}
		},
		"a bot key that waits in one guild may wait in another": func(t *testing.T) {
			m, _ := inside(t)
			there := Request{GuildID: "1", TokenID: r.TokenID, Key: r.Key}
			if _, _, err := m.Lock(t.Context(), there, unfinished); err != nil {
				t.Fatal(err)
			}
			for range maxWaiting {
				enter(t.Context(), m, r, unfinished)
			}
			synctest.Wait()
			if e := <-enter(t.Context(), m, r, unfinished); !errors.Is(e.err, inUse) || e.after != 0 {
				t.Errorf("one too many here: %+v", e)
			}
			if e := <-enter(t.Context(), m, there, unfinished); e.after != 2*time.Second {
				t.Errorf("the first there: %+v", e)
			}
		},
		"after two seconds the key is in use": func(t *testing.T) {
			m, _ := inside(t)
			if e := <-enter(t.Context(), m, r, unfinished); !errors.Is(e.err, inUse) || e.after != 2*time.Second {
				t.Errorf("%+v", e)
			}
		},
		"two seconds are all, however often somebody else gets in first": func(t *testing.T) {
			m, unlock := inside(t)
			e := enter(t.Context(), m, r, func(context.Context, Request) (*Response, error) {
				_, _ = m.tryLock(mutexKey{caller{r.GuildID, r.TokenID}, r.Key}) // another caller gets the lock first
				return nil, nil
			})
			synctest.Wait()
			time.Sleep(1500 * time.Millisecond)
			unlock()
			if e := <-e; !errors.Is(e.err, inUse) || e.after != 2*time.Second {
				t.Errorf("%+v", e)
			}
		},
		"the ninth that waits for keys of one token is refused at once": func(t *testing.T) {
			m, unlock := inside(t)
			waiting := make(chan entered)
			for range 8 {
				go func() { waiting <- <-enter(t.Context(), m, r, unfinished) }()
			}
			synctest.Wait()
			if e := <-enter(t.Context(), m, r, unfinished); !errors.Is(e.err, inUse) || e.after != 0 {
				t.Errorf("the ninth: %+v", e)
			}
			if e := <-enter(t.Context(), m, Request{TokenID: "u", Key: "k"}, unfinished); e.err != nil {
				t.Errorf("another token: %+v", e)
			}
			unlock()
			for range 8 {
				e := <-waiting
				if e.err != nil {
					t.Fatal(e.err)
				}
				e.unlock()
			}
			if len(m.running) != 1 || len(m.waiting) != 0 { // one entry: the other token's
				t.Errorf("%d are inside and %d tokens wait after all have left", len(m.running), len(m.waiting))
			}
		},
		"a caller that leaves waits no longer": func(t *testing.T) {
			m, _ := inside(t)
			ctx, hangUp := context.WithTimeout(t.Context(), time.Second)
			defer hangUp()
			if e := <-enter(ctx, m, r, unfinished); !errors.Is(e.err, context.DeadlineExceeded) || e.after != time.Second || len(m.waiting) != 0 {
				t.Errorf("%+v, %d wait", e, len(m.waiting))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, test)
		})
	}
}

package main

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"time"

	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
)

// All listeners are closed concurrently: a slow caller of one listener takes no time from the
// callers of another. RELIABILITY.md, Operation.
func TestListenersEndTogether(t *testing.T) {
	t.Parallel()
	begun, over := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(begun)
		<-over
	}))
	defer slow.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	go func() {
		if res, err := slow.Client().Get(slow.URL); err == nil {
			res.Body.Close()
		}
	}()
	<-begun
	stopped := make(chan error, 1)
	n := &node{log: slog.New(slog.DiscardHandler)}
	go func() { stopped <- n.closePublic(t.Context(), []*http.Server{slow.Config, other.Config}) }()
	testutil.Eventually(t, "the other takes nobody any more", func() bool {
		c, err := net.Dial("tcp", other.Listener.Addr().String())
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	close(over)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A signal that is sent twice at once, as timeout(1) does, stops the program in order; a later
// second signal ends it immediately.
func TestASignalThatComesTwiceIsOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		more time.Duration // how long further signals are sent while the program stops
		code int
	}{"twice": {0, 0}, "insisting": {time.Minute, -1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := apitest.New(t)
			api.Do(t, "listWebhookEndpoints", "").Want(t, 200, `{"data":[]}`)
			running := make(chan *os.Process, 1)
			from := newAway(t, api, func(r *http.Request) {
				if r.Method == http.MethodDelete { // the shutdown takes a while
					p, until := <-running, time.Now().Add(c.more)
					for p.Signal(syscall.SIGTERM) == nil && time.Now().Before(until) && r.Context().Err() == nil {
						time.Sleep(50 * time.Millisecond)
					}
				}
			})
			p := begin(t, t.TempDir(), nil, "listen", "--api", from.URL, "--token", api.Token, "--events", "case.created")
			p.says(t, "listening to")
			running <- p.Process
			if err := p.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if code := p.exits(t, time.Minute); code != c.code {
				t.Errorf("it exits with %d, want %d", code, c.code)
			}
		})
	}
}

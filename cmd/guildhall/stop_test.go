package main

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"guildhall/internal/base/testutil"
)

// A listener with a slow caller takes none of their time from the callers of another.
// RELIABILITY.md, Operation.
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

package main

import (
	"context"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// balancer sends each request to one of the nodes that say they are ready, as the
// one in front of an installation does. It never sends a request twice.
type balancer struct {
	*httptest.Server

	mu    sync.Mutex
	nodes []*backend
}

// backend is a node behind the balancer.
type backend struct {
	node   *server
	ready  atomic.Bool
	served atomic.Int64
}

// probeInterval is how often a node is asked whether it is ready.
const probeInterval = 100 * time.Millisecond

func newBalancer() *balancer {
	b := &balancer{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Header.Set("X-Forwarded-Proto", "https")
			if to := b.pick(); to != nil {
				to.served.Add(1)
				r.SetURL(&url.URL{Scheme: "http", Host: to.node.HTTP})
			}
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
		ErrorLog:  log.New(io.Discard, "", 0), // its callers see the 502
	}
	b.Server = httptest.NewServer(proxy)
	return b
}

// address is where callers go.
func (b *balancer) address() string { return strings.TrimPrefix(b.URL, "http://") }

// add puts a node behind the balancer, until ctx ends.
func (b *balancer) add(ctx context.Context, s *server) *backend {
	n := &backend{node: s}
	n.ready.Store(s.ready(ctx))
	b.mu.Lock()
	b.nodes = append(b.nodes, n)
	b.mu.Unlock()
	go func() {
		for pause(ctx, probeInterval) {
			n.ready.Store(s.ready(ctx))
		}
	}()
	return n
}

// pick returns one of the nodes that are ready, nil if none is.
func (b *balancer) pick() *backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ready []*backend
	for _, n := range b.nodes {
		if n.ready.Load() {
			ready = append(ready, n)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	return ready[rand.IntN(len(ready))]
}

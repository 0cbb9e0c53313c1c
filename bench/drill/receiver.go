package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/service/webhooks"
)

// loopback is what receivers of a drill live in.
const loopback = "127.0.0.0/8"

// receiver takes webhooks and remembers the ids of their events.
type receiver struct {
	*httptest.Server

	mu   sync.Mutex
	seen map[string]int // by event, how often
}

func newReceiver() *receiver {
	r := &receiver{seen: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var event struct {
			ID string `json:"id"`
		}
		body, err := io.ReadAll(req.Body)
		if err != nil || json.Unmarshal(body, &event) != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		r.mu.Lock()
		r.seen[event.ID]++
		r.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}))
	return r
}

// events are the ids seen so far.
func (r *receiver) events() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := make(map[string]int, len(r.seen))
	for id, n := range r.seen {
		now[id] = n
	}
	return now
}

// register makes the receiver an endpoint of the guild for every event.
func (p place) register(ctx context.Context, guild string, r *receiver) error {
	d, err := db.Open(db.Config{URL: p.databaseURL, Writers: 1, Readers: 1, Name: "drill"})
	if err != nil {
		return err
	}
	defer d.Close()
	box, err := seal.New(secretKey)
	if err != nil {
		return err
	}
	allow, err := egress.ParseAllow(loopback)
	if err != nil {
		return err
	}
	_, err = webhooks.Add(ctx, webhooks.Config{DB: d, Box: box, Guard: egress.NewGuard(allow, nil)}, guild, r.URL, nil)
	return err
}

// awaited waits until the condition holds, and reports whether it came to hold.
func awaited(ctx context.Context, within time.Duration, holds func() bool) bool {
	for deadline := time.Now().Add(within); !holds(); {
		if time.Now().After(deadline) || !pause(ctx, 20*time.Millisecond) {
			return holds()
		}
	}
	return true
}

package main

import (
	"sync"
	"time"
)

// A node reports that it is not ready after this many writes in a row were refused by Postgres, and
// for this long after the last of them. Then it gets requests again and may find that writes work.
const (
	failingRun = 10
	failingFor = 15 * time.Second
)

// writes records the results of requests' recent writes. A test write of our own does not suffice:
// on a full disk a small row may still fit into an existing page, and a role may have lost its
// rights on one table only.
type writes struct {
	mu   sync.Mutex
	run  int // writes refused since the last commit
	last time.Time
	err  error
}

// note remembers with which error the last request's write ended, for readiness; nil after a commit.
func (w *writes) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.run, w.err = 0, nil
		return
	}
	w.run++
	w.last, w.err = time.Now(), err
}

// failing returns why writes are being refused, or nil.
func (w *writes) failing() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run < failingRun || time.Since(w.last) > failingFor {
		return nil
	}
	return w.err
}

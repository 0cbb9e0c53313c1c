package main

import (
	"sync"
	"time"
)

// How many requests' writes Postgres has to refuse in a row until a node says that
// it is not ready, and how long it says so after the last of them: then requests
// come again and find out.
const (
	failingRun = 10
	failingFor = 15 * time.Second
)

// writes is what has become of requests' writes lately. A probe of our own says
// that the database takes writes, not that it takes theirs: a row fits into a page
// that is there on a full disk too, and a role may have lost one table's rights.
type writes struct {
	mu   sync.Mutex
	run  int // refused since one was committed
	last time.Time
	err  error
}

// note takes the end of a request's write: nil when it is committed.
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

// failing returns why writes fail one after the other, or nil.
func (w *writes) failing() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run < failingRun || time.Since(w.last) > failingFor {
		return nil
	}
	return w.err
}

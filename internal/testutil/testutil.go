// Package testutil is what tests of all packages share and that needs none of
// them.
package testutil

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// waitTimeout is long, for machines that are busy with something else: a test that
// fails takes it, one that passes never does.
const waitTimeout = 2 * time.Minute

// Eventually returns as soon as ok does, and ends the test when that does not
// happen within two minutes.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain for %s", waitTimeout, what)
		}
	}
}

// Log is a log that many may write and a test can read. Its zero value is empty.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns all that was logged.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

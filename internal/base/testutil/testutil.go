// Package testutil holds helpers for the tests of all packages. It imports none of those packages.
package testutil

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// waitTimeout is long, so that tests pass on a busy machine: only a test that fails takes the whole
// time. Mutation tests, which are meant to fail by the hundred, shorten it by an environment
// variable.
var waitTimeout = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("GUILDHALL_TEST_WAIT")); err == nil {
		return d
	}
	return 2 * time.Minute
}()

// Test is the part of *testing.T and *rapid.T that Eventually uses.
type Test interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Eventually polls ok and returns when ok returns true. It fails the test after waitTimeout.
func Eventually(t Test, what string, ok func() bool) {
	t.Helper()
	begun := time.Now()
	for pause := 50 * time.Microsecond; !ok(); {
		waited := time.Since(begun)
		if waited > waitTimeout {
			t.Fatalf("waited %v in vain for: %s", waitTimeout, what)
		}
		time.Sleep(pause)
		pause = min(2*pause, 10*time.Millisecond+waited/20, 100*time.Millisecond)
	}
}

// MiddayZone returns a time zone in which it is between 12 and 13 o'clock, so that a test of its
// days does not meet midnight.
func MiddayZone() string {
	return fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12) // GMT+1 is an hour behind UTC
}

// Log is a buffer for log lines that many goroutines may write to and a test can read. The zero
// value is an empty Log.
type Log struct {
	mu  sync.Mutex // guards the field below
	buf bytes.Buffer
}

// Write appends to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns everything that was logged.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Without skips a test that needs something this machine lacks. On CI, where everything should be
// installed, it fails the test instead, unless GUILDHALL_TEST_WITHOUT lists name.
func Without(t testing.TB, name string, why any) {
	t.Helper()
	if os.Getenv("CI") == "" || slices.Contains(strings.Fields(os.Getenv("GUILDHALL_TEST_WITHOUT")), name) {
		t.Skipf("without %s: %v", name, why)
	}
	t.Fatalf("%s is needed: %v", name, why)
}

// Program returns the path of the first installed program of programs, or of name if programs is
// empty. If none is installed, it ends the test by Without.
func Program(t testing.TB, name string, programs ...string) string {
	t.Helper()
	if len(programs) == 0 {
		programs = []string{name}
	}
	for _, p := range programs {
		if path, err := exec.LookPath(p); err == nil {
			return path
		}
	}
	Without(t, name, strings.Join(programs, ", ")+" not found")
	return ""
}

// Refusing returns an address on loopback that refuses connections while the test runs: its port is
// bound, so no other program can take it, but nothing listens.
func Refusing(t testing.TB) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(socket)
	t.Cleanup(func() { _ = syscall.Close(socket) })
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
}

// Refill puts values into c until c is full. Its caller alone sends to c; goroutines that receive from c
// do a bounded amount of work between two calls, however fast the machine is.
func Refill(c chan<- struct{}) {
	for range cap(c) - len(c) {
		c <- struct{}{}
	}
}

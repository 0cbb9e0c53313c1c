// Package testutil is what tests of all packages share and that needs none of
// them.
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

// waitTimeout is long, for machines that are busy with something else: a test that
// fails takes it, one that passes never does. Where tests are meant to fail, by the
// hundred, the environment has a shorter one.
var waitTimeout = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("GUILDHALL_TEST_WAIT")); err == nil {
		return d
	}
	return 2 * time.Minute
}()

// Test is what Eventually needs of a test. *testing.T and *rapid.T have it.
type Test interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Eventually returns as soon as ok says so, and ends the test when that does not
// happen within waitTimeout.
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

// Log is a log that many may write and a test can read. Its zero value is empty.
type Log struct {
	mu  sync.Mutex // guards what follows
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

// Without ends a test that needs something which is not here. It is skipped, but
// on CI, where everything is expected to be installed, it fails, unless
// GUILDHALL_TEST_WITHOUT lists the thing's name among those that this machine has
// to do without.
func Without(t testing.TB, name string, why any) {
	t.Helper()
	if os.Getenv("CI") == "" || slices.Contains(strings.Fields(os.Getenv("GUILDHALL_TEST_WITHOUT")), name) {
		t.Skipf("without %s: %v", name, why)
	}
	t.Fatalf("%s is needed: %v", name, why)
}

// Program returns the path of the first of some programs that is installed; of
// the one called name where none is given.
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

// Refusing is an address on loopback that refuses connections for as long as the test runs:
// its port is bound, so that no other program gets it, and has no listener.
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

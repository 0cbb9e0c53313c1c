package logging

import (
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"guildhall/internal/base/testutil"
)

func TestBatchLosesNoLineAndDelaysNoWarning(t *testing.T) {
	t.Parallel()
	var out testutil.Log
	log, _, err := NewBatched(&out, "info,json")
	if err != nil {
		t.Fatal(err)
	}
	log.With("node", "a").WithGroup("g").Info("first", "k", "v")
	log.Error("second")
	if got := out.String(); !regexp.MustCompile(`"first","node":"a","g":{"k":"v"}}\n.*"second"}\n$`).MatchString(got) {
		t.Errorf("an error and what came before it are not there at once, in order: %q", got)
	}
	changes := []string{"before"}
	log.Info("third", "list", changes)
	changes[0] = "after"
	if got := out.String(); !strings.Contains(got, `"list":["before"]`) {
		t.Errorf("what may change was not written at once: %q", got)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				log.Info("one of many", "and", strings.Repeat("x", 100))
			}
		})
	}
	wg.Wait()
	var lines []string
	testutil.Eventually(t, "all lines have arrived", func() bool {
		lines = strings.Split(strings.TrimSpace(out.String()), "\n")
		return len(lines) == 4003
	})
	for _, l := range lines {
		if !strings.HasPrefix(l, "{") || !strings.HasSuffix(l, "}") {
			t.Fatalf("a line is torn: %q", l)
		}
	}
}

func TestBatchWritesTheRestAtTheEnd(t *testing.T) {
	t.Parallel()
	var out testutil.Log
	log, lines, err := NewBatched(&out, "info,text")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("last words", "token", "svc_live_"+strings.Repeat("s", 43))
	lines.Flush()
	if got := out.String(); !strings.Contains(got, `msg="last words" token=svc_live_[redacted]`) {
		t.Errorf("got %q", got)
	}
}

// A writer that takes nothing holds up those who log, once enough is waiting.
func TestBatchIsBounded(t *testing.T) {
	t.Parallel()
	stalled := &stuck{open: make(chan struct{})}
	log, _, err := NewBatched(stalled, "info,json")
	if err != nil {
		t.Fatal(err)
	}
	logged := make(chan int, 4*batchSize)
	go func() {
		defer close(logged)
		for i := range 4 * batchSize {
			log.Info("line")
			logged <- i
		}
	}()
	testutil.Eventually(t, "whoever logs has to wait", func() bool {
		n := len(logged)
		time.Sleep(100 * time.Millisecond)
		return n == len(logged)
	})
	if n := len(logged); n > 3*batchSize {
		t.Errorf("%d lines were taken that nobody has written", n)
	}
	close(stalled.open)
	for range logged { // until the last was taken
	}
}

// stuck is a writer that waits until it is opened.
type stuck struct{ open chan struct{} }

func (s *stuck) Write(p []byte) (int, error) {
	<-s.open
	return len(p), nil
}

// A goroutine keeps the stack that it once needed, and thousands of connections
// whose requests are refused at once would each have made a line.
func TestLinesAreNotMadeOnTheStackOfWhoLogs(t *testing.T) {
	t.Parallel()
	out := &writers{}
	log, _, err := NewBatched(out, "info,json")
	if err != nil {
		t.Fatal(err)
	}
	log.Error("an error")
	if len(out.stacks) != 1 || strings.Contains(out.stacks[0], "TestLinesAreNotMadeOnTheStackOfWhoLogs(") {
		t.Errorf("%d lines were written before the error returned, from %s", len(out.stacks), out.stacks)
	}
}

// writers notes on which stacks it is written to.
type writers struct{ stacks []string }

func (w *writers) Write(b []byte) (int, error) {
	w.stacks = append(w.stacks, string(debug.Stack()))
	return len(b), nil
}

// A password goes whole, though somebody has not escaped an @ in it; what stands behind
// the host stays.
func TestAPasswordInAnAddressGoesWhole(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"postgres://u:p@h/db":                     "postgres://u:[redacted]@h/db",
		"postgres://u:p@ss@host/db":               "postgres://u:[redacted]@host/db",
		"postgres://u:p@ss:w@rd@host:5432/db@x y": "postgres://u:[redacted]@host:5432/db@x y",
		"http://host:80/a and b@c":                "http://host:80/a and b@c",
		`{"a":"postgres://u:p@h","b":"x@y"}`:      `{"a":"postgres://u:[redacted]@h","b":"x@y"}`,
	} {
		if got := Redact(text); got != want {
			t.Errorf("%q is logged as %q, want %q", text, got, want)
		}
	}
}

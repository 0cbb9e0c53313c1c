package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// shared is a buffer that several goroutines may use.
type shared struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func TestBatcherLosesNoLineAndDelaysNoError(t *testing.T) {
	t.Parallel()
	var out shared
	log, err := newLogger(&batcher{w: &out}, "info,json")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("first")
	log.Error("second")
	if got := out.String(); !strings.Contains(got, "first") || !strings.Contains(got, "second") {
		t.Errorf("an error and what came before it are not there at once: %q", got)
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
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) == 4002 {
			for _, l := range lines {
				if !strings.HasPrefix(l, "{") || !strings.HasSuffix(l, "}") {
					t.Fatalf("a line is torn: %q", l)
				}
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of 4002 lines arrived", len(lines))
		}
	}
}

func TestBatcherWritesTheRestAtTheEnd(t *testing.T) {
	t.Parallel()
	var out shared
	b := &batcher{w: &out}
	if _, err := b.Write([]byte("last words\n")); err != nil {
		t.Fatal(err)
	}
	b.flush()
	if got := out.String(); got != "last words\n" {
		t.Errorf("got %q", got)
	}
}

package main

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"guildhall/internal/base/testutil"
)

// A node works and stops normally even if nobody reads its log, or if the reader of its log has
// died. RELIABILITY.md, Operation.
func TestANodeServesAndEndsThoughNobodyReadsItsLog(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	unread := make(chan struct{})
	read := sync.OnceFunc(func() { close(unread) })
	for name, reader := range map[string]func() error{
		"nobody reads":       func() error { <-unread; return nil },
		"the reader is dead": func() error { return errors.New("dead") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, url)
			s.err.reader.Store(&reader)
			t.Cleanup(read)
			client := s.client(t)
			const filling = 1000 // three times as many lines as a pipe holds
			for range filling {
				if res, _, err := get(t.Context(), client, s.https+"/api/v1/me", s.token); err != nil || res.StatusCode != 200 {
					t.Fatalf("a request got %v, %v", res, err)
				}
			}
			testutil.Eventually(t, "what is dropped is counted", func() bool {
				_, shown, err := get(t.Context(), client, s.ops+"/metrics", "")
				lines := seriesOf(shown, "guildhall_log_lines_dropped_total")
				if err != nil || len(lines) != 1 {
					t.Fatalf("the metrics show %q, %v", lines, err)
				}
				n, err := strconv.Atoi(strings.TrimSpace(lines[0][strings.LastIndexByte(lines[0], ' '):]))
				if err != nil {
					t.Fatal(err)
				}
				return (n > 0) == (name == "the reader is dead")
			})
			if err := s.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			told := time.Now()
			testutil.Eventually(t, "the node has ended", func() bool {
				return errors.Is(s.Process.Signal(syscall.Signal(0)), os.ErrProcessDone)
			})
			if took := time.Since(told); took > exitTimeout {
				t.Errorf("it ended after %v", took)
			}
			read()
			if code := s.exits(t, time.Minute); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// stuck is a standard error that nobody reads.
type stuck struct{}

func (stuck) Write([]byte) (int, error) { select {} }

func TestACommandEndsThoughNobodyReadsItsError(t *testing.T) {
	t.Parallel()
	if code := run(t.Context(), []string{"nonsense"}, streams{strings.NewReader(""), stuck{}, stuck{}}); code != 2 {
		t.Errorf("exit code %d", code)
	}
}

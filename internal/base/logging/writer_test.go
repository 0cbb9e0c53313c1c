package logging

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"guildhall/internal/base/testutil"
)

// opened returns a log that writes to w, and its Writer.
func opened(t *testing.T, w io.Writer, setting string) (*slog.Logger, *Writer) {
	t.Helper()
	log, lines, err := Open(w, setting)
	if err != nil {
		t.Fatal(err)
	}
	return log, lines
}

func TestEachLineIsWrittenWholeAndInOrder(t *testing.T) {
	t.Parallel()
	var out testutil.Log
	log, lines := opened(t, &out, "info,json")
	log.With("node", "a").WithGroup("g").Info("first", "k", "v")
	log.Error("second")
	changes := []string{"before"}
	log.Info("third", "list", changes)
	changes[0] = "after"
	lines.Flush(time.Minute)
	if got := out.String(); !regexp.MustCompile(`"first","node":"a","g":{"k":"v"}}\n.*"second"}\n.*"list":\["before"\]}\n$`).MatchString(got) {
		t.Errorf("the log holds %q", got)
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
	lines.Flush(time.Minute)
	written := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(written) != 4003 {
		t.Errorf("%d lines were written", len(written))
	}
	for _, l := range written {
		if !strings.HasPrefix(l, "{") || !strings.HasSuffix(l, "}") {
			t.Fatalf("a line is torn: %q", l)
		}
	}
}

func TestALineIsWrittenWithoutFlushing(t *testing.T) {
	t.Parallel()
	var out testutil.Log
	log, _ := opened(t, &out, "info,text")
	log.Info("alone", "token", "svc_live_"+strings.Repeat("s", 43))
	testutil.Eventually(t, "the line is there", func() bool {
		return strings.Contains(out.String(), `msg=alone token=svc_live_[redacted]`)
	})
}

// A record that is still formatted when the queue has been written is written afterwards.
func TestARecordThatIsFormattedSlowlyIsWritten(t *testing.T) {
	t.Parallel()
	var out testutil.Log
	log, _ := opened(t, &out, "info,text")
	log.Info("before", "formatted at once", []int{1})
	v := slowValue{make(chan struct{}), make(chan struct{})}
	go log.Info("slow", "value", v)
	<-v.begun
	testutil.Eventually(t, "the line before is there", func() bool { return strings.Contains(out.String(), "msg=before") })
	time.Sleep(2 * interval) // let the Writer finish
	close(v.release)
	testutil.Eventually(t, "the slow line is there", func() bool { return strings.Contains(out.String(), "msg=slow") })
}

// slowValue is a value of a log that blocks the formatting until the test releases it.
type slowValue struct{ begun, release chan struct{} }

// LogValue implements slog.LogValuer.
func (v slowValue) LogValue() slog.Value {
	close(v.begun)
	<-v.release
	return slog.StringValue("formatted")
}

// A reader that takes nothing delays neither logging nor the program's end. Lines that do not fit
// into the queue are dropped, and the log says how many. RELIABILITY.md, Operation.
func TestNobodyWaitsForTheLogsReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &stuck{open: make(chan struct{})}
		log, lines := opened(t, out, "info,text")
		begun := time.Now()
		const logged, text = 20_000, 1000
		for i := range logged {
			log.Info("line", "number", i, "text", strings.Repeat("x", text))
			if i == 0 {
				time.Sleep(2 * interval) // wait until the reader has got the first line
			}
		}
		lines.Flush(time.Second)
		if took := time.Since(begun); took != time.Second+2*interval {
			t.Errorf("logging and flushing took %v", took)
		}
		dropped := int(testutil.Sample(t, lines.Metric()))
		if least, most := logged-1-maxQueued/text, logged-1; dropped < least || dropped > most {
			t.Errorf("%d lines are counted as dropped, want %d to %d", dropped, least, most)
		}
		close(out.open)
		time.Sleep(2 * interval)
		lines.Flush(time.Second)
		if got := out.String(); strings.Count(got, "msg=line") != logged-dropped ||
			!strings.HasSuffix(got, fmt.Sprintf(" dropped=%d\n", dropped)) {
			t.Errorf("%d lines were written and %d dropped, and the log ends with %q", strings.Count(got, "msg=line"), dropped, got[len(got)-200:])
		}
		if again := testutil.Sample(t, lines.Metric()); again != float64(dropped) {
			t.Errorf("%v lines are counted as dropped after they were reported", again)
		}
	})
}

// stuck is a writer that blocks until the test opens it.
type stuck struct {
	testutil.Log
	open chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.open
	return s.Log.Write(p)
}

// RELIABILITY.md, Operation.
func TestLinesThatCannotBeWrittenAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &broken{after: 40}
		log, lines := opened(t, out, "info,text")
		for range 3 {
			log.Info("lost")
		}
		lines.Flush(time.Second)
		if got := testutil.Sample(t, lines.Metric()); got != 3 {
			t.Errorf("%v lines are counted as dropped", got)
		}
		out.mended = true
		log.Info("kept")
		time.Sleep(2 * interval)
		lines.Flush(time.Second)
		if got := out.String(); !strings.Contains(got, "msg=kept") || !strings.Contains(got, "dropped=3") {
			t.Errorf("the log holds %q", got)
		}
	})
}

// broken is a writer that takes a few bytes and then fails, until the test repairs it.
type broken struct {
	testutil.Log
	after  int
	mended bool
}

func (b *broken) Write(p []byte) (int, error) {
	if !b.mended {
		return b.after, errors.New("broken pipe")
	}
	return b.Log.Write(p)
}

// A password in a URL is redacted whole, even with an unescaped @ in it. The text after the host
// stays.
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

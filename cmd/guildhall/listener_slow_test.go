//go:build slow

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"guildhall/internal/base/testutil"
	"guildhall/internal/server/connlimit"
)

// unread returns how many unsent bytes the kernel holds for the connections of a local port.
func unread(t *testing.T, port string) (bytes int) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		testutil.Without(t, "proc", err)
	}
	var number int
	if _, err := fmt.Sscan(port, &number); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(table), "\n")[1:] {
		f := strings.Fields(line)
		if len(f) > 4 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", number)) {
			var out int
			if _, err := fmt.Sscanf(f[4], "%x:", &out); err != nil {
				t.Fatal(err)
			}
			bytes += out
		}
	}
	return bytes
}

// Callers that request a megabyte and read nothing occupy little memory, and not for long.
// RELIABILITY.md, Overload.
func TestAnswersThatNobodyReads(t *testing.T) {
	t.Parallel()
	s := serve(t, withGuild(t), "GUILDHALL_RATE_LOGIN=off")
	const slow = 100
	address := strings.TrimPrefix(s.https, "https://")
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	for range slow {
		c, err := (&net.Dialer{Timeout: 20 * time.Second}).Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.(*net.TCPConn).SetReadBuffer(2048); err != nil {
			t.Fatal(err)
		}
		secure := tls.Client(c, &tls.Config{RootCAs: s.roots, ServerName: "localhost"})
		if _, err := io.WriteString(secure, "GET /docs/rapidoc-min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Eventually(t, "answers wait to be read", func() bool { return unread(t, port) > slow*10<<10 })
	unreadBytes := unread(t, port)
	t.Logf("the kernel holds %d bytes for %d connections", unreadBytes, slow)
	if limit := slow * 4 * connlimit.SendBuffer; unreadBytes > limit {
		t.Errorf("that is more than %d", limit)
	}
	healthy := s.client(t)
	testutil.Eventually(t, "they are dropped with their buffers", func() bool {
		s.served(t, healthy)
		time.Sleep(100 * time.Millisecond) // this takes half a minute, and reading the kernel's list takes time
		return unread(t, port) < slow*1<<10
	})
}

// Forty connections with the maximum of streams, none of which is read. RELIABILITY.md, Overload.
func TestStreamsThatNobodyReads(t *testing.T) {
	t.Parallel()
	s := serve(t, withGuild(t), "GUILDHALL_RATE_LOGIN=off")
	before := resident(t, s.Process.Pid)
	var wg sync.WaitGroup
	opened, cut := make(chan int, 40), make(chan struct{})
	for range 40 {
		wg.Go(func() {
			n, hold, err := openStreams(s, 250)
			if err != nil {
				t.Errorf("open streams: %v", err)
			}
			opened <- n
			<-cut
			if hold != nil {
				hold.Close()
			}
		})
	}
	streams := 0
	for range 40 {
		streams += <-opened
	}
	defer wg.Wait()
	defer close(cut)
	most, healthy := 0, s.client(t)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		most = max(most, resident(t, s.Process.Pid))
		s.served(t, healthy)
	}
	t.Logf("%d streams were asked for; resident memory %d MB before, %d MB at most", streams, before>>20, most>>20)
	if most > before+memoryFactor*128<<20 {
		t.Errorf("that is more than %d MB", memoryFactor*128)
	}
}

// openStreams requests the largest document n times on one connection and reads no response. It
// returns how many requests were sent.
func openStreams(s *serving, n int) (int, io.Closer, error) {
	c, err := tls.Dial("tcp", strings.TrimPrefix(s.https, "https://"),
		&tls.Config{RootCAs: s.roots, ServerName: "localhost", NextProtos: []string{"h2"}})
	if err != nil {
		return 0, nil, err
	}
	if c.ConnectionState().NegotiatedProtocol != "h2" {
		return 0, c, errors.New("the server does not speak HTTP/2")
	}
	w := bufio.NewWriter(c)
	if _, err := w.WriteString(http2.ClientPreface); err != nil {
		return 0, c, err
	}
	f := http2.NewFramer(w, bufio.NewReader(c))
	if err := f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}); err != nil {
		return 0, c, err
	}
	for i := range n {
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		for _, h := range []hpack.HeaderField{
			{Name: ":method", Value: http.MethodGet},
			{Name: ":scheme", Value: "https"},
			{Name: ":authority", Value: "localhost"},
			{Name: ":path", Value: "/docs/rapidoc-min.js"},
		} {
			if err := e.WriteField(h); err != nil {
				return i, c, err
			}
		}
		err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
		if err == nil {
			err = w.Flush()
		}
		if err != nil {
			return i, c, nil //nolint:nilerr // the server has had enough of it
		}
	}
	return n, c, nil
}

// resident returns a process's resident memory in bytes.
func resident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		testutil.Without(t, "proc", err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// A caller that sends its request byte by byte is cut off, and other callers are not affected.
// RELIABILITY.md, Overload.
func TestSlowCallers(t *testing.T) {
	t.Parallel()
	s := serve(t, withGuild(t))
	const slow = 240
	begun := time.Now()
	var wg sync.WaitGroup
	var cut atomic.Int64
	for i := range slow {
		wg.Go(func() {
			target, request := s.http, "GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
			if i%3 == 0 { // sends the whole head and never the body
				request = "POST /api/v1/economy/adjust HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
			}
			c, err := net.Dial("tcp", strings.TrimPrefix(target, "http://"))
			if err != nil {
				return
			}
			defer c.Close()
			if i%3 != 1 { // every third caller sends nothing
				_, _ = io.WriteString(c, request)
			}
			_ = c.SetReadDeadline(begun.Add(30 * time.Second))
			_, err = io.Copy(io.Discard, c)
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				cut.Add(1)
			}
		})
	}
	client := s.client(t)
	for range 50 {
		s.served(t, client)
	}
	wg.Wait()
	if cut.Load() != slow {
		t.Errorf("%d of %d slow callers were cut off", cut.Load(), slow)
	}
	if took := time.Since(begun); took > 25*time.Second {
		t.Errorf("cutting them off took %v", took)
	}
}

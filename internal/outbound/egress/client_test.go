package egress

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"guildhall/internal/outbound/egress/egresstest"
)

// However slowly or endlessly a receiver responds, a request ends in time and little of the
// response is read. RELIABILITY.md, Outgoing calls.
func TestAnAttemptIsCutOffInTime(t *testing.T) {
	t.Parallel()
	bomb := func() []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(make([]byte, 10<<20))
		_ = z.Close()
		return b.Bytes()
	}()
	hijack := func(write func(c net.Conn)) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			c, _, err := rw.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			write(c)
		}
	}
	drip := func(first, forever string) http.HandlerFunc {
		return hijack(func(c net.Conn) {
			_, err := c.Write([]byte(first))
			for err == nil {
				_, err = c.Write([]byte(forever))
				time.Sleep(time.Millisecond)
			}
		})
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   int // the expected status; 0: timeout
		most   int // the largest excerpt, in bytes
	}{
		"silence":             {hijack(func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }), 0, 0},
		"headers for ever":    {drip("HTTP/1.1 200 OK\r\n", "X-A: b\r\n"), 0, 0},
		"one header for ever": {drip("HTTP/1.1 200 OK\r\nX: ", "a"), 0, 0},
		"endless 1xx":         {drip("", "HTTP/1.1 103 Early Hints\r\n\r\n"), 0, 0},
		"a body for ever":     {drip("HTTP/1.1 200 OK\r\n\r\n", "b"), 200, 2048},
		"another protocol": {hijack(func(c net.Conn) {
			_, _ = c.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"))
			_ = c.SetReadDeadline(time.Now().Add(AttemptTimeout + 5*time.Second))
			_, _ = c.Read(make([]byte, 1))
		}), 101, 0},
		"a status that is none": {hijack(func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\n")) }), 0, 0},
		"a huge body":           {drip("HTTP/1.1 500 Oops\r\n\r\n", strings.Repeat("c", 64<<10)), 500, 2048},
		"a gzip bomb": {func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Encoding", "gzip")
			_, _ = rw.Write(bomb)
		}, 200, 2048},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(c.answer)
			t.Cleanup(s.Close)
			client := NewClient(NewGuard(egresstest.Loopback, nil), nil)
			client.Timeout = 300 * time.Millisecond
			t.Cleanup(client.Close)

			began := time.Now()
			a := client.Post(t.Context(), s.URL, http.Header{}, []byte("{}"))
			if a.Status != c.want || (a.Err != nil) != (c.want == 0) {
				t.Errorf("got %+v, want the status %d", a, c.want)
			}
			if took := time.Since(began); took > AttemptTimeout {
				t.Errorf("took %s", took)
			}
			if len(a.Excerpt) > c.most {
				t.Errorf("%d bytes were kept", len(a.Excerpt))
			}
		})
	}
}

func TestAClientUsesNoProxyAndTrustsNobodyElse(t *testing.T) {
	t.Parallel()
	c := NewClient(NewGuard(nil, nil), nil)
	if c.Timeout != AttemptTimeout {
		t.Errorf("an attempt may take %s", c.Timeout)
	}
	for _, via := range []*http.Client{c.secure, c.plain} {
		if tr, ok := via.Transport.(*http.Transport); !ok || tr.Proxy != nil || tr.TLSClientConfig.InsecureSkipVerify ||
			tr.TLSClientConfig.MinVersion < tls.VersionTLS12 {
			t.Error("a client uses a proxy, or trusts too much")
		}
	}
}

// RELIABILITY.md, Outgoing calls.
func TestExcerptIsTextOfAtMost2KiB(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"", "ok", "a\x00b", "\xff\xfe", strings.Repeat("ü", 2000), strings.Repeat("\xff", 4096),
		strings.Repeat("x", 2047) + "ü",
	} {
		got := excerpt([]byte(in))
		if len(got) > MaxExcerpt || strings.ContainsRune(got, 0) || strings.ToValidUTF8(got, "?") != got {
			t.Errorf("excerpt(%.10q…) is %d bytes: %.20q", in, len(got), got)
		}
	}
}

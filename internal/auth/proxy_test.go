package auth

import (
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// link is a TCP proxy in front of Postgres whose faults a test decides on.
type link struct {
	url    string // the database, through the link
	target string
	in     net.Listener

	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	passing chan struct{} // closed while bytes pass
	delay   time.Duration // before each response of the server
}

func newLink(t testing.TB, databaseURL string) *link {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{target: u.Host, in: in, conns: map[net.Conn]struct{}{}, passing: make(chan struct{})}
	close(l.passing)
	u.Host = in.Addr().String()
	l.url = u.String()
	go l.accept()
	t.Cleanup(func() {
		in.Close()
		l.restore()
		l.cut()
	})
	return l
}

func (l *link) accept() {
	for {
		client, err := l.in.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.target)
		if err != nil {
			client.Close()
			continue
		}
		l.mu.Lock()
		l.conns[client], l.conns[server] = struct{}{}, struct{}{}
		l.mu.Unlock()
		go l.pump(server, client, false)
		go l.pump(client, server, true)
	}
}

func (l *link) pump(to, from net.Conn, responses bool) {
	defer func() {
		to.Close()
		from.Close()
		l.mu.Lock()
		delete(l.conns, to)
		delete(l.conns, from)
		l.mu.Unlock()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			l.mu.Lock()
			passing, delay := l.passing, l.delay
			l.mu.Unlock()
			if responses && delay > 0 {
				time.Sleep(delay)
			}
			<-passing
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// blackhole lets nothing through any more, in either direction, and closes
// nothing: neither side learns of it.
func (l *link) blackhole() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passing = make(chan struct{})
}

// restore lets everything through again, what was held back first.
func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.passing:
	default:
		close(l.passing)
	}
}

// cut breaks every connection; new ones work.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
}

// slow delays each response of the server.
func (l *link) slow(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

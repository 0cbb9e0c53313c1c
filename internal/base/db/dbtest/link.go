package dbtest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Fate is what a Link does with bytes that a program sends to Postgres.
type Fate int

// The fates.
const (
	Pass  Fate = iota
	Break      // Postgres does not receive the bytes, and the connection breaks
	Lose       // Postgres receives the bytes, and the connection breaks once it has responded
	Stall      // Postgres receives the bytes, and its responses are held back until the link is thawed
)

// Link is a TCP proxy in front of Postgres that injects faults.
type Link struct {
	URL string // the database's URL through the link

	target string
	judge  func(sent []byte) Fate

	mu      sync.Mutex // guards the fields below
	conns   map[net.Conn]struct{}
	passing chan struct{} // closed while bytes may pass
	answers chan struct{} // closed while responses may pass
	delay   time.Duration // waits before each response of the server
	down    bool
}

// NewLink puts a link in front of a database.
func NewLink(t testing.TB, databaseURL string) *Link {
	t.Helper()
	return NewJudgedLink(t, databaseURL, func([]byte) Fate { return Pass })
}

// NewJudgedLink is NewLink with a function that chooses the fate of everything a program sends. The
// function sees the bytes in pieces, as they arrive.
func NewJudgedLink(t testing.TB, databaseURL string, judge func(sent []byte) Fate) *Link {
	t.Helper()
	u := OverTCP(t, databaseURL)
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{target: u.Host, judge: judge, conns: make(map[net.Conn]struct{}), passing: make(chan struct{}), answers: make(chan struct{})}
	close(l.passing)
	close(l.answers)
	u.Host = in.Addr().String()
	l.URL = u.String()
	go l.accept(in)
	t.Cleanup(func() {
		in.Close()
		l.Thaw()
		l.Cut()
	})
	return l
}

// Freeze stops all bytes in both directions without closing a connection, so neither side notices.
func (l *Link) Freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passing = make(chan struct{})
}

// Thaw lets bytes pass again, the held ones first.
func (l *Link) Thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, held := range []chan struct{}{l.passing, l.answers} {
		select {
		case <-held:
		default:
			close(held)
		}
	}
}

// stall holds all responses back.
func (l *Link) stall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.answers:
		l.answers = make(chan struct{})
	default:
	}
}

// Cut breaks every open connection. New connections work.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
}

// Down breaks every open connection, and each new one as soon as it is made.
func (l *Link) Down() {
	l.mu.Lock()
	l.down = true
	l.mu.Unlock()
	l.Cut()
}

// Up ends Down.
func (l *Link) Up() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// Slow delays each response of the server by d.
func (l *Link) Slow(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

func (l *Link) accept(in net.Listener) {
	for {
		client, err := in.Accept()
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
		if l.down {
			client.Close()
			server.Close()
		}
		l.mu.Unlock()
		var lost atomic.Bool
		go l.pump(server, client, func(sent []byte) bool {
			fate := l.judge(sent)
			if fate == Lose {
				lost.Store(true)
			}
			if fate == Stall {
				l.stall()
			}
			return fate != Break
		})
		go l.pump(client, server, func([]byte) bool {
			l.mu.Lock()
			delay, answers := l.delay, l.answers
			l.mu.Unlock()
			<-answers
			time.Sleep(delay)
			return !lost.Load()
		})
	}
}

// pump copies bytes until a connection breaks or pass returns false.
func (l *Link) pump(to, from net.Conn, pass func([]byte) bool) {
	defer func() {
		to.Close()
		from.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, to)
		delete(l.conns, from)
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !pass(buf[:n]) {
				return
			}
			l.mu.Lock()
			passing := l.passing
			l.mu.Unlock()
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

package dbtest

import (
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Fate is what becomes of bytes that a program sends to Postgres.
type Fate int

// The fates.
const (
	Pass  Fate = iota
	Break      // Postgres never gets them, and the connection breaks
	Lose       // Postgres gets them, and the connection breaks when it has responded
	Stall      // Postgres gets them, and all its responses wait until the link is thawed
)

// Link is a TCP proxy in front of Postgres whose faults a test decides on.
type Link struct {
	URL string // the database, through the link

	target string
	judge  func(sent []byte) Fate

	mu      sync.Mutex // guards what follows
	conns   map[net.Conn]struct{}
	passing chan struct{} // closed while bytes pass
	answers chan struct{} // closed while responses pass
	delay   time.Duration // before each response of the server
	down    bool
}

// NewLink puts a link in front of a database.
func NewLink(t testing.TB, databaseURL string) *Link {
	t.Helper()
	return NewJudgedLink(t, databaseURL, func([]byte) Fate { return Pass })
}

// NewJudgedLink is NewLink with a judge of all that a program sends, in pieces as
// they arrive.
func NewJudgedLink(t testing.TB, databaseURL string, judge func(sent []byte) Fate) *Link {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
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

// Freeze lets nothing through any more, in either direction, and closes nothing:
// neither side learns of it.
func (l *Link) Freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passing = make(chan struct{})
}

// Thaw lets everything through again, what was held back first.
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

// Cut breaks every connection; new ones work.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
}

// Down breaks every connection, and new ones as they come.
func (l *Link) Down() {
	l.mu.Lock()
	l.down = true
	l.mu.Unlock()
	l.Cut()
}

// Up ends what Down began.
func (l *Link) Up() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// Slow delays each response of the server.
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

// pump carries bytes until a connection breaks, or until pass says no to some.
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

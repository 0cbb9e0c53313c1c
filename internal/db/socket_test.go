package db_test

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/db/dbtest"
)

// silence puts a TCP proxy before the database. Once the returned function is
// called it swallows everything and closes nothing, until it is called again.
func silence(t *testing.T, databaseURL string) (through string, toggle func()) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []net.Conn
	passing, closed := make(chan struct{}), true
	close(passing)
	pump := func(to, from net.Conn) {
		defer to.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			mu.Lock()
			wait := passing
			mu.Unlock()
			<-wait
			if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	target := u.Host
	go func() {
		for {
			client, err := in.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			mu.Lock()
			all = append(all, client, server)
			mu.Unlock()
			go pump(server, client)
			go pump(client, server)
		}
	}()
	toggle = func() {
		mu.Lock()
		defer mu.Unlock()
		if closed {
			passing = make(chan struct{})
		} else {
			close(passing)
		}
		closed = !closed
	}
	t.Cleanup(func() {
		in.Close()
		mu.Lock()
		defer mu.Unlock()
		if !closed {
			close(passing)
		}
		for _, c := range all {
			c.Close()
		}
	})
	u.Host = in.Addr().String()
	return u.String(), toggle
}

// The driver on its own would wait for a dead link for a quarter of an hour.
// RELIABILITY.md, Overload.
func TestDeadLink(t *testing.T) {
	t.Parallel()
	through, toggle := silence(t, dbtest.New(t).URL)
	d, err := db.Open(db.Config{URL: through, Readers: 2, Writers: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	use := func(ctx context.Context, prepared bool) (read, write error) {
		query, args := `SELECT 1`, []any(nil)
		if prepared {
			query, args = `SELECT $1::int`, []any{1}
		}
		var n int
		read = d.Reader().GetContext(ctx, &n, query, args...)
		write = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error { return tx.GetContext(ctx, &n, query, args...) })
		return read, write
	}
	if read, write := use(t.Context(), true); read != nil || write != nil {
		t.Fatal(read, write)
	}
	toggle()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The first with the connections that are there, the second has to
		// make new ones.
		for i := range 2 {
			for _, prepared := range []bool{true, false} {
				ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
				if read, write := use(ctx, prepared); read == nil || write == nil {
					t.Errorf("round %d over a dead link: %v, %v", i, read, write)
				}
				cancel()
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("somebody is waiting for a dead link")
	}
	toggle()
	// No deadline of the dead connections is left on new ones.
	for range 4 {
		if read, write := use(context.Background(), true); read != nil || write != nil {
			t.Fatal(read, write)
		}
	}
}

// A deadline ends with the work it was for.
func TestDeadlineIsForgotten(t *testing.T) {
	t.Parallel()
	d, err := db.Open(db.Config{URL: dbtest.New(t).URL, Readers: 1, Writers: 1})
	if err != nil {
		t.Fatal(err)
	}
	pid := func(ctx context.Context) (n int) {
		if err := d.Reader().GetContext(ctx, &n, `SELECT pg_backend_pid()`); err != nil {
			t.Error(err)
		}
		return n
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	first := pid(ctx)
	<-ctx.Done()
	time.Sleep(1200 * time.Millisecond) // the time for cancelling is over too
	if again := pid(context.Background()); again != first {
		t.Errorf("the connection was lost: served by %d, then by %d", first, again)
	}
	short, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	pid(short)
	<-short.Done()
	time.Sleep(1200 * time.Millisecond)
	if err := d.Close(); err != nil {
		t.Errorf("the connection did not end in order: %v", err)
	}
}

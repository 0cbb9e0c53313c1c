package api_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"testing"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/server/api/apitest"
)

// heldKey is an idempotency key that an open transaction has claimed, as by the first request on
// another node.
type heldKey struct {
	end  chan struct{}
	done chan struct{}
}

func holdKey(t *testing.T, server *apitest.API, token, key string) *heldKey {
	t.Helper()
	h := &heldKey{make(chan struct{}), make(chan struct{})}
	started := make(chan error, 1)
	other, err := db.Open(db.Config{URL: server.Server.DBURL})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(h.done)
		defer other.Close()
		rollback := errors.New("rolled back")
		err := other.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
			_, err := idempotency.Keys{Sealer: server.Server.Sealer}.Claim(ctx, tx,
				idempotency.Request{GuildID: server.Guild, TokenID: token, Key: key, Fingerprint: []byte("x")})
			started <- err
			if err != nil {
				return err
			}
			<-h.end
			return rollback
		})
		if err != nil && !errors.Is(err, rollback) {
			t.Error(err)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *heldKey) release() {
	close(h.end)
	<-h.done
}

func tlsDial(server *apitest.API, host string) (net.Conn, error) {
	transport, ok := server.Server.Client.Transport.(*http.Transport)
	if !ok {
		return nil, errors.New("the test client has no TLS settings")
	}
	config := transport.TLSClientConfig.Clone()
	config.ServerName = "example.com"
	config.NextProtos = nil
	d := tls.Dialer{Config: config}
	return d.DialContext(context.Background(), "tcp", host)
}

// lock keeps what a statement locks until the returned function is called.
func lock(t *testing.T, server *apitest.API, statement string, args ...any) (release func()) {
	t.Helper()
	locked, end, done := make(chan error, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_ = server.DB().Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, statement, args...)
			locked <- err
			<-end
			return err
		})
	}()
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	return func() {
		close(end)
		<-done
	}
}

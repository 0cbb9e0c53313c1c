package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/economy"
)

// stated returns the reqState of a GET request for a list, with context ctx.
func stated(ctx context.Context) *reqState {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	list := &operation{ReadOnly: true, Scope: "economy:read", Query: map[string]*openapi3.Parameter{"per_page": {}}}
	return &reqState{Context: echo.New().NewContext(r, httptest.NewRecorder()), op: list, ctx: ctx}
}

// slowTokens is an authenticator whose lookups take that long.
type slowTokens time.Duration

func (s slowTokens) Authenticate(context.Context, string, netip.Addr) (*auth.Principal, error) {
	time.Sleep(time.Duration(s))
	return &auth.Principal{By: auth.By{GuildID: "guild", ID: "token"}}, nil
}

func (slowTokens) Guild(context.Context, string) (auth.Presence, error) { return auth.Present, nil }

// A request waits at most two seconds in all: for the lookup of its token and for a connection or a
// batch. RELIABILITY.md, Overload.
func TestARefusalComesTwoSecondsAfterItsRequest(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(u *units, rs *reqState) error{
		"a read": func(u *units, rs *reqState) error { return u.read(rs, func(*reqState) error { return nil }) },
		"a write": func(u *units, rs *reqState) error {
			return u.db.Do(rs.ctx, func(context.Context, *db.Tx) error { return nil })
		},
		"a change that shares its statement": func(u *units, rs *reqState) error {
			rs.op = &operation{ID: "adjustBalance", Scope: "economy:write", Batched: true}
			return u.unit(adjusting(u.db))(rs)
		},
		"a read that shares its statement": func(u *units, rs *reqState) error {
			rs.op = &operation{ID: "getWallet", ReadOnly: true, Scope: "economy:read", Batched: true}
			return u.unit(asking(u.db))(rs)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, err := db.Open(db.Config{URL: "postgres://nobody@127.0.0.1:1/none", Writers: 1, Readers: 1}) // never connected
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				u := &units{db: d, wake: func(string) {}}
				by := db.As(t.Context(), db.Caller{Token: "another", Guild: "another"})
				if err := d.Queue(by); err != nil {
					t.Fatal(err)
				}
				defer db.Unqueue(by)
				_, leave, err := d.Enter(by)
				if err != nil {
					t.Fatal(err)
				}
				defer synctest.Wait() // lets a batch without items end
				defer leave()
				begun := time.Now()
				rs := stated(t.Context())
				rs.came = begun
				rs.Request().Header.Set("Authorization", "Bearer some")
				if err := authenticate(rs, slowTokens(700*time.Millisecond), nil, ratelimit.Quota{}); err != nil {
					t.Fatal(err)
				}
				if err := wait(u, rs); !errors.Is(err, db.ErrBusy) || time.Since(begun) != 2*time.Second {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
			})
		})
	}
}

// hosted returns what batched operations need.
func hosted(d *db.DB) batch.Host {
	numbers, err := newMetrics(nil)
	if err != nil {
		panic(err)
	}
	return batch.Host{DB: d, Started: numbers.batch, Wake: func(string) {}}
}

// adjusting returns an operation that changes a balance.
func adjusting(d *db.DB) handler {
	s := economy.New(hosted(d))
	return func(rs *reqState) error {
		_, err := s.AdjustBalance(rs.Request().Context(), gen.AdjustBalanceRequestObject{Body: &gen.AdjustBalanceRequest{UserID: "1", Delta: 1}})
		return err
	}
}

// asking returns an operation that reads a wallet.
func asking(d *db.DB) handler {
	s := economy.New(hosted(d))
	return func(rs *reqState) error {
		_, err := s.GetWallet(rs.Request().Context(), gen.GetWalletRequestObject{UserID: "1"})
		return err
	}
}

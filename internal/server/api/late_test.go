package api

import (
	"context"
	"errors"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
)

// Near the end of a request's time no statement is started that could not end within it, although
// the request itself continues. RELIABILITY.md, Writes.
func TestTheDatabaseBeginsNothingAtTheEndOfARequest(t *testing.T) {
	t.Parallel()
	d, err := db.Open(db.Config{URL: dbtest.New(t).URL, Writers: 1, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	begin := func(came time.Time) error {
		rs := stated(t.Context())
		rs.came, rs.by = came, &auth.Principal{}
		rs.onAccount(rs.ctx)
		return d.Do(rs.ctx, func(context.Context, *db.Tx) error { return nil })
	}
	now := time.Now()
	if err := begin(now); err != nil {
		t.Errorf("a request that has just come: %v", err)
	}
	if f := (*fault.Error)(nil); !errors.As(begin(now.Add(time.Second-workTimeout)), &f) || f.Kind != fault.Unavailable {
		t.Errorf("a request with a second left: %v", f)
	}
}

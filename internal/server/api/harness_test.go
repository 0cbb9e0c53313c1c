package api_test

import (
	"context"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

// A test that gets a 500 prints the cause, and not only the request id.
func TestTheHarnessShowsTheCauseOfA500(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Do(t, api.DB(), func(ctx context.Context, tx *db.Tx) error {
		_, err := db.Exec(ctx, tx, `ALTER TABLE cases RENAME COLUMN reason TO words`)
		return err
	})
	a := api.Do(t, "listCases", "")
	if a.Status != 500 || !strings.Contains(a.Cause, "reason") {
		t.Errorf("got %d with the cause %q", a.Status, a.Cause)
	}
}

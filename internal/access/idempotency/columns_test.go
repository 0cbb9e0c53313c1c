package idempotency_test

import (
	"database/sql/driver"
	"testing"

	"guildhall/internal/access/idempotency"
)

// Keys are columns of their changes, with nulls, or nothing, for those that have none.
func TestKeysAreColumnsOfTheirChanges(t *testing.T) {
	t.Parallel()
	columns := idempotency.Columns([]*idempotency.Request{nil, {TokenID: "token", Key: "k", Fingerprint: []byte{0xfe}}})
	for i, want := range []string{`{NULL,"token"}`, `{NULL,"k"}`, `{"\\x","\\xfe"}`} {
		column, ok := columns[i].(driver.Valuer)
		if !ok {
			t.Fatalf("column %d is a %T", i, columns[i])
		}
		if got, err := column.Value(); got != want || err != nil {
			t.Errorf("column %d is %v, %v, want %s", i, got, err, want)
		}
	}
}

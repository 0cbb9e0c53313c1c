package auth

import (
	"testing"

	"guildhall/internal/base/db/dbtest"
)

// A guild that has revoked many tokens reads a page of them in the order of an index.
func TestAPageOfTokensIsReadFromItsIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	for _, ended := range []bool{false, true} {
		dbtest.WantIndex(t, d, "api_tokens_guild", pageOfRows, "1", ended, 51, 50)
	}
}

package usage

import (
	"testing"

	"guildhall/internal/base/db/dbtest"
)

// A guild's uses of ended tokens are read and trimmed through an index.
func TestUsesOfEndedTokensAreReadByTheirIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.WantIndex(t, d, "usage_ended_pkey", endedQuery, "1")
	dbtest.WantIndex(t, d, "usage_ended_pkey", usesOfOneQuery, "1", "2")
	dbtest.WantIndex(t, d, "usage_ended_newest", trimEnded, "1", maxEnded)
}

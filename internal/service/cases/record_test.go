package cases

import (
	"testing"

	"guildhall/internal/base/testutil"
)

// Each member of a case's record is shown in responses and events, and the other way round.
func TestACaseIsShownWhole(t *testing.T) {
	t.Parallel()
	testutil.WantCarried(t, func(c row) any { return show(c) }, "guild_id")
	testutil.WantCarried(t, func(c row) any { return showChange(c, []string{"reason"}, nil) }, "guild_id", "changed", "author_id")
}

package cases

import (
	"testing"

	"guildhall/internal/base/testutil"
)

// Each member that moves with a case is shown in answers and events, and the other way
// round.
func TestACaseIsShownWhole(t *testing.T) {
	t.Parallel()
	testutil.WantCarried(t, func(c row) any { return show(c) }, "guild_id")
	testutil.WantCarried(t, func(c row) any { return showChange(c, []string{"reason"}) }, "guild_id", "changed")
}

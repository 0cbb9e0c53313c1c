package giveaways

import (
	"testing"

	"guildhall/internal/base/testutil"
)

// Each member that moves with a giveaway is shown in answers and events, and the other
// way round, but for how it came about and when it was paused; counts are not moved.
func TestAGiveawayIsShownWhole(t *testing.T) {
	t.Parallel()
	testutil.WantCarried(t, func(g row) any { return show(g) }, "guild_id", "source", "paused_at", "entrant_count", "entry_count")
}

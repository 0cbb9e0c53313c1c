package giveaways

import (
	"testing"

	"guildhall/internal/base/testutil"
)

// Each member of a giveaway's record is shown in responses and events, and the other way round,
// except for its source and when it was paused; counters and what is wrong with
// its message are not part of records.
func TestAGiveawayIsShownWhole(t *testing.T) {
	t.Parallel()
	testutil.WantCarried(t, func(g row) any { return show(g) }, "guild_id", "source", "paused_at", "entrant_count", "entry_count",
		"post_problem")
}

package tickets

import (
	"testing"

	"guildhall/internal/base/testutil"
)

// Each member of the records of a ticket and its transcript is shown in responses and events, and
// the other way round; counters are not part of records.
func TestATicketIsShownWhole(t *testing.T) {
	t.Parallel()
	testutil.WantCarried(t, func(r row) any { return show(r) }, "guild_id", "message_count", "last_message_at")
	testutil.WantCarried(t, func(e entry) any { return showEntry(e) }, "guild_id", "posted")
}

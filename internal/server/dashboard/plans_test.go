package dashboard

import (
	"testing"

	"guildhall/internal/base/db/dbtest"
)

// Sessions and links are found through an index.
func TestSessionsAreReadByTheirIndexes(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.WantIndex(t, d, "dashboard_sessions_pkey", sessionsQuery, "", sessionsChunk)
	dbtest.WantIndex(t, d, "dashboard_sessions_id", endSession, "1")
	dbtest.WantIndex(t, d, "dashboard_sessions_account", endMine, "1", "2")
	dbtest.WantIndex(t, d, "dashboard_sessions_account", endMyOthers, "1", "2")
	dbtest.WantIndex(t, d, "dashboard_links_pkey", revokeLinks, "1")
}

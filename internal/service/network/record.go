package network

import (
	"time"

	"guildhall/internal/service/transfer"
)

// Records are listings, which belong to no guild and so are in no export.
var Records = transfer.Kind[row]{
	Name: "network_listing", Schema: "GuildFileNetworkListing", Table: "network_listings", Columns: columns,
	Refusals: map[string]string{"network_listings_pkey": "this user is listed already"},
	New:      func(time.Time) row { return row{} },
	Complete: func(l *row, now time.Time) error {
		l.FirstReportedAt, l.LastReportedAt = transfer.Past(l.FirstReportedAt, now), transfer.Past(l.LastReportedAt, now)
		if l.LastReportedAt.Time.Before(l.FirstReportedAt.Time) {
			return transfer.Wrong("last_reported_at", "must not lie before first_reported_at")
		}
		return nil
	},
}

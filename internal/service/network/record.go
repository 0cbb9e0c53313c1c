package network

import (
	"context"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/service/transfer"
)

// Records is the record kind of listings. Listings belong to no guild and so are never exported.
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
	Fixed: &transfer.Fixed[row]{
		Name:  func(l *row) string { return "user " + l.UserID },
		There: findEach,
	},
}

// findEach returns the stored listings of the users in rows.
func findEach(ctx context.Context, tx *db.Tx, rows []row) ([]row, error) {
	users := make([]string, len(rows))
	for i, l := range rows {
		users[i] = l.UserID
	}
	there, err := db.Select[row](ctx, tx, listings, db.Array(users))
	return there, fault.Wrap(err, "look up users in the network")
}

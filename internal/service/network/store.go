package network

import (
	"context"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
)

// row is the listing of one user.
type row struct {
	UserID          string    `db:"user_id" json:"user_id"`
	TrustScore      int       `db:"trust_score" json:"trust_score"`
	ReportCount     int64     `db:"report_count" json:"report_count"`
	Category        string    `db:"category" json:"category"`
	Severity        string    `db:"severity" json:"severity"`
	FirstReportedAt wire.Time `db:"first_reported_at" json:"first_reported_at"`
	LastReportedAt  wire.Time `db:"last_reported_at" json:"last_reported_at"`
}

const columns = `user_id, trust_score, report_count, category, severity, first_reported_at, last_reported_at`

const (
	listing = `
		SELECT ` + columns + `
		FROM network_listings
		WHERE user_id = $1`

	listings = `
		SELECT ` + columns + `
		FROM network_listings
		WHERE user_id = ANY ($1)`
)

// find returns the user's listing, or false if there is none. It is the API's only query that names
// no guild.
func find(ctx context.Context, q db.Querier, user string) (row, bool, error) {
	r, err := db.Get[row](ctx, q, listing, user)
	switch {
	case db.Missing(err):
		return row{}, false, nil
	case err != nil:
		return row{}, false, fault.Wrap(err, "look up user", user, "in the network")
	}
	return r, true, nil
}

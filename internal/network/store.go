package network

import (
	"context"
	"fmt"
	"time"

	"guildhall/internal/db"
)

// row is what the network knows about one user.
type row struct {
	UserID          string    `db:"user_id"`
	TrustScore      int       `db:"trust_score"`
	ReportCount     int64     `db:"report_count"`
	Category        string    `db:"category"`
	Severity        string    `db:"severity"`
	FirstReportedAt time.Time `db:"first_reported_at"`
	LastReportedAt  time.Time `db:"last_reported_at"`
}

const listing = `
		SELECT user_id, trust_score, report_count, category, severity,
		       first_reported_at, last_reported_at
		FROM network_listings
		WHERE user_id = $1`

// find returns the user's listing, and false when there is none. It is the one
// query of the program without a guild.
func find(ctx context.Context, q db.Querier, user string) (row, bool, error) {
	var r row
	err := q.GetContext(ctx, &r, listing, user)
	switch {
	case db.Missing(err):
		return row{}, false, nil
	case err != nil:
		return row{}, false, fmt.Errorf("look up user %s in the network: %w", user, err)
	}
	return r, true, nil
}

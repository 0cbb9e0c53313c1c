// Package network looks users up in what the guilds have reported together. It
// is the one place that reads across guilds, and it knows nothing of reporters.
package network

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/base/db"
)

// Service implements the lookup.
type Service struct{}

// LookupNetworkUser returns the public summary of a listed user, and of anybody
// else only that there is none.
func (s *Service) LookupNetworkUser(ctx context.Context, r gen.LookupNetworkUserRequestObject) (gen.LookupNetworkUserResponseObject, error) {
	l, listed, err := find(ctx, db.Read(ctx), r.UserID)
	if err != nil {
		return nil, err
	}
	hit := gen.NetworkHit{}
	if listed {
		hit = show(l)
	}
	return gen.LookupNetworkUser200JSONResponse{Data: hit}, nil
}

func show(l row) gen.NetworkHit {
	return gen.NetworkHit{
		Listed:          true,
		UserID:          &l.UserID,
		TrustScore:      &l.TrustScore,
		ReportCount:     &l.ReportCount,
		Category:        &l.Category,
		Severity:        &l.Severity,
		FirstReportedAt: &l.FirstReportedAt,
		LastReportedAt:  &l.LastReportedAt,
	}
}

// Package network looks users up in the listings that all guilds share. It is the only package that
// reads data across guilds, and it does not know who reported a user.
package network

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/base/db"
)

// Service implements the lookup.
type Service struct{}

// LookupNetworkUser returns the public summary of a listed user; for any other user it only says
// that there is no listing.
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

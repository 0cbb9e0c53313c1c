package guilds

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/wire"
	"guildhall/internal/service/removal"
)

// ForgetMember starts deleting a member's data in the guild.
func (s *Service) ForgetMember(ctx context.Context, r gen.ForgetMemberRequestObject) (gen.ForgetMemberResponseObject, error) {
	at, err := removal.Forget(ctx, db.Write(ctx), auth.Acting(ctx), r.UserID, withCases(r.Body))
	if err != nil {
		return nil, err
	}
	return gen.ForgetMember202JSONResponse{Data: gen.ForgottenMember{UserID: r.UserID, RequestedAt: wire.At(at)}}, nil
}

// ForgetMemberEverywhere starts deleting a member's data in all guilds of the bot key.
func (s *Service) ForgetMemberEverywhere(ctx context.Context, r gen.ForgetMemberEverywhereRequestObject) (gen.ForgetMemberEverywhereResponseObject, error) {
	by := auth.From(ctx)
	at, err := removal.ForgetEverywhere(ctx, db.Write(ctx), by.By, by.Guilds(), r.UserID, withCases(r.Body))
	if err != nil {
		return nil, err
	}
	return gen.ForgetMemberEverywhere202JSONResponse{Data: gen.ForgottenMember{UserID: r.UserID, RequestedAt: wire.At(at)}}, nil
}

func withCases(body *gen.ForgetMemberRequest) bool {
	return body != nil && body.Cases != nil && *body.Cases
}

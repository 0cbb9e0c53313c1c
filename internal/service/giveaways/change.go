package giveaways

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/event"
)

// The refusals of an end that a giveaway cannot have.
var (
	errEndsPast   = fault.New(fault.Invalid, "invalid_request", "body /ends_at: must lie in the future")
	errEndsBefore = fault.New(fault.Invalid, "invalid_request", "body /ends_at: must lie after starts_at")
)

// errNotRunning refuses what only a giveaway that runs allows; can names it.
func errNotRunning(can string) *fault.Error {
	return fault.New(fault.Refused, "giveaway_not_running", "only one that is active, paused or scheduled can be %s.", can)
}

// UpdateGiveaway changes a giveaway that is scheduled, active or paused. An edit that
// changes nothing emits nothing.
func (*Service) UpdateGiveaway(ctx context.Context, r gen.UpdateGiveawayRequestObject) (gen.UpdateGiveawayResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	if r.Body.EndsAt != nil {
		now, err := tx.Now(ctx)
		if err != nil {
			return nil, err
		}
		if !r.Body.EndsAt.Time.After(now) {
			return nil, errEndsPast
		}
	}
	was, err := lock(ctx, tx, by.GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	if !was.running() {
		return nil, refusedIn(was, errNotRunning("changed"))
	}
	is, err := withEdits(was, r.Body)
	if err != nil {
		return nil, err
	}
	changed := changes(&was, &is)
	if len(changed) == 0 {
		return gen.UpdateGiveaway200JSONResponse{Data: show(was)}, nil
	}
	if is, err = edit(ctx, tx, is); err != nil {
		return nil, err
	}
	data := showChange(is, changed, r.Body.AuthorID)
	if err := event.Record(ctx, tx, event.From(by).On(is.UpdatedAt.Time), event.GiveawayUpdated, data); err != nil {
		return nil, err
	}
	return gen.UpdateGiveaway200JSONResponse{Data: show(is)}, nil
}

// withEdits returns the giveaway with what a caller wants changed.
func withEdits(was row, body *gen.UpdateGiveawayRequest) (is row, err error) {
	is = was
	if body.Prize != nil {
		is.Prize = *body.Prize
	}
	if body.Description.IsSpecified() {
		is.Description = wire.OrNil(body.Description)
	}
	if body.WinnerCount != nil {
		is.WinnerCount = *body.WinnerCount
	}
	if body.HostID.IsSpecified() {
		is.HostID = wire.OrNil(body.HostID)
	}
	if body.EndsAt != nil {
		if is.EndsAt = *body.EndsAt; !is.EndsAt.Time.After(is.StartsAt.Time) {
			return row{}, errEndsBefore
		}
	}
	is.Metadata, err = was.Metadata.With(body.Metadata)
	return is, err
}

// CancelGiveaway ends a giveaway without a draw. It is Refused once drawing has begun.
func (*Service) CancelGiveaway(ctx context.Context, r gen.CancelGiveawayRequestObject) (gen.CancelGiveawayResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	var body gen.CancelGiveawayRequest
	if r.Body != nil {
		body = *r.Body
	}
	g, err := move(ctx, tx, toCancelled, by.GuildID, r.ID, errNotRunning("cancelled"))
	if err != nil {
		return nil, err
	}
	if err := withdraw(ctx, tx, g); err != nil {
		return nil, err
	}
	data := gen.GiveawayCancellation{Giveaway: show(g), Reason: body.Reason, AuthorID: body.AuthorID}
	if err := event.Record(ctx, tx, event.From(by).On(g.UpdatedAt.Time), event.GiveawayCancelled, data); err != nil {
		return nil, err
	}
	return gen.CancelGiveaway200JSONResponse{Data: show(g)}, nil
}

// withdraw has the message of a cancelled giveaway not posted any more, unless it may be
// posted already: posted then has it edited.
func withdraw(ctx context.Context, tx *db.Tx, g row) error {
	if g.PostID == nil || g.MessageID != nil {
		return nil
	}
	_, err := chat.Withdraw(ctx, tx, g.GuildID, *g.PostID)
	return err
}

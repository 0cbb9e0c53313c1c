package api

import (
	"context"
	"net/http"

	"guildhall/gen"
	"guildhall/internal/service/economy"
	"guildhall/internal/service/leaderboard"
	"guildhall/internal/service/levelling"
)

// wanted is what a collected operation has read from its request, for a batch.
type wanted struct {
	of    any                               // a change or a query, as its domain knows it
	visit func(w http.ResponseWriter) error // writes the response, or returns the refusal
}

type wantedKey struct{}

// wantedOf is where an operation leaves what it has read; nil when it is to be done
// at once.
func wantedOf(ctx context.Context) *wanted {
	w, _ := ctx.Value(wantedKey{}).(*wanted)
	return w
}

// batched serves a collected operation: it leaves what read makes of the request to a
// batch and answers nothing yet, or does it now.
func batched[Request, Of, Response any](ctx context.Context, r Request, now func(context.Context, Request) (Response, error),
	read func(context.Context, Request) Of, visit func(Of, http.ResponseWriter) error,
) (response Response, err error) {
	w := wantedOf(ctx)
	if w == nil {
		return now(ctx, r)
	}
	of := read(ctx, r)
	w.of, w.visit = of, func(to http.ResponseWriter) error { return visit(of, to) }
	return response, nil
}

// AdjustBalance is collected.
func (o operations) AdjustBalance(ctx context.Context, r gen.AdjustBalanceRequestObject) (gen.AdjustBalanceResponseObject, error) {
	return batched(ctx, r, o.economyOps.AdjustBalance, o.economyOps.NewAdjustment, func(a *economy.Adjustment, w http.ResponseWriter) error {
		response, err := a.Response()
		if err != nil {
			return err
		}
		return response.VisitAdjustBalanceResponse(w)
	})
}

// AdjustXP is collected.
func (o operations) AdjustXP(ctx context.Context, r gen.AdjustXPRequestObject) (gen.AdjustXPResponseObject, error) {
	return batched(ctx, r, o.levellingOps.AdjustXP, o.levellingOps.NewAdjustment, func(a *levelling.Adjustment, w http.ResponseWriter) error {
		response, err := a.Response()
		if err != nil {
			return err
		}
		return response.VisitAdjustXPResponse(w)
	})
}

// GetWallet is collected.
func (o operations) GetWallet(ctx context.Context, r gen.GetWalletRequestObject) (gen.GetWalletResponseObject, error) {
	return batched(ctx, r, o.economyOps.GetWallet, o.economyOps.NewQuery, func(q *economy.Query, w http.ResponseWriter) error {
		return economy.Answered(q).VisitGetWalletResponse(w)
	})
}

// GetLevelRecord is collected.
func (o operations) GetLevelRecord(ctx context.Context, r gen.GetLevelRecordRequestObject) (gen.GetLevelRecordResponseObject, error) {
	return batched(ctx, r, o.levellingOps.GetLevelRecord, o.levellingOps.NewQuery, func(q *levelling.Query, w http.ResponseWriter) error {
		return levelling.Answered(q).VisitGetLevelRecordResponse(w)
	})
}

// GetEconomyLeaderboard is collected.
func (o operations) GetEconomyLeaderboard(ctx context.Context, r gen.GetEconomyLeaderboardRequestObject) (gen.GetEconomyLeaderboardResponseObject, error) {
	return batched(ctx, r, o.economyOps.GetEconomyLeaderboard, o.economyOps.NewPageQuery, func(q *leaderboard.Query, w http.ResponseWriter) error {
		return economy.AnsweredPage(q).VisitGetEconomyLeaderboardResponse(w)
	})
}

// GetLevellingLeaderboard is collected.
func (o operations) GetLevellingLeaderboard(ctx context.Context, r gen.GetLevellingLeaderboardRequestObject) (gen.GetLevellingLeaderboardResponseObject, error) {
	return batched(ctx, r, o.levellingOps.GetLevellingLeaderboard, o.levellingOps.NewPageQuery, func(q *leaderboard.Query, w http.ResponseWriter) error {
		return levelling.AnsweredPage(q).VisitGetLevellingLeaderboardResponse(w)
	})
}

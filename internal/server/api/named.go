package api

import (
	"context"
	"net/http"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/service/economy"
	"guildhall/internal/service/levelling"
)

// answer rebuilds the body of the response to the request that made m.
func answer(ctx context.Context, q db.Querier, guild string, m idempotency.Made) ([]byte, error) {
	b := &buffer{header: http.Header{}}
	if m.EntryID == nil {
		err := levelling.Adjusted(*m.Member, *m.Before, *m.After, *m.At).VisitAdjustXPResponse(b)
		return b.body.Bytes(), err
	}
	render, err := economy.Answer(ctx, q, guild, *m.EntryID, *m.At)
	if err != nil {
		return nil, err
	}
	err = render(b)
	return b.body.Bytes(), err
}

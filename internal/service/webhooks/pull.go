package webhooks

import (
	"context"
	"net/http"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/service/pending"
)

var (
	errNotPull  = fault.New(fault.Refused, "webhook_not_pull", "This endpoint is sent its events; only those with delivery pull are fetched.")
	errDisabled = fault.New(fault.Refused, "webhook_disabled", "The endpoint is disabled; what is kept for it can be fetched when it is enabled.")
)

// PullWebhookEvents leases the waiting events of a pull endpoint and returns them. It
// returns a pending.Wait when there are none and the caller wants to wait.
func (s *Service) PullWebhookEvents(ctx context.Context, r gen.PullWebhookEventsRequestObject) (gen.PullWebhookEventsResponseObject, error) {
	tx, by := db.Write(ctx), auth.From(ctx)
	options := delivery.NewFetchOptions(nil, nil, nil)
	if r.Body != nil {
		options = delivery.NewFetchOptions(r.Body.Limit, r.Body.Lease, r.Body.Wait)
	}
	e, err := getToPull(ctx, tx, by, r.ID)
	if err != nil {
		return nil, err
	}
	if !e.Enabled {
		return nil, errDisabled
	}
	done := s.m.cfg.Waiters.Done(by.GuildID)
	got, err := delivery.Fetch(ctx, tx, by.GuildID, r.ID, by.ID, options.Limit, options.Lease)
	if err != nil {
		return nil, err
	}
	return pulled{got}, pending.Events(got, options.Wait, func() *delivery.Waiter { return s.m.cfg.Waiters.Begin(by.GuildID, r.ID, done) })
}

// AckWebhookEvents acknowledges fetched events and returns others to the endpoint.
func (*Service) AckWebhookEvents(ctx context.Context, r gen.AckWebhookEventsRequestObject) (gen.AckWebhookEventsResponseObject, error) {
	tx, by := db.Write(ctx), auth.From(ctx)
	if _, err := getToPull(ctx, tx, by, r.ID); err != nil {
		return nil, err
	}
	settled, returned, err := delivery.Acknowledge(ctx, tx, by.GuildID, r.ID, r.Body.EventIds, r.Body.ReturnIds)
	if err != nil {
		return nil, err
	}
	return gen.AckWebhookEvents200JSONResponse{Data: gen.WebhookAcknowledgement{SettledCount: settled, ReturnedCount: returned}}, nil
}

// getToPull returns a pull endpoint that the token may use without restrictions.
func getToPull(ctx context.Context, q db.Querier, by *auth.Principal, id string) (endpoint, error) {
	e, err := getToUse(ctx, q, by, id)
	if err == nil && e.Delivery != delivery.Pull {
		err = errNotPull
	}
	return e, err
}

// pulled is a response that contains events byte for byte as they are stored.
type pulled struct{ delivery.Fetched }

// VisitPullWebhookEventsResponse writes the same JSON as gen.PullWebhookEvents200JSONResponse,
// which cannot hold raw events.
func (p pulled) VisitPullWebhookEventsResponse(w http.ResponseWriter) error {
	return p.WriteJSON(w)
}

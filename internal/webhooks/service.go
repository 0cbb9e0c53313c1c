package webhooks

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/auth"
	"guildhall/internal/db"
	"guildhall/internal/event"
	"guildhall/internal/page"
	"guildhall/internal/wire"
)

// Service implements the operations of the tag Webhooks.
type Service struct {
	m manager
}

// New makes the operations. Of the Config they use Box and Guard.
func New(cfg Config) (*Service, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Service{m: manager{cfg: cfg}}, nil
}

// ListWebhookEndpoints lists the guild's endpoints, newest first.
func (*Service) ListWebhookEndpoints(ctx context.Context, r gen.ListWebhookEndpointsRequestObject) (gen.ListWebhookEndpointsResponseObject, error) {
	p := page.Of(r.Params.Page, r.Params.PerPage)
	rows, err := list(ctx, db.Read(ctx), auth.From(ctx).GuildID, p)
	if err != nil {
		return nil, err
	}
	rows, more := page.Cut(rows, p)
	data := make([]gen.WebhookEndpoint, len(rows))
	for i, e := range rows {
		data[i] = show(e)
	}
	return gen.ListWebhookEndpoints200JSONResponse{Data: data, Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

// CreateWebhookEndpoint registers an endpoint and shows its secret, once. It is
// Refused when the guild has its ten, or the address may not be called.
func (s *Service) CreateWebhookEndpoint(ctx context.Context, r gen.CreateWebhookEndpointRequestObject) (gen.CreateWebhookEndpointResponseObject, error) {
	e, secret, err := s.m.register(ctx, db.Write(ctx), auth.From(ctx).GuildID, wish{
		URL: &r.Body.URL, Events: names(r.Body.Events), Description: &r.Body.Description, Enabled: r.Body.Enabled,
	})
	if err != nil {
		return nil, err
	}
	return gen.CreateWebhookEndpoint201JSONResponse{
		Body:    gen.WebhookEndpointWithSecretEnvelope{Data: showSecret(e, secret)},
		Headers: gen.CreateWebhookEndpoint201ResponseHeaders{Location: "/api/v1/webhooks/" + e.ID},
	}, nil
}

// GetWebhookEndpoint returns one endpoint, without its secret.
func (*Service) GetWebhookEndpoint(ctx context.Context, r gen.GetWebhookEndpointRequestObject) (gen.GetWebhookEndpointResponseObject, error) {
	e, err := get(ctx, db.Read(ctx), auth.From(ctx).GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	return gen.GetWebhookEndpoint200JSONResponse{Data: show(e)}, nil
}

// UpdateWebhookEndpoint edits an endpoint. Disabling it holds what waits for it;
// enabling it sends that.
func (s *Service) UpdateWebhookEndpoint(ctx context.Context, r gen.UpdateWebhookEndpointRequestObject) (gen.UpdateWebhookEndpointResponseObject, error) {
	w := wish{URL: r.Body.URL, Events: names(r.Body.Events), Enabled: r.Body.Enabled}
	if r.Body.Description.IsSpecified() {
		var text *string
		if v, err := r.Body.Description.Get(); err == nil {
			text = &v
		}
		w.Description = &text
	}
	e, err := s.m.change(ctx, db.Write(ctx), auth.From(ctx).GuildID, r.ID, w)
	if err != nil {
		return nil, err
	}
	return gen.UpdateWebhookEndpoint200JSONResponse{Data: show(e)}, nil
}

// DeleteWebhookEndpoint removes an endpoint; what was on its way is given up.
func (*Service) DeleteWebhookEndpoint(ctx context.Context, r gen.DeleteWebhookEndpointRequestObject) (gen.DeleteWebhookEndpointResponseObject, error) {
	if err := remove(ctx, db.Write(ctx), auth.From(ctx).GuildID, r.ID); err != nil {
		return nil, err
	}
	return gen.DeleteWebhookEndpoint204Response{}, nil
}

// RotateWebhookSecret gives an endpoint a new secret and shows it, once. The one
// before signs along for a day.
func (s *Service) RotateWebhookSecret(ctx context.Context, r gen.RotateWebhookSecretRequestObject) (gen.RotateWebhookSecretResponseObject, error) {
	e, secret, err := s.m.rotate(ctx, db.Write(ctx), auth.From(ctx).GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	return gen.RotateWebhookSecret200JSONResponse{Data: showSecret(e, secret)}, nil
}

// TestWebhookEndpoint queues a ping for one endpoint.
func (*Service) TestWebhookEndpoint(ctx context.Context, r gen.TestWebhookEndpointRequestObject) (gen.TestWebhookEndpointResponseObject, error) {
	tx, by := db.Write(ctx), auth.From(ctx)
	id, err := ping(ctx, tx, event.From(by), r.ID)
	if err != nil {
		return nil, err
	}
	d, err := oneDelivery(ctx, tx, by.GuildID, r.ID, id)
	if err != nil {
		return nil, err
	}
	return gen.TestWebhookEndpoint202JSONResponse{Data: showDelivery(d)}, nil
}

// ListWebhookDeliveries lists an endpoint's deliveries, newest first.
func (*Service) ListWebhookDeliveries(ctx context.Context, r gen.ListWebhookDeliveriesRequestObject) (gen.ListWebhookDeliveriesResponseObject, error) {
	q, guild, p := db.Read(ctx), auth.From(ctx).GuildID, page.Of(r.Params.Page, r.Params.PerPage)
	if _, err := get(ctx, q, guild, r.ID); err != nil {
		return nil, err
	}
	rows, err := deliveries(ctx, q, guild, r.ID, (*string)(r.Params.Status), p)
	if err != nil {
		return nil, err
	}
	rows, more := page.Cut(rows, p)
	data := make([]gen.WebhookDelivery, len(rows))
	for i, d := range rows {
		data[i] = showDelivery(d)
	}
	return gen.ListWebhookDeliveries200JSONResponse{Data: data, Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

// GetWebhookDelivery returns one delivery with what is sent and every attempt.
func (*Service) GetWebhookDelivery(ctx context.Context, r gen.GetWebhookDeliveryRequestObject) (gen.GetWebhookDeliveryResponseObject, error) {
	q, guild := db.Read(ctx), auth.From(ctx).GuildID
	if _, err := get(ctx, q, guild, r.ID); err != nil {
		return nil, err
	}
	d, err := oneDelivery(ctx, q, guild, r.ID, r.DeliveryID)
	if err != nil {
		return nil, err
	}
	body, err := payload(ctx, q, guild, d.EventID)
	if err != nil {
		return nil, err
	}
	log, err := attempts(ctx, q, guild, d.ID)
	if err != nil {
		return nil, err
	}
	return gen.GetWebhookDelivery200JSONResponse{Data: showDetail(d, body, log)}, nil
}

// RedeliverWebhookDelivery queues the event of a delivery once more, under the
// same event id.
func (*Service) RedeliverWebhookDelivery(ctx context.Context, r gen.RedeliverWebhookDeliveryRequestObject) (gen.RedeliverWebhookDeliveryResponseObject, error) {
	tx, guild := db.Write(ctx), auth.From(ctx).GuildID
	id, err := redeliver(ctx, tx, guild, r.ID, r.DeliveryID)
	if err != nil {
		return nil, err
	}
	d, err := oneDelivery(ctx, tx, guild, r.ID, id)
	if err != nil {
		return nil, err
	}
	return gen.RedeliverWebhookDelivery202JSONResponse{Data: showDelivery(d)}, nil
}

func names(types []gen.WebhookEventType) []string {
	if types == nil {
		return nil
	}
	out := make([]string, len(types))
	for i, t := range types {
		out[i] = string(t)
	}
	return out
}

func show(e endpoint) gen.WebhookEndpoint {
	return gen.WebhookEndpoint{
		ID: e.ID, URL: e.URL, Description: e.Description, Events: e.Events, Enabled: e.Enabled, DisabledReason: e.DisabledReason,
		SecretPreview: e.SecretPreview, CreatedAt: wire.At(e.CreatedAt), UpdatedAt: wire.At(e.UpdatedAt),
	}
}

func showSecret(e endpoint, secret string) gen.WebhookEndpointWithSecret {
	return gen.WebhookEndpointWithSecret{
		ID: e.ID, URL: e.URL, Description: e.Description, Events: e.Events, Enabled: e.Enabled, DisabledReason: e.DisabledReason,
		SecretPreview: e.SecretPreview, CreatedAt: wire.At(e.CreatedAt), UpdatedAt: wire.At(e.UpdatedAt), Secret: secret,
	}
}

func showDelivery(d delivery) gen.WebhookDelivery {
	return gen.WebhookDelivery{
		ID: d.ID, EventID: d.EventID, EventType: d.EventType, Status: d.State, AttemptCount: d.Attempts,
		NextAttemptAt: wire.AtPtr(d.NextAttemptAt), ResponseStatus: d.Status, ResponseExcerpt: d.Excerpt, Error: d.Error,
		DurationMs: d.DurationMs, CreatedAt: wire.At(d.CreatedAt), CompletedAt: wire.AtPtr(d.CompletedAt),
	}
}

func showDetail(d delivery, body []byte, log []attempt) gen.WebhookDeliveryDetail {
	list := make([]gen.WebhookDeliveryAttempt, len(log))
	for i, a := range log {
		list[i] = gen.WebhookDeliveryAttempt{
			Number: a.Number, StartedAt: wire.At(a.StartedAt), DurationMs: a.DurationMs,
			ResponseStatus: a.Status, ResponseExcerpt: a.Excerpt, Error: a.Error,
		}
	}
	return gen.WebhookDeliveryDetail{
		ID: d.ID, EventID: d.EventID, EventType: d.EventType, Status: d.State, AttemptCount: d.Attempts,
		NextAttemptAt: wire.AtPtr(d.NextAttemptAt), ResponseStatus: d.Status, ResponseExcerpt: d.Excerpt, Error: d.Error,
		DurationMs: d.DurationMs, CreatedAt: wire.At(d.CreatedAt), CompletedAt: wire.AtPtr(d.CompletedAt),
		RequestBody: string(body), Attempts: list,
	}
}

package webhooks

import (
	"context"
	"errors"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/event"
)

// Service implements the operations of the tag Webhooks.
type Service struct {
	m manager
}

// New returns the Service. It needs all fields of the Config.
func New(cfg Config) (*Service, error) {
	if cfg.Waiters == nil {
		return nil, errors.New("webhooks: Waiters are needed")
	}
	m, err := newManager(cfg)
	if err != nil {
		return nil, err
	}
	return &Service{m: m}, nil
}

// ListWebhookEndpoints lists the guild's endpoints, newest first.
func (*Service) ListWebhookEndpoints(ctx context.Context, r gen.ListWebhookEndpointsRequestObject) (gen.ListWebhookEndpointsResponseObject, error) {
	p := page.Of(r.Params.Page, r.Params.PerPage)
	rows, err := standings(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, p)
	if err != nil {
		return nil, err
	}
	rows, more := page.Cut(rows, p)
	return gen.ListWebhookEndpoints200JSONResponse{Data: page.Each(rows, Standing.show), Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

// PrepareCreate looks up the receiver's host before the transaction of CreateWebhookEndpoint. It
// skips the lookup for a token that may not register the endpoint.
func (s *Service) PrepareCreate(ctx context.Context, body *gen.CreateWebhookEndpointRequest) (context.Context, error) {
	by := auth.From(ctx)
	if err := mayRead(by, names(body.Events)); err != nil {
		return nil, err
	}
	if body.URL == nil || text(body.Delivery) == delivery.Pull {
		return ctx, nil
	}
	err := checkLimit(ctx, s.m.cfg.DB.Reader(), by.GuildID)
	if f, ok := fault.As(err); ok && f.Kind == fault.Refused {
		return withLookup(ctx, *body.URL, f), nil
	}
	if err != nil {
		return nil, err
	}
	return s.m.resolveFor(ctx, by.GuildID, *body.URL), nil
}

// PrepareUpdate is PrepareCreate for UpdateWebhookEndpoint.
func (s *Service) PrepareUpdate(ctx context.Context, body *gen.UpdateWebhookEndpointRequest) (context.Context, error) {
	if body.URL == nil {
		return ctx, nil
	}
	return s.m.resolveFor(ctx, auth.Acting(ctx).GuildID, *body.URL), nil
}

// CreateWebhookEndpoint registers an endpoint. The response shows its secret, which cannot be read
// later. It returns a Forbidden fault for a token that may not read the events' data, and a Refused
// fault if the guild has MaxEndpoints or the address is not permitted.
func (s *Service) CreateWebhookEndpoint(ctx context.Context, r gen.CreateWebhookEndpointRequestObject) (gen.CreateWebhookEndpointResponseObject, error) {
	by, events := auth.From(ctx), names(r.Body.Events)
	if err := mayRead(by, events); err != nil {
		return nil, err
	}
	e, secret, err := s.m.register(ctx, db.Write(ctx), by.GuildID, patch{
		Delivery: text(r.Body.Delivery), URL: r.Body.URL, Events: events, Description: &r.Body.Description, Enabled: r.Body.Enabled,
	})
	if err != nil {
		return nil, err
	}
	return gen.CreateWebhookEndpoint201JSONResponse{
		Body:    gen.WebhookEndpointWithSecretEnvelope{Data: e.showSecret(secret)},
		Headers: gen.CreateWebhookEndpoint201ResponseHeaders{Location: "/api/v1/webhooks/" + e.ID},
	}, nil
}

// GetWebhookEndpoint returns one endpoint, without its secret.
func (*Service) GetWebhookEndpoint(ctx context.Context, r gen.GetWebhookEndpointRequestObject) (gen.GetWebhookEndpointResponseObject, error) {
	e, err := StandingOf(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	return gen.GetWebhookEndpoint200JSONResponse{Data: e.show()}, nil
}

// UpdateWebhookEndpoint changes an endpoint. Disabling it holds back the waiting deliveries;
// enabling it sends them. A token that may not read its events may only disable it.
func (s *Service) UpdateWebhookEndpoint(ctx context.Context, r gen.UpdateWebhookEndpointRequestObject) (gen.UpdateWebhookEndpointResponseObject, error) {
	tx, by, p := db.Write(ctx), auth.From(ctx), patchOf(r.Body)
	if err := p.check(ctx); err != nil {
		return nil, err
	}
	was, err := lock(ctx, tx, by.GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	if !p.onlyDisables() {
		if err := mayUse(ctx, tx, by, was, p.Events...); err != nil {
			return nil, err
		}
	}
	e, err := s.m.change(ctx, tx, was, p)
	if err != nil {
		return nil, err
	}
	is, err := StandingOf(ctx, tx, e.GuildID, e.ID)
	return gen.UpdateWebhookEndpoint200JSONResponse{Data: is.show()}, err
}

func patchOf(body *gen.UpdateWebhookEndpointRequest) patch {
	p := patch{Delivery: text(body.Delivery), URL: body.URL, Events: names(body.Events), Enabled: body.Enabled}
	if body.Description.IsSpecified() {
		var text *string
		if v, err := body.Description.Get(); err == nil {
			text = &v
		}
		p.Description = &text
	}
	return p
}

// DeleteWebhookEndpoint deletes an endpoint. Deliveries on their way are given up.
func (*Service) DeleteWebhookEndpoint(ctx context.Context, r gen.DeleteWebhookEndpointRequestObject) (gen.DeleteWebhookEndpointResponseObject, error) {
	if err := remove(ctx, db.Write(ctx), auth.Acting(ctx).GuildID, r.ID); err != nil {
		return nil, err
	}
	return gen.DeleteWebhookEndpoint204Response{}, nil
}

// RotateWebhookSecret gives an endpoint a new secret and shows it; it cannot be read later. The
// previous secret also signs for a day, or for as long as the request says.
func (s *Service) RotateWebhookSecret(ctx context.Context, r gen.RotateWebhookSecretRequestObject) (gen.RotateWebhookSecretResponseObject, error) {
	tx, by, overlap := db.Write(ctx), auth.From(ctx), MaxOverlap
	if r.Body != nil && r.Body.OldSecretExpiresIn != nil {
		overlap = time.Duration(*r.Body.OldSecretExpiresIn) * time.Second
	}
	if err := lockToUse(ctx, tx, by, r.ID); err != nil {
		return nil, err
	}
	e, secret, err := s.m.rotate(ctx, tx, by.GuildID, r.ID, overlap)
	if err != nil {
		return nil, err
	}
	return gen.RotateWebhookSecret200JSONResponse{Data: e.showSecret(secret)}, nil
}

// TestWebhookEndpoint queues a ping for one endpoint.
func (*Service) TestWebhookEndpoint(ctx context.Context, r gen.TestWebhookEndpointRequestObject) (gen.TestWebhookEndpointResponseObject, error) {
	tx, by := db.Write(ctx), auth.From(ctx)
	if err := lockToUse(ctx, tx, by, r.ID); err != nil {
		return nil, err
	}
	id, err := sendPing(ctx, tx, event.From(by.By), r.ID)
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
	q, by, p := db.Read(ctx), auth.From(ctx), page.Of(r.Params.Page, r.Params.PerPage)
	if _, err := getToUse(ctx, q, by, r.ID); err != nil {
		return nil, err
	}
	rows, err := deliveries(ctx, q, by.GuildID, r.ID, filterOf(r.Params), p.Limit(), p.Offset())
	if err != nil {
		return nil, err
	}
	rows, more := page.Cut(rows, p)
	return gen.ListWebhookDeliveries200JSONResponse{Data: page.Each(rows, showDelivery), Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

func filterOf(p gen.ListWebhookDeliveriesParams) Filter {
	f := Filter{Status: text(p.Status), EventType: text(p.EventType), ResponseClass: text(p.ResponseClass)}
	if p.Since != nil {
		f.Since = p.Since.Time
	}
	return f
}

// text returns the value of a parameter, or "" if it is absent.
func text[T ~string](p *T) string {
	if p == nil {
		return ""
	}
	return string(*p)
}

// GetWebhookDelivery returns a delivery with its body and all attempts.
func (*Service) GetWebhookDelivery(ctx context.Context, r gen.GetWebhookDeliveryRequestObject) (gen.GetWebhookDeliveryResponseObject, error) {
	q, by := db.Read(ctx), auth.From(ctx)
	if _, err := getToUse(ctx, q, by, r.ID); err != nil {
		return nil, err
	}
	d, body, log, err := Detail(ctx, q, by.GuildID, r.ID, r.DeliveryID)
	if err != nil {
		return nil, err
	}
	return gen.GetWebhookDelivery200JSONResponse{Data: showDetail(d, body, log)}, nil
}

// RedeliverWebhookDelivery queues the event of a delivery again, under the same event id.
func (*Service) RedeliverWebhookDelivery(ctx context.Context, r gen.RedeliverWebhookDeliveryRequestObject) (gen.RedeliverWebhookDeliveryResponseObject, error) {
	tx, by := db.Write(ctx), auth.From(ctx)
	if err := lockToUse(ctx, tx, by, r.ID); err != nil {
		return nil, err
	}
	id, err := sendAgain(ctx, tx, by.GuildID, r.ID, r.DeliveryID)
	if err != nil {
		return nil, err
	}
	d, err := oneDelivery(ctx, tx, by.GuildID, r.ID, id)
	if err != nil {
		return nil, err
	}
	return gen.RedeliverWebhookDelivery202JSONResponse{Data: showDelivery(d)}, nil
}

// maxRecovered is how many deliveries one call requeues.
const maxRecovered = 10_000

// RecoverWebhookDeliveries requeues the failed deliveries of an endpoint whose events have not
// arrived since.
func (*Service) RecoverWebhookDeliveries(ctx context.Context, r gen.RecoverWebhookDeliveriesRequestObject) (gen.RecoverWebhookDeliveriesResponseObject, error) {
	tx, by := db.Write(ctx), auth.From(ctx)
	if err := lockToUse(ctx, tx, by, r.ID); err != nil {
		return nil, err
	}
	n, err := requeue(ctx, tx, by.GuildID, r.ID, r.Body.Since.Time, maxRecovered)
	if err != nil {
		return nil, err
	}
	return gen.RecoverWebhookDeliveries202JSONResponse{Data: gen.WebhookRecovery{QueuedCount: n}}, nil
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

func (s Standing) show() gen.WebhookEndpoint {
	return gen.WebhookEndpoint{
		ID: s.ID, Delivery: s.Delivery, URL: s.URL, Description: s.Description, Events: s.Events, Enabled: s.Enabled, DisabledReason: s.DisabledReason,
		SecretPreview: s.SecretPreview, CreatedAt: wire.At(s.CreatedAt), UpdatedAt: wire.At(s.UpdatedAt), Health: s.Health.Show(),
	}
}

func (s Standing) showSecret(secret string) gen.WebhookEndpointWithSecret {
	return gen.WebhookEndpointWithSecret{WebhookEndpoint: s.show(), Secret: secret}
}

func showDelivery(d Logged) gen.WebhookDelivery {
	return gen.WebhookDelivery{
		ID: d.ID, EventID: d.EventID, EventType: d.EventType, Status: d.State, AttemptCount: d.Attempts,
		NextAttemptAt: wire.AtPtr(d.NextAttemptAt), ResponseStatus: d.Status, ResponseExcerpt: d.Excerpt, Error: d.Error,
		DurationMs: d.DurationMs, CreatedAt: wire.At(d.CreatedAt), CompletedAt: wire.AtPtr(d.CompletedAt),
	}
}

func showDetail(row Logged, body []byte, log []Attempt) gen.WebhookDeliveryDetail {
	return gen.WebhookDeliveryDetail{WebhookDelivery: showDelivery(row), RequestBody: string(body), Attempts: page.Each(log, showAttempt)}
}

func showAttempt(a Attempt) gen.WebhookDeliveryAttempt {
	return gen.WebhookDeliveryAttempt{
		Number: a.Number, StartedAt: wire.At(a.StartedAt), DurationMs: a.DurationMs,
		ResponseStatus: a.Status, ResponseExcerpt: a.Excerpt, Error: a.Error,
	}
}

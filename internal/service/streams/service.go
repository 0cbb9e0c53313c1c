// Package streams manages the streams through which the operator's bot fetches the events of all
// its guilds. Package delivery stores and leases the waiting events.
package streams

import (
	"context"
	"net/http"
	"slices"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/service/pending"
)

// Service implements the operations of the tag Streams.
type Service struct {
	Waiters *delivery.Waiters // callers that wait on this node for events
}

// errWork is the refusal to change the stream of work, which always exists.
var errWork = fault.New(fault.Invalid, "invalid_request", "path name: the stream work is there by itself, and is neither changed nor deleted")

// ListBotStreams lists all streams, by name.
func (*Service) ListBotStreams(ctx context.Context, r gen.ListBotStreamsRequestObject) (gen.ListBotStreamsResponseObject, error) {
	p := page.Of(r.Params.Page, r.Params.PerPage)
	rows, err := list(ctx, db.Read(ctx), p)
	if err != nil {
		return nil, err
	}
	rows, more := page.Cut(rows, p)
	return gen.ListBotStreams200JSONResponse{Data: page.Each(rows, show), Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

// PutBotStream creates or changes a stream.
func (*Service) PutBotStream(ctx context.Context, r gen.PutBotStreamRequestObject) (gen.PutBotStreamResponseObject, error) {
	tx := db.Write(ctx)
	if err := mayChange(auth.From(ctx)); err != nil {
		return nil, err
	}
	if r.Name == delivery.StreamWork {
		return nil, errWork
	}
	var events []string
	for _, e := range r.Body.Events {
		if !slices.Contains(events, string(e)) {
			events = append(events, string(e))
		}
	}
	is, err := put(ctx, tx, r.Name, events, r.Body.Echo != nil && *r.Body.Echo)
	if err != nil {
		return nil, err
	}
	return gen.PutBotStream200JSONResponse{Data: show(is)}, nil
}

// mayChange returns a Forbidden fault for a bot key of named guilds: a stream spans all guilds, so
// changing or deleting it would change what the bots of other guilds get.
func mayChange(by *auth.Principal) error {
	if len(by.Guilds()) == 0 {
		return nil
	}
	f := fault.New(fault.Forbidden, "insufficient_scope",
		"This key serves named guilds, and a stream belongs to all of them: use a key of every guild, made without --guild, or let an operator run `guildhall stream`.")
	f.RequiredScope = auth.ScopeBot
	return f
}

// DeleteBotStream deletes a stream.
func (*Service) DeleteBotStream(ctx context.Context, r gen.DeleteBotStreamRequestObject) (gen.DeleteBotStreamResponseObject, error) {
	if err := mayChange(auth.From(ctx)); err != nil {
		return nil, err
	}
	if r.Name == delivery.StreamWork {
		return nil, errWork
	}
	if err := end(ctx, db.Write(ctx), r.Name); err != nil {
		return nil, err
	}
	return gen.DeleteBotStream204Response{}, nil
}

// PullBotEvents leases the waiting events of a stream and returns them. It returns a
// pending.Wait when there are none and the caller wants to wait.
func (s *Service) PullBotEvents(ctx context.Context, r gen.PullBotEventsRequestObject) (gen.PullBotEventsResponseObject, error) {
	by, b := auth.From(ctx), r.Body
	p := delivery.Part{Stream: b.Stream, Shards: 1, Guilds: by.Guilds()}
	if b.Shard != nil {
		p.Shard = *b.Shard
	}
	if b.Shards != nil {
		p.Shards = *b.Shards
	}
	if p.Shard >= p.Shards {
		return nil, fault.New(fault.Invalid, "invalid_request", "body /shard: must be less than shards, which is %d", p.Shards)
	}
	options := delivery.NewFetchOptions(b.Limit, b.Lease, b.Wait)
	done := s.Waiters.Done("")
	got, err := delivery.FetchStream(ctx, db.Write(ctx), p, by.ID, options.Limit, options.Lease)
	if err != nil {
		return nil, err
	}
	return pulled{got}, pending.Events(got, options.Wait, func() *delivery.Waiter { return s.Waiters.BeginPart(got.Stream, p, done) })
}

// AckBotEvents acknowledges fetched events and returns others to the stream.
func (*Service) AckBotEvents(ctx context.Context, r gen.AckBotEventsRequestObject) (gen.AckBotEventsResponseObject, error) {
	p := delivery.Part{Stream: r.Body.Stream, Guilds: auth.From(ctx).Guilds()}
	settled, returned, err := delivery.AcknowledgeStream(ctx, db.Write(ctx), p, r.Body.EventIds, r.Body.ReturnIds)
	if err != nil {
		return nil, err
	}
	return gen.AckBotEvents200JSONResponse{Data: gen.WebhookAcknowledgement{SettledCount: settled, ReturnedCount: returned}}, nil
}

func show(r row) gen.BotStream {
	return gen.BotStream{Name: r.Name, Events: r.Events, Echo: r.Echo, CreatedAt: wire.At(r.CreatedAt), FetchedAt: wire.AtPtr(r.FetchedAt)}
}

// pulled is a response that contains events byte for byte as they are stored.
type pulled struct{ delivery.Fetched }

// VisitPullBotEventsResponse writes the same JSON as gen.PullBotEvents200JSONResponse, which cannot
// hold raw events.
func (p pulled) VisitPullBotEventsResponse(w http.ResponseWriter) error {
	return p.WriteJSON(w)
}

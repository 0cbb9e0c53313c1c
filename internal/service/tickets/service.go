// Package tickets implements support tickets: tickets, their transcripts, and messages of staff to
// the opener. It never calls the chat platform inside a transaction: a message is posted between
// two transactions (message.go), and a lane updates channels (channel.go).
package tickets

import (
	"context"
	"errors"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/page"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/pending"
	"guildhall/internal/service/transfer"
)

// Config holds the dependencies of the Service.
type Config struct {
	DB   db.Doer       // runs the transactions around a call of the platform
	Chat chat.Platform // posts messages
	Keys Keys
}

// Keys handles the idempotency keys of messages after the first transaction of their request.
type Keys interface {
	// Lease commits the key without a response and reserves it.
	Lease(ctx context.Context, tx *db.Tx, r idempotency.Request) error
	// Release frees the key, so that the request may run again.
	Release(ctx context.Context, tx *db.Tx, r idempotency.Request) error
	// Keep stores the response to the request under its key.
	Keep(ctx context.Context, tx *db.Tx, r idempotency.Request, response pending.Render) error
}

// Service implements the operations on tickets.
type Service struct{ cfg Config }

// New returns the service.
func New(cfg Config) (*Service, error) {
	if cfg.DB == nil || cfg.Chat == nil || cfg.Keys == nil {
		return nil, errors.New("tickets: DB, Chat and Keys must be given")
	}
	return &Service{cfg}, nil
}

// ListTickets lists the guild's tickets, newest first, or by their last message. With updated_since
// it lists by the last change, so that a ticket that changes while a reader pages moves to the end.
func (s *Service) ListTickets(ctx context.Context, r gen.ListTicketsRequestObject) (gen.ListTicketsResponseObject, error) {
	p := page.Of(r.Params.Page, r.Params.PerPage)
	list, more, err := List(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, filterOf(r.Params), p)
	if err != nil {
		return nil, err
	}
	return gen.ListTickets200JSONResponse{Data: list, Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

// nobody is the value of claimed_by_id that selects unclaimed tickets.
const nobody = "none"

func filterOf(q gen.ListTicketsParams) filter {
	f := filter{
		Status: string(or(q.Status, "")), OpenerID: or(q.OpenerID, ""), ClaimedByID: or(q.ClaimedByID, ""),
		ChannelID: or(q.ChannelID, ""), Category: or(q.Category, ""), Priority: string(or(q.Priority, "")), Number: or(q.Number, 0), Activity: or(q.Order, gen.TicketOrderCreated) == gen.TicketOrderActivity,
	}
	if f.ClaimedByID == nobody {
		f.ClaimedByID, f.Unclaimed = "", true
	}
	if q.UpdatedSince != nil {
		f.Changed = &q.UpdatedSince.Time
	}
	f.Metadata = metadata.ParseLookup(q.Metadata)
	return f
}

// GetTicket returns one ticket.
func (s *Service) GetTicket(ctx context.Context, r gen.GetTicketRequestObject) (gen.GetTicketResponseObject, error) {
	t, err := get(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	return gen.GetTicket200JSONResponse{Data: show(t)}, nil
}

// ListTicketMessages lists the transcript of a ticket in reading order or from its end, including
// notes and system entries.
func (s *Service) ListTicketMessages(ctx context.Context, r gen.ListTicketMessagesRequestObject) (gen.ListTicketMessagesResponseObject, error) {
	q, guild, p := db.Read(ctx), auth.Acting(ctx).GuildID, page.Of(r.Params.Page, r.Params.PerPage)
	if _, err := get(ctx, q, guild, r.ID); err != nil {
		return nil, err
	}
	var since time.Time
	if r.Params.Since != nil {
		since = r.Params.Since.Time
	}
	order := reading
	if or(r.Params.Order, gen.TranscriptOrderAsc) == gen.TranscriptOrderDesc {
		order = backwards
	}
	entries, err := listEntries(ctx, q, guild, r.ID, order, since, p)
	if err != nil {
		return nil, err
	}
	entries, more := page.Cut(entries, p)
	return gen.ListTicketMessages200JSONResponse{Data: page.Each(entries, showEntry), Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

// CloseTicket closes an open ticket. A lane archives or deletes its channel afterwards.
func (s *Service) CloseTicket(ctx context.Context, r gen.CloseTicketRequestObject) (gen.CloseTicketResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	var reason, author *string
	if r.Body != nil {
		reason, author = r.Body.Reason, r.Body.AuthorID
	}
	t, err := lock(ctx, tx, by.GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	p, err := policyOf(ctx, tx, by.GuildID)
	if err != nil {
		return nil, err
	}
	if err := mayClose(t, reason, p); err != nil {
		return nil, err
	}
	if t, err = closeTicket(ctx, tx, t, author, reason); err != nil {
		return nil, err
	}
	if err := recordChange(ctx, tx, by, t, entry{Kind: kindClose, AuthorID: author, Content: or(reason, "Closed.")}, event.TicketClosed); err != nil {
		return nil, err
	}
	return gen.CloseTicket200JSONResponse{Data: show(t)}, nil
}

// ReopenTicket reopens a closed ticket. A lane restores its channel afterwards, if there still is
// one.
func (s *Service) ReopenTicket(ctx context.Context, r gen.ReopenTicketRequestObject) (gen.ReopenTicketResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	var reason, author *string
	if r.Body != nil {
		reason, author = r.Body.Reason, r.Body.AuthorID
	}
	t, err := lock(ctx, tx, by.GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	if err := mayReopen(t); err != nil {
		return nil, err
	}
	if err := channelFree(ctx, tx, t); err != nil {
		return nil, err
	}
	if t, err = reopenTicket(ctx, tx, t); err != nil {
		return nil, err
	}
	if err := recordChange(ctx, tx, by, t, entry{Kind: kindReopen, AuthorID: author, Content: or(reason, "Reopened.")}, event.TicketReopened); err != nil {
		return nil, err
	}
	return gen.ReopenTicket200JSONResponse{Data: show(t)}, nil
}

// ClaimTicket assigns an open ticket to a staff member. A repeat by the same member changes
// nothing.
func (s *Service) ClaimTicket(ctx context.Context, r gen.ClaimTicketRequestObject) (gen.ClaimTicketResponseObject, error) {
	tx, by, user := db.Write(ctx), auth.Acting(ctx), &r.Body.UserID
	t, err := lock(ctx, tx, by.GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	if err := mayClaim(t, *user); err != nil {
		return nil, err
	}
	if transfer.Same(t.ClaimedByID, user) {
		return gen.ClaimTicket200JSONResponse{Data: show(t)}, nil
	}
	if t, err = claim(ctx, tx, t, user); err != nil {
		return nil, err
	}
	if err := recordChange(ctx, tx, by, t, entry{Kind: kindClaim, Content: "Claimed by " + *user + "."}, event.TicketClaimed); err != nil {
		return nil, err
	}
	return gen.ClaimTicket200JSONResponse{Data: show(t)}, nil
}

// AssignTicket assigns an open ticket to a staff member, whoever has claimed it, or to nobody. A
// call without effect changes nothing.
func (s *Service) AssignTicket(ctx context.Context, r gen.AssignTicketRequestObject) (gen.AssignTicketResponseObject, error) {
	tx, by, user := db.Write(ctx), auth.Acting(ctx), wire.OrNil(r.Body.UserID)
	t, err := lock(ctx, tx, by.GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	if err := mustBeOpen(t); err != nil {
		return nil, err
	}
	if transfer.Same(t.ClaimedByID, user) {
		return gen.AssignTicket200JSONResponse{Data: show(t)}, nil
	}
	if t, err = claim(ctx, tx, t, user); err != nil {
		return nil, err
	}
	if err := recordChange(ctx, tx, by, t, entry{Kind: kindAssign, AuthorID: r.Body.AuthorID, Content: "Assigned to " + or(user, "nobody") + "."}, event.TicketAssigned); err != nil {
		return nil, err
	}
	return gen.AssignTicket200JSONResponse{Data: show(t)}, nil
}

// UpdateTicket changes subject, category, priority and metadata of a ticket, open or closed. An
// event is recorded only if something changes.
func (s *Service) UpdateTicket(ctx context.Context, r gen.UpdateTicketRequestObject) (gen.UpdateTicketResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	was, err := lock(ctx, tx, by.GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	is := was
	if subject := r.Body.Subject; subject.IsSpecified() {
		is.Subject = wire.OrNil(subject)
	}
	if category := r.Body.Category; category.IsSpecified() {
		is.Category = wire.OrNil(category)
	}
	if r.Body.Priority != nil {
		is.Priority = string(*r.Body.Priority)
	}
	if is.Metadata, err = was.Metadata.With(r.Body.Metadata); err != nil {
		return nil, err
	}
	changed := changes(&was, &is)
	if len(changed) == 0 {
		return gen.UpdateTicket200JSONResponse{Data: show(was)}, nil
	}
	if is, err = edit(ctx, tx, is); err != nil {
		return nil, err
	}
	data := showChange(is, changed)
	data.AuthorID = r.Body.AuthorID
	if err := event.Record(ctx, tx, event.From(by).On(is.UpdatedAt.Time), event.TicketUpdated, data); err != nil {
		return nil, err
	}
	return gen.UpdateTicket200JSONResponse{Data: show(is)}, nil
}

// recordChange adds an entry to the transcript and records the event of a change.
func recordChange(ctx context.Context, tx *db.Tx, by auth.By, t row, e entry, typ string) error {
	e.AuthorType = bySystem
	if _, err := write(ctx, tx, t, e); err != nil {
		return err
	}
	return event.Record(ctx, tx, event.From(by).On(t.UpdatedAt.Time), typ, show(t))
}

// showChange is show for an event, which also lists the changed members.
func showChange(t row, changed []string) gen.TicketChange {
	return gen.TicketChange{Ticket: show(t), Changed: changed}
}

func show(t row) gen.Ticket {
	return gen.Ticket{
		ID: t.ID, Number: t.Number, Status: t.Status, Subject: t.Subject, OpenerID: t.OpenerID, ClaimedByID: t.ClaimedByID,
		ChannelID: t.ChannelID, CloseReason: t.CloseReason, ClosedByID: t.ClosedByID, MessageCount: t.MessageCount,
		LastMessageAt: t.LastMessageAt, Metadata: t.Metadata, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt,
		ClosedAt: t.ClosedAt, Category: t.Category, Priority: t.Priority,
	}
}

func showEntry(e entry) gen.TicketMessage {
	return gen.TicketMessage{
		ID: e.ID, TicketID: e.TicketID, Kind: e.Kind, Internal: or(e.Internal, false), AuthorID: e.AuthorID, AuthorType: e.AuthorType,
		Content: e.Content, ChannelMessageID: e.ChannelMessageID, CreatedAt: e.CreatedAt, Attachments: page.Each(e.Attachments, showAttachment),
		EditedAt: e.EditedAt, DeletedAt: e.DeletedAt, OriginalContent: e.OriginalContent,
	}
}

// showEntryChange is showEntry for an event, which also lists the changed members.
func showEntryChange(e entry, changed []string) gen.TicketMessageChange {
	return gen.TicketMessageChange{TicketMessage: showEntry(e), Changed: changed}
}

func showAttachment(a attachment) gen.Attachment {
	shown := gen.Attachment{Name: a.Name, URL: a.URL, ContentType: a.ContentType}
	if a.Size != nil {
		shown.Size = new(int(*a.Size))
	}
	return shown
}

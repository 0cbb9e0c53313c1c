// Package cases implements moderation cases. The API can create notes and warnings; cases of other
// types, and changes of status, come from the operator's bot. A case expires by itself.
package cases

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/page"
	"guildhall/internal/outbound/event"
)

// Service implements the operations on cases.
type Service struct{}

// ListCases returns a page of the guild's cases, newest first. With updated_since it lists by the
// last change, so that a case that changes while a reader pages moves to the end, where the reader
// will see it. Deleted cases are included unless the status filter excludes them: a client that
// keeps a copy must learn of the deletion.
func (s *Service) ListCases(ctx context.Context, r gen.ListCasesRequestObject) (gen.ListCasesResponseObject, error) {
	p := page.Of(r.Params.Page, r.Params.PerPage)
	list, more, err := List(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, filterOf(r.Params), p)
	if err != nil {
		return nil, err
	}
	return gen.ListCases200JSONResponse{Data: list, Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

func filterOf(q gen.ListCasesParams) (f filter) {
	f.UserID, f.ModeratorID = or(q.UserID), or(q.ModeratorID)
	f.Type, f.Status = string(or(q.Type)), string(or(q.Status))
	f.Number = or(q.Number)
	f.Since = or(q.Since).Time
	if q.Until != nil {
		f.Until = &q.Until.Time
	}
	if q.UpdatedSince != nil {
		f.Changed = &q.UpdatedSince.Time
	}
	f.Metadata = metadata.ParseLookup(q.Metadata)
	return f
}

// or returns *v, or the zero value if v is nil.
func or[T any](v *T) (value T) {
	if v != nil {
		value = *v
	}
	return value
}

// CreateCase creates a note or a warning with the guild's next number. The users that it names need
// not be members any more.
func (s *Service) CreateCase(ctx context.Context, r gen.CreateCaseRequestObject) (gen.CreateCaseResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	kept, err := metadata.Values(nil).With(r.Body.Metadata)
	if err != nil {
		return nil, err
	}
	c, err := insert(ctx, tx, by, row{
		ID:          db.NewID(),
		GuildID:     by.GuildID,
		UserID:      r.Body.UserID,
		ModeratorID: r.Body.ModeratorID,
		Type:        string(r.Body.Type),
		Reason:      r.Body.Reason,
		Status:      active,
		ExpiresAt:   r.Body.ExpiresAt,
		Source:      by.Type(),
		Metadata:    kept,
	})
	if err != nil {
		return nil, err
	}
	if err := event.Record(ctx, tx, event.From(by).On(c.CreatedAt.Time), event.CaseCreated, show(c)); err != nil {
		return nil, err
	}
	return gen.CreateCase201JSONResponse{
		Body:    gen.CaseEnvelope{Data: show(c)},
		Headers: gen.CreateCase201ResponseHeaders{Location: "/api/v1/cases/" + c.ID},
	}, nil
}

// GetCase returns one case, whatever its type and status.
func (s *Service) GetCase(ctx context.Context, r gen.GetCaseRequestObject) (gen.GetCaseResponseObject, error) {
	c, err := get(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	return gen.GetCase200JSONResponse{Data: show(c)}, nil
}

// ListCaseChanges returns one page of a case's changes, oldest first. The first is its creation.
func (s *Service) ListCaseChanges(ctx context.Context, r gen.ListCaseChangesRequestObject) (gen.ListCaseChangesResponseObject, error) {
	q, guild, p := db.Read(ctx), auth.Acting(ctx).GuildID, page.Of(r.Params.Page, r.Params.PerPage)
	list, more, err := ChangesOf(ctx, q, guild, r.ID, p)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 { // a page behind the last one, or no case
		if _, err := get(ctx, q, guild, r.ID); err != nil {
			return nil, err
		}
	}
	return gen.ListCaseChanges200JSONResponse{Data: list, Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

func showRecorded(c changeRow) gen.PastCaseChange {
	list := make([]gen.CaseDifference, len(c.Changes))
	for i, d := range c.Changes {
		list[i] = gen.CaseDifference{Field: d.Field, Before: d.Before, After: d.After}
	}
	return gen.PastCaseChange{
		At: c.At, Origin: gen.EventOrigin{Type: c.Origin.Type, TokenID: c.Origin.TokenID, KeyID: c.Origin.KeyID}, AuthorID: c.AuthorID, Changes: list,
	}
}

// UpdateCase changes the reason, the expiry and the metadata; a member that is left out stays
// unchanged. It returns a Refused fault for a deleted case. If nothing changes, the case is not
// written and no event is recorded.
func (s *Service) UpdateCase(ctx context.Context, r gen.UpdateCaseRequestObject) (gen.UpdateCaseResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	c, err := lock(ctx, tx, by.GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	if c.Status == deleted {
		return nil, isDeleted(c)
	}
	was := c
	c, changed, err := patchOf(r.Body).apply(was)
	if err != nil {
		return nil, err
	}
	if len(changed) == 0 {
		return gen.UpdateCase200JSONResponse{Data: show(c)}, nil
	}
	if c, err = edit(ctx, tx, by, was, c, r.Body.AuthorID); err != nil {
		return nil, err
	}
	if err := event.Record(ctx, tx, event.From(by).On(c.UpdatedAt.Time), event.CaseUpdated, showChange(c, changed, r.Body.AuthorID)); err != nil {
		return nil, err
	}
	return gen.UpdateCase200JSONResponse{Data: show(c)}, nil
}

func isDeleted(c row) error {
	return fault.New(fault.Refused, "case_deleted", "Case %d is deleted and can no longer be edited.", c.Number)
}

// patchOf returns the change in a request's body, in which an expiry may be absent, null or set.
func patchOf(b *gen.UpdateCaseRequest) patch {
	p := patch{Reason: b.Reason, Metadata: b.Metadata}
	if b.ExpiresAt.IsSpecified() {
		p.Expiry = true
		if t, err := b.ExpiresAt.Get(); err == nil { // an error means null
			p.ExpiresAt = &t
		}
	}
	return p
}

func show(c row) gen.Case {
	return gen.Case{
		ID:          c.ID,
		Number:      c.Number,
		UserID:      c.UserID,
		ModeratorID: c.ModeratorID,
		Type:        c.Type,
		Reason:      c.Reason,
		Status:      c.Status,
		ExpiresAt:   c.ExpiresAt,
		Source:      c.Source,
		Metadata:    c.Metadata,
		CreatedAt:   c.CreatedAt,
		UpdatedAt:   c.UpdatedAt,
	}
}

// showChange returns a case as case.updated shows it: with the members that changed and the
// author of the change.
func showChange(c row, changed []string, author *string) gen.CaseChange {
	return gen.CaseChange{Case: show(c), Changed: changed, AuthorID: author}
}

// Package members stores what the bot or an integrator has sent about the people in a guild: names,
// whether they are present, and metadata. No other package requires a member to be known.
package members

import (
	"context"
	"slices"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/page"
	"guildhall/internal/outbound/event"
)

// Service implements the operations on members.
type Service struct{}

// maxUsers is how many ids user_ids may contain, and the size of that page.
const maxUsers = 100

// ListMembers lists members by id, by name or by their last change, or those whom user_ids
// or their metadata name.
func (*Service) ListMembers(ctx context.Context, r gen.ListMembersRequestObject) (gen.ListMembersResponseObject, error) {
	guild, q := auth.Acting(ctx).GuildID, r.Params
	if err := oneFilter(q); err != nil {
		return nil, err
	}
	if q.UserIds != nil {
		rows, err := named(ctx, db.Read(ctx), guild, q.UserIds, q.Present)
		if err != nil {
			return nil, err
		}
		return gen.ListMembers200JSONResponse{Data: page.Each(rows, show), Page: 1, PerPage: maxUsers}, nil
	}
	p := page.Of(1, 25)
	if q.Page != nil {
		p.Page = *q.Page
	}
	if q.PerPage != nil {
		p.PerPage = *q.PerPage
	}
	f := filter{Prefix: q.Name, Metadata: metadata.ParseLookup(q.Metadata), Present: q.Present}
	if q.UpdatedSince != nil {
		f.Changed = &q.UpdatedSince.Time
	}
	rows, err := list(ctx, db.Read(ctx), guild, f, p)
	if err != nil {
		return nil, err
	}
	rows, more := page.Cut(rows, p)
	return gen.ListMembers200JSONResponse{Data: page.Each(rows, show), Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

// oneFilter refuses filters that exclude each other.
func oneFilter(q gen.ListMembersParams) error {
	var given []string
	for _, f := range []struct {
		name string
		set  bool
	}{{"user_ids", q.UserIds != nil}, {"name", q.Name != nil}, {"metadata", q.Metadata != nil}, {"updated_since", q.UpdatedSince != nil}} {
		if f.set {
			given = append(given, f.name)
		}
	}
	if len(given) > 1 {
		return fault.New(fault.Invalid, "invalid_request", "query %s: cannot stand beside %s", given[1], given[0])
	}
	if q.UserIds == nil {
		return nil
	}
	if i := slices.Index([]bool{q.Page != nil, q.PerPage != nil}, true); i >= 0 {
		return fault.New(fault.Invalid, "invalid_request", "query %s: cannot stand beside user_ids, which is one page", []string{"page", "per_page"}[i])
	}
	return nil
}

// GetMember returns one member.
func (*Service) GetMember(ctx context.Context, r gen.GetMemberRequestObject) (gen.GetMemberResponseObject, error) {
	m, err := get(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, r.UserID)
	if err != nil {
		return nil, err
	}
	return gen.GetMember200JSONResponse{Data: show(m)}, nil
}

// UpdateMember changes the metadata of a member, and inserts a member of whom nothing was
// known. Only a change emits an event.
func (*Service) UpdateMember(ctx context.Context, r gen.UpdateMemberRequestObject) (gen.UpdateMemberResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	was, err := lock(ctx, tx, by.GuildID, r.UserID)
	if err != nil {
		return nil, err
	}
	m := row{GuildID: by.GuildID, UserID: r.UserID}
	if was != nil {
		m = *was
	}
	merged, differs := m.Metadata.Merge(r.Body.Metadata)
	if was != nil && !differs {
		return gen.UpdateMember200JSONResponse{Data: show(m)}, nil
	}
	if err := merged.CheckUpTo(maxNames); err != nil {
		return nil, err
	}
	m.Metadata = merged
	if m, err = write(ctx, tx, m, was != nil); err != nil {
		return nil, err
	}
	if err := event.Record(ctx, tx, event.From(by).On(m.UpdatedAt.Time), event.MemberUpdated, showChange(m, []string{"metadata"})); err != nil {
		return nil, err
	}
	return gen.UpdateMember200JSONResponse{Data: show(m)}, nil
}

func show(m row) gen.Member {
	return gen.Member{
		UserID: m.UserID, Name: m.Name, AvatarURL: m.AvatarURL, JoinedAt: m.JoinedAt, LeftAt: m.LeftAt, Metadata: m.Metadata,
		CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt,
	}
}

// showChange returns the data of a member's event.
func showChange(m row, changed []string) gen.MemberChange {
	if changed == nil {
		changed = []string{} // a new member of whom only the id is known
	}
	return gen.MemberChange{Member: show(m), Changed: changed}
}

package members

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
)

// The functions of this file read members for people, in the dashboard, each bound to a guild.

// Member is a member as the API shows it.
type Member = gen.Member

// Present reports whether the member is in the guild, according to the records written so far.
func Present(m *Member) bool { return !hasLeft(m.JoinedAt, m.LeftAt) }

// Find returns a member; nil when nothing is known of the user.
func Find(ctx context.Context, q db.Querier, guild, user string) (*Member, error) {
	m, err := get(ctx, q, guild, user)
	if fault.Is(err, "not_found") {
		return nil, nil //nolint:nilnil // nothing is known of the user, and that is no failure
	}
	if err != nil {
		return nil, err
	}
	return new(show(m)), nil
}

// Names returns the names of those users whose name is known.
func Names(ctx context.Context, q db.Querier, guild string, users []string) (map[string]string, error) {
	rows, err := named(ctx, q, guild, users, nil)
	names := make(map[string]string, len(rows))
	for _, m := range rows {
		if m.Name != nil {
			names[m.UserID] = *m.Name
		}
	}
	return names, err
}

// Search returns a page of the members whose names begin with a text, and whether more follow.
func Search(ctx context.Context, q db.Querier, guild, name string, p page.P) ([]Member, bool, error) {
	rows, err := list(ctx, q, guild, filter{Prefix: &name}, p)
	rows, more := page.Cut(rows, p)
	return page.Each(rows, show), more, err
}

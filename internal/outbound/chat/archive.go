package chat

import (
	"context"
	"slices"

	"github.com/disgoorg/disgo/rest"
)

// writing are the permissions that archiving a channel denies: sending messages, also in threads,
// and creating threads.
const writing uint64 = 1<<11 | 1<<35 | 1<<36 | 1<<38

// The platform's types of thread channels.
const (
	announcementThread = 10
	publicThread       = 11
	privateThread      = 12
)

// channelInfo is the platform's JSON of a channel.
type channelInfo struct {
	Type       int         `json:"type"`
	Overwrites []Overwrite `json:"permission_overwrites"`
}

// LockOf returns the overwrites of everyone, the user, and every member with permissions of their
// own except the bot. Roles keep theirs, so staff can still write.
func (d *Discord) LockOf(ctx context.Context, c Channel, user string) (Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, d.budget)
	defer cancel()
	a, err := d.about(ctx, c)
	if err != nil || a.thread() {
		return Lock{Thread: err == nil}, err
	}
	self, err := d.me(ctx)
	if err != nil {
		return Lock{}, err
	}
	// The role of everyone has the guild's id.
	lock := Lock{Before: []Overwrite{a.of(c.GuildID, RoleOverwrite), a.of(user, MemberOverwrite)}}
	for _, o := range a.Overwrites {
		if o.Type == MemberOverwrite && o.ID != self && o.ID != user {
			lock.Before = append(lock.Before, o)
		}
	}
	return lock, nil
}

func (a channelInfo) thread() bool {
	return a.Type == announcementThread || a.Type == publicThread || a.Type == privateThread
}

// of returns the overwrite of a role or member, or one with Absent set if there is none.
func (a channelInfo) of(id string, typ OverwriteType) Overwrite {
	i := slices.IndexFunc(a.Overwrites, func(o Overwrite) bool { return o.ID == id && o.Type == typ })
	if i < 0 {
		return Overwrite{ID: id, Type: typ, Absent: true}
	}
	return a.Overwrites[i]
}

func (d *Discord) about(ctx context.Context, c Channel) (channelInfo, error) {
	var a channelInfo
	err := d.in(ctx, c, rest.GetChannel.Compile(nil, c.ID), nil, &a)
	return a, err
}

// ArchiveChannel archives and locks a thread; in any other channel it denies writing.
func (d *Discord) ArchiveChannel(ctx context.Context, c Channel, lock Lock) error {
	return d.setArchived(ctx, c, lock, true)
}

// RestoreChannel unarchives a thread; in any other channel it restores the permissions that
// ArchiveChannel denied.
func (d *Discord) RestoreChannel(ctx context.Context, c Channel, lock Lock) error {
	return d.setArchived(ctx, c, lock, false)
}

// setArchived reads the channel first, which may have changed since the lock was made, and changes
// only the permissions to write.
func (d *Discord) setArchived(ctx context.Context, c Channel, lock Lock, archived bool) error {
	ctx, cancel := context.WithTimeout(ctx, d.budget)
	defer cancel()
	a, err := d.about(ctx, c)
	if err != nil {
		return err
	}
	if a.thread() {
		body := map[string]bool{"archived": archived, "locked": archived}
		return d.in(ctx, c, rest.UpdateChannel.Compile(nil, c.ID), body, nil)
	}
	for _, before := range lock.Before {
		now := a.of(before.ID, before.Type)
		want := now.reopened(before)
		if archived {
			want = now.closed()
		}
		switch {
		case want == now:
		case want.Absent:
			err = d.in(ctx, c, rest.DeletePermissionOverwrite.Compile(nil, c.ID, before.ID), nil, nil)
		default:
			err = d.in(ctx, c, rest.UpdatePermissionOverwrite.Compile(nil, c.ID, before.ID), want, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// closed returns the overwrite with writing denied.
func (o Overwrite) closed() Overwrite {
	o.Allow &^= writing
	o.Deny |= writing
	o.Absent = false
	return o
}

// reopened returns the overwrite with the permissions to write that it had before. It keeps other
// changes made since.
func (o Overwrite) reopened(before Overwrite) Overwrite {
	if o.Absent {
		return o // someone else has changed the permission meanwhile
	}
	o.Allow = o.Allow&^writing | before.Allow&writing
	o.Deny = o.Deny&^writing | before.Deny&writing
	o.Absent = before.Absent && o.Allow == 0 && o.Deny == 0
	return o
}

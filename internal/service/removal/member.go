package removal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
)

// somebody is the id that replaces a forgotten member's id in columns that need one. No member has
// this id.
const somebody = "1"

// removed replaces texts that a forgotten member has written.
const removed = "[removed]"

// request is a request to delete a member's data in a guild.
type request struct {
	GuildID string    `db:"guild_id"`
	ID      string    `db:"id"`
	UserID  string    `db:"user_id"`
	Cases   bool      `db:"cases"`
	ByID    *string   `db:"by_id"`
	At      time.Time `db:"requested_at"`
}

// Forget requests that a guild deletes a member's data and returns the instant of the request: data
// that exists at that instant is deleted. The caller's transaction deletes wallet and level, so
// that later earnings start from nothing; the worker deletes the rest. The row in the audit log
// does not name the member.
func Forget(ctx context.Context, tx *db.Tx, by auth.By, user string, cases bool) (at time.Time, err error) {
	if at, err = forgetIn(ctx, tx, by, []string{by.GuildID}, user, cases); err != nil {
		return at, err
	}
	return at, noteForgotten(ctx, tx, []string{by.GuildID}, cases)
}

// ForgetEverywhere is Forget for several guilds, or for every guild if guilds is empty. The
// caller's transaction deletes wallet and level in each guild that knows the member. The audit log
// gets a row in each named guild, or one without a guild.
func ForgetEverywhere(ctx context.Context, tx *db.Tx, by auth.By, guilds []string, user string, cases bool) (at time.Time, err error) {
	known, err := db.Select[string](ctx, tx, knownGuilds, user, db.Array(guilds))
	if err != nil {
		return at, fault.Wrap(err, "list the guilds that know a member")
	}
	if at, err = forgetIn(ctx, tx, by, known, user, cases); err != nil {
		return at, err
	}
	if len(guilds) == 0 {
		guilds = []string{""}
	}
	return at, noteForgotten(ctx, tx, guilds, cases)
}

// forgetIn deletes the member's wallets and levels, and the member, in guilds in the given order,
// and adds a request for the worker to each guild. The requests get the instant at which the last
// wallet and level were deleted: an earlier instant would spare data that was acknowledged before
// the response, and an instant of the worker's would include data that was acknowledged after it.
func forgetIn(ctx context.Context, tx *db.Tx, by auth.By, guilds []string, user string, cases bool) (at time.Time, err error) {
	for _, guild := range guilds {
		if _, err := db.Exec(ctx, tx, dropMember, guild, user); err != nil {
			return at, fault.Wrap(err, "delete a member of guild", guild)
		}
		if err := leaveBoards(ctx, tx, guild, user); err != nil {
			return at, err
		}
		for _, statement := range []string{dropMoves, dropPeriods} {
			if _, err := db.Exec(ctx, tx, statement, guild, user); err != nil {
				return at, fault.Wrap(err, "delete the XP by week and month of a member of guild", guild)
			}
		}
	}
	if at, err = db.Get[time.Time](ctx, tx, `SELECT clock_timestamp()`); err != nil {
		return at, fault.Wrap(err, "read the instant at which a member is forgotten")
	}
	var keyID *string
	if by.ID != "" {
		keyID = &by.ID
	}
	for _, guild := range guilds {
		if _, err := db.Exec(ctx, tx, `
			INSERT INTO forgotten_members (guild_id, id, user_id, cases, by_id, requested_at)
			VALUES ($1, $2, $3, $4, $5, $6)`, guild, db.NewID(), user, cases, keyID, at); err != nil {
			return at, fault.Wrap(err, "request that guild", guild, "forgets a member")
		}
	}
	return at, nil
}

// noteForgotten adds a row to the audit log of each guild.
func noteForgotten(ctx context.Context, tx *db.Tx, guilds []string, cases bool) error {
	changes := make([]audit.Change, len(guilds))
	for i, guild := range guilds {
		changes[i] = audit.Change{Guild: guild, Action: audit.MemberForgotten, After: map[string]any{"cases": cases}}
	}
	return audit.Record(ctx, tx, changes...)
}

// waitingMembers selects the requests to forget members, the oldest first.
const waitingMembers = `
	SELECT guild_id, id, user_id, cases, by_id, requested_at
	FROM forgotten_members
	ORDER BY requested_at
	LIMIT $1`

// Members works on the requests to forget members. It stops when ctx ends, and the next run
// continues.
func Members(ctx context.Context, d *db.DB) error {
	list, err := db.Select[request](ctx, d.Reader(), waitingMembers, atOnce)
	errs := []error{fault.Wrap(err, "look for members to be forgotten")}
	for _, r := range list {
		err := r.forget(ctx, d)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the next run continues
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// forget deletes the rows of one request, the request's own row last.
func (r request) forget(ctx context.Context, d *db.DB) error {
	for _, p := range parts {
		if p.cases && !r.Cases {
			continue
		}
		if err := r.take(ctx, d, p); err != nil {
			return fmt.Errorf("forget a member of guild %s: %s: %w", r.GuildID, p.what, err)
		}
	}
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		// A message of the member that is being posted now is finished within its lease.
		posting, err := db.Get[bool](ctx, tx, `
			SELECT EXISTS (SELECT FROM chat_intents WHERE guild_id = $1 AND author_id = $2 AND created_at <= $3)`, r.GuildID, r.UserID, r.At)
		if err != nil || posting {
			return err
		}
		n, err := db.Exec(ctx, tx, `DELETE FROM forgotten_members WHERE guild_id = $1 AND id = $2`, r.GuildID, r.ID)
		if err != nil || n == 0 { // another worker was first
			return err
		}
		at, err := db.Get[time.Time](ctx, tx, `SELECT clock_timestamp()`)
		if err != nil {
			return fault.Wrap(err, "ask when a member is forgotten")
		}
		data := map[string]string{"user_id": r.UserID}
		return event.Record(ctx, tx, event.From(auth.Stored(r.GuildID, r.ByID)).On(at), event.MemberForgotten, data)
	})
}

// take finds the rows of a part, many with one query, and changes them a few in each transaction.
func (r request) take(ctx context.Context, d *db.DB, p part) error {
	for {
		found, err := db.Select[string](ctx, d.Reader(), p.find, r.GuildID, r.UserID, r.At, look)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(found, p.most) {
			begun := time.Now() //nolint:forbidigo // how long this machine waits for a step, no instant
			err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
				for _, change := range p.changes {
					if _, err := db.Exec(ctx, tx, change, r.GuildID, r.UserID, r.At, db.Array(some)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			if err := rest(ctx, begun); err != nil {
				return err
			}
		}
		if len(found) < look {
			return nil
		}
	}
}

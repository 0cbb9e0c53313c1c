package auth

import (
	"context"
	"slices"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// Serves reports whether a bot key may act in a guild. A token's guild is its own.
func (p *Principal) Serves(guild string) bool {
	if !p.IsKey() {
		return p.GuildID == guild
	}
	return p.guilds == nil || slices.Contains(p.guilds, guild)
}

// Guilds are those that a bot key names; none: it serves every guild.
func (p *Principal) Guilds() []string { return slices.Clone(p.guilds) }

// In is the bot key as it acts in one guild, for one request.
func (p *Principal) In(guild string) *Principal {
	q := *p
	q.GuildID = guild
	return &q
}

// there is a guild that a node has seen.
type there struct {
	generation uint64
	at         time.Time
}

// Presence says whether a guild is there.
type Presence int

// A guild that leaves is there for nobody. Until its day it can be taken back.
const (
	Absent  Presence = iota // there is no such guild
	Present                 // it is there
	Leaving                 // it is being removed, and can be taken back
	Going                   // it is being removed, and what it has is being deleted
)

// Gone is NotFound for a guild that is there for nobody, and says why. It is not kept under
// a key: the guild may be made or taken back, and the same request then counts.
func (p Presence) Gone(guild string) *fault.Error {
	why := map[Presence]string{
		Absent:  "There is no guild %s.",
		Leaving: "Guild %s is being removed. Until its day comes it can be taken back: with a guild record, or by `guildhall guild restore`.",
		Going:   "Guild %s is being removed, and what it had is being deleted.",
	}
	gone := fault.New(fault.NotFound, "not_found", why[p], guild)
	gone.Unkept = true
	return gone
}

// Guild says whether a guild is there. That it is is remembered for a minute,
// and forgotten at once with an announcement that concerns everything; anything
// else is asked anew each time. It is service_unavailable when it cannot be asked.
func (t *Tokens) Guild(ctx context.Context, id string) (Presence, error) {
	now, generation := t.clock(), t.gens.all.Load()
	if t.trusted(now) {
		if g, ok := t.guilds.GetIfPresent(id); ok && g.generation == generation {
			if age, believable := passed(g.at, now); believable && age <= tokenTTL {
				return Present, nil
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	p, err := PresenceOf(ctx, t.db.Reader(), id)
	if err != nil {
		return Absent, fault.New(fault.Unavailable, "service_unavailable", "The guild cannot be looked up right now.").Because(err).After(5 * time.Second)
	}
	if p == Present {
		t.guilds.Set(id, there{generation, now})
	}
	return p, nil
}

// PresenceOf is Guild from the database.
func PresenceOf(ctx context.Context, q db.Querier, id string) (Presence, error) {
	p, err := db.Get[Presence](ctx, q, `
		SELECT CASE WHEN removed_after IS NULL THEN 1 WHEN removed_after > now() THEN 2 ELSE 3 END
		FROM guilds
		WHERE id = $1`, id)
	if db.Missing(err) {
		return Absent, nil
	}
	return p, fault.Wrap(err, "look for guild", id)
}

// Announce has every node forget, with the caller's commit, all that it remembers
// of tokens, keys and guilds.
func Announce(ctx context.Context, tx *db.Tx) error {
	_, err := db.Exec(ctx, tx, `
		WITH changed AS (UPDATE auth_epoch SET epoch = epoch + 1 RETURNING epoch)
		SELECT pg_notify($1, epoch || ' *') FROM changed`, channel)
	return fault.Wrap(err, "announce a change to every node")
}

// Await waits until every node knows of what has been announced, and no longer
// than two seconds: a node that has not heard of it by then asks the database.
func Await(ctx context.Context, d *db.DB, done string) error {
	epoch, err := db.Get[int64](ctx, d.Reader(), `SELECT epoch FROM auth_epoch`)
	if err != nil {
		return fault.Wrap(err, "read the epoch of tokens")
	}
	return await(ctx, d, epoch, done)
}

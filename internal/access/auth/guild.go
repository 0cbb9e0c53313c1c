package auth

import (
	"context"
	"slices"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// Serves reports whether the token or bot key may act in a guild. A token may act only in its own
// guild.
func (p *Principal) Serves(guild string) bool {
	if !p.IsKey() {
		return p.GuildID == guild
	}
	return p.guilds == nil || slices.Contains(p.guilds, guild)
}

// Guilds returns the guilds that a bot key is limited to; none means every guild.
func (p *Principal) Guilds() []string { return slices.Clone(p.guilds) }

// In returns the bot key as it acts in one guild, for one request.
func (p *Principal) In(guild string) *Principal {
	q := *p
	q.GuildID = guild
	return &q
}

// there is the cache entry for a guild that exists.
type there struct {
	generation uint64
	at         time.Time
}

// Presence is the state of a guild.
type Presence int

// Requests find a guild only while it is Present. Until its removal begins, a guild that is Leaving
// can be restored.
const (
	Absent  Presence = iota // the guild does not exist
	Present                 // the guild exists
	Leaving                 // the guild's removal is scheduled and can be undone
	Going                   // the guild's removal has begun, and the guild's data is being deleted
)

// Gone returns a NotFound fault for a guild that is not Present, with the reason. The fault is not
// stored under an idempotency key: if the guild is created or restored, the same request must run.
func (p Presence) Gone(guild string) *fault.Error {
	why := map[Presence]string{
		Absent:  "There is no guild %s. The operator's bot creates it with a guild record: POST /records with {\"records\":[{\"record\":\"guild\"}]}; so does `guildhall import` of a guild file.",
		Leaving: "Guild %s is being removed. Until its day comes it can be taken back: with a guild record, or by `guildhall guild restore`.",
		Going:   "Guild %s is being removed, and what it had is being deleted.",
	}
	gone := fault.New(fault.NotFound, "not_found", why[p], guild)
	gone.Unkept = true
	return gone
}

// Guild returns the state of a guild. Only Present is cached, for a minute, and the entry is
// dropped when an announcement concerns all tokens; any other state is read anew each time. It
// returns service_unavailable if the database cannot be read.
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

// PresenceOf reads the state of a guild from the database.
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

// Announce makes every node drop all its cached tokens, keys and guilds once the caller's
// transaction commits.
func Announce(ctx context.Context, tx *db.Tx) error {
	_, err := db.Exec(ctx, tx, `
		WITH changed AS (UPDATE auth_epoch SET epoch = epoch + 1 RETURNING epoch)
		SELECT pg_notify($1, epoch || ' *') FROM changed`, channel)
	return fault.Wrap(err, "announce a change to every node")
}

// Await waits until every node has received all announcements, at most two seconds: a node that has
// not received them by then reads the database.
func Await(ctx context.Context, d *db.DB, done string) error {
	epoch, err := db.Get[int64](ctx, d.Reader(), `SELECT epoch FROM auth_epoch`)
	if err != nil {
		return fault.Wrap(err, "read the epoch of tokens")
	}
	return await(ctx, d, epoch, done)
}

package auth

import (
	"context"
	"slices"
	"time"

	"guildhall/internal/base/fault"
)

// Serves reports whether a bot key may act in a guild. A token's guild is its own.
func (p *Principal) Serves(guild string) bool {
	if !p.IsKey() {
		return p.GuildID == guild
	}
	return p.guilds == nil || slices.Contains(p.guilds, guild)
}

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

// Guild reports whether a guild is there. That it is is remembered for a minute,
// and forgotten at once with an announcement that concerns everything; that it is
// not is asked anew each time. It is service_unavailable when it cannot be asked.
func (t *Tokens) Guild(ctx context.Context, id string) (bool, error) {
	now, generation := t.clock(), t.gens.all.Load()
	if t.trusted(now) {
		if g, ok := t.guilds.GetIfPresent(id); ok && g.generation == generation {
			if age, believable := passed(g.at, now); believable && age <= remembered {
				return true, nil
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := guildExists(ctx, t.db.Reader(), id)
	if err != nil {
		return false, fault.New(fault.Unavailable, "service_unavailable", "The guild cannot be looked up right now.").Because(err).After(5 * time.Second)
	}
	if found {
		t.guilds.Set(id, there{generation, now})
	}
	return found, nil
}

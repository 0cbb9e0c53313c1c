package chat

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/disgoorg/disgo/rest"
)

const (
	// ownerLifetime is how long the platform's answer about a channel's guild is cached.
	ownerLifetime = 10 * time.Minute
	// maxOwners bounds the cached channels. At the rate of all calls together no more can be asked
	// about within ownerLifetime.
	maxOwners = perSecond * int(ownerLifetime/time.Second)
)

// owners caches which guild a channel belongs to. Refusals are not cached, so a permission that has
// just been granted counts at once.
type owners struct {
	now func() time.Time

	mu    sync.Mutex       // guards the field below
	known map[string]owner // by channel
	swept time.Time
}

type owner struct {
	guild string
	until time.Time
}

func newOwners() *owners { return &owners{now: time.Now, known: map[string]owner{}} }

// CheckChannel asks the platform for the channel's guild, unless it is cached.
func (d *Discord) CheckChannel(ctx context.Context, c Channel) error {
	guild, known := d.owners.of(c.ID)
	if !known {
		var channel struct {
			GuildID string `json:"guild_id"`
		}
		if err := d.do(ctx, c, rest.GetChannel.Compile(nil, c.ID), nil, &channel); err != nil {
			if f, ok := errors.AsType[*Failure](err); ok {
				f.NotAllowed = f.Lasting()
				f.Uncertain = false // no call after this check was made
			}
			return err
		}
		guild = channel.GuildID // empty: a channel without a guild, such as a direct message
		d.owners.learn(c.ID, guild)
	}
	if guild != c.GuildID {
		f := &Failure{Message: "the channel belongs to another guild", NotAllowed: true, unsent: unsentChannel}
		d.report(ctx, c, rest.GetChannel.Compile(nil, c.ID), f)
		return f
	}
	return nil
}

// of returns the cached guild of a channel, and whether there is one.
func (o *owners) of(channel string) (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	is, ok := o.known[channel]
	return is.guild, ok && o.now().Before(is.until)
}

func (o *owners) learn(channel, guild string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	if now.Sub(o.swept) > ownerLifetime || len(o.known) >= maxOwners {
		o.swept = now
		for c, is := range o.known {
			if !now.Before(is.until) {
				delete(o.known, c)
			}
		}
	}
	if len(o.known) >= maxOwners {
		clear(o.known) // costs one call for each channel that is used again
	}
	o.known[channel] = owner{guild, now.Add(ownerLifetime)}
}

// in makes a call that names a channel, if the channel belongs to the guild.
func (d *Discord) in(ctx context.Context, c Channel, at *rest.CompiledEndpoint, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, d.budget)
	defer cancel()
	if err := d.CheckChannel(ctx, c); err != nil {
		return err
	}
	err := d.do(ctx, c, at, body, out)
	if f, ok := errors.AsType[*Failure](err); ok && f.Lasting() {
		d.owners.forget(c.ID) // the channel may have been moved or deleted
	}
	return err
}

func (o *owners) forget(channel string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.known, channel)
}

package chat

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/disgoorg/disgo/rest"
)

const (
	// ownerLifetime is how long the platform's word on whose a channel is counts.
	ownerLifetime = 10 * time.Minute
	// maxOwners bounds the channels that are remembered. At the rate that all
	// calls keep together no more can be asked for within ownerLifetime.
	maxOwners = perSecond * int(ownerLifetime/time.Second)
)

// owners remembers which guild a channel belongs to. Refusals are not
// remembered: a permission that was granted counts at once.
type owners struct {
	now func() time.Time

	mu    sync.Mutex       // guards what follows
	known map[string]owner // by channel
	swept time.Time
}

type owner struct {
	guild string
	until time.Time
}

func newOwners() *owners { return &owners{now: time.Now, known: map[string]owner{}} }

// CheckChannel asks whose the channel is, unless that is known.
func (d *Discord) CheckChannel(ctx context.Context, c Channel) error {
	guild, known := d.owners.of(c.ID)
	if !known {
		var channel struct {
			GuildID string `json:"guild_id"`
		}
		if err := d.do(ctx, c, rest.GetChannel.Compile(nil, c.ID), nil, &channel); err != nil {
			if f, ok := errors.AsType[*Failure](err); ok {
				f.NotAllowed = f.Lasting()
				f.Uncertain = false // whatever was to be done after it was not done
			}
			return err
		}
		guild = channel.GuildID // empty: nobody's, a conversation with one person
		d.owners.learn(c.ID, guild)
	}
	if guild != c.GuildID {
		f := &Failure{Message: "the channel belongs to another guild", NotAllowed: true, unsent: unsentChannel}
		d.report(ctx, c, rest.GetChannel.Compile(nil, c.ID), f)
		return f
	}
	return nil
}

// of returns the guild of a channel, and whether it is known.
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
		clear(o.known) // forgetting costs a call each
	}
	o.known[channel] = owner{guild, now.Add(ownerLifetime)}
}

// in makes a call that names a channel, if the channel is the guild's.
func (d *Discord) in(ctx context.Context, c Channel, at *rest.CompiledEndpoint, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, d.budget)
	defer cancel()
	if err := d.CheckChannel(ctx, c); err != nil {
		return err
	}
	err := d.do(ctx, c, at, body, out)
	if f, ok := errors.AsType[*Failure](err); ok && f.Lasting() {
		d.owners.forget(c.ID) // something has changed there
	}
	return err
}

func (o *owners) forget(channel string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.known, channel)
}

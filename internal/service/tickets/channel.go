package tickets

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/jobs"
	"guildhall/internal/outbound/chat"
)

// ChannelJob is the job that makes a ticket's channel follow the ticket.
type ChannelJob struct {
	GuildID  string `json:"guild_id"`
	TicketID string `json:"ticket_id"`
}

// Kind is the job's name in the queue.
func (ChannelJob) Kind() string { return "sync_ticket_channel" }

const (
	// channelTimeout is how long one attempt on a channel may take, and
	// channelLease how long nobody else makes one meanwhile.
	channelTimeout = 12 * time.Second
	channelLease   = 20 * time.Second
	// giveUpAfter is how long a channel that the platform refuses is tried again.
	giveUpAfter = 24 * time.Hour
)

// channelWork is what the bot has to do for a ticket's channel now, and the
// lease under which it does that.
type channelWork struct {
	GuildID   string           `db:"guild_id"`
	TicketID  string           `db:"id"`
	ChannelID string           `db:"channel_id"`
	Status    string           `db:"status"`
	OpenerID  string           `db:"opener_id"`
	DueAt     time.Time        `db:"channel_due_at"`
	LeaseGen  int64            `db:"channel_lease_gen"`
	Lock      *json.RawMessage `db:"channel_lock"`
	Old       bool             `db:"old"` // due for so long that a refusal ends it
	Action    string           `db:"-"`
}

// SyncChannel brings a ticket's channel in line with the ticket: archived or
// deleted, as the guild wants it, when it is closed, restored when it is open.
// It is called by a job, and may be called at any time and more than once; one
// call at a time works on a ticket, until nothing is left to do for it. A
// refusal is returned, and the channel stays due for a day; another guild's
// channel is left alone.
func SyncChannel(ctx context.Context, d db.Doer, p chat.Platform, guild, ticket string) error {
	for {
		work, err := takeChannel(ctx, d, guild, ticket)
		if err != nil || work == nil {
			return err
		}
		acting, cancel := context.WithTimeout(ctx, channelTimeout)
		failed := work.act(acting, d, p)
		cancel()
		again, err := work.settle(context.WithoutCancel(ctx), d, failed)
		if errors.Is(failed, chat.ErrAsked) && err == nil {
			again, err = work.answered(ctx, d)
			failed = nil // the answer comes back here
		}
		f, ok := errors.AsType[*chat.Failure](failed)
		if ok && f.Code == chat.CodeUnknownChannel || errors.Is(failed, chat.ErrFinal) {
			failed = nil // there is nothing to bring in line
		}
		if failed != nil || err != nil {
			return errors.Join(failed, err)
		}
		if !again {
			return nil
		}
		// The ticket was closed or reopened meanwhile, or the bot has answered: once more.
	}
}

// takeChannel returns the work on a ticket's channel, or nil when there is none
// or somebody else is at it. The other will see what has changed meanwhile, and a sweep
// finds what a vanished one has left.
func takeChannel(ctx context.Context, d db.Doer, guild, ticket string) (*channelWork, error) {
	var work channelWork
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		work, err = db.Get[channelWork](ctx, tx, `
			WITH long_ago AS MATERIALIZED (SELECT now() - make_interval(secs => $4) AS at)
			UPDATE tickets t
			SET channel_lease_until = now() + make_interval(secs => $3), channel_lease_gen = channel_lease_gen + 1
			FROM long_ago
			WHERE guild_id = $1
			  AND id = $2
			  AND channel_due_at IS NOT NULL
			  AND channel_id IS NOT NULL
			  AND (channel_lease_until IS NULL OR channel_lease_until <= now())
			RETURNING guild_id, id, channel_id, status, opener_id, channel_due_at, channel_lease_gen, channel_lock, channel_due_at < long_ago.at AS old`,
			guild, ticket, channelLease.Seconds(), giveUpAfter.Seconds())
		if err != nil {
			return err
		}
		p, err := policyOf(ctx, tx, guild)
		work.Action = p.Action
		return err
	})
	switch {
	case db.Missing(err):
		return nil, nil
	case err != nil:
		return nil, fault.Wrap(err, "take the channel of ticket", ticket, "of guild", guild)
	}
	return &work, nil
}

// act has the platform do the work. It writes down what archiving will change before it
// changes.
func (w *channelWork) act(ctx context.Context, d db.Doer, p chat.Platform) error {
	channel := chat.Channel{GuildID: w.GuildID, ID: w.ChannelID, For: chat.Purpose{SubjectID: w.TicketID, Change: w.DueAt.UTC().Format(time.RFC3339Nano)}}
	var lock chat.Lock
	if w.Lock != nil {
		if err := json.Unmarshal(*w.Lock, &lock); err != nil {
			return fault.Wrap(err, "read the lock of ticket", w.TicketID, "of guild", w.GuildID)
		}
	}
	switch {
	case w.Status == open:
		return p.RestoreChannel(ctx, channel, lock)
	case w.Action == "delete":
		return p.DeleteChannel(ctx, channel)
	}
	if w.Lock == nil {
		var err error
		if lock, err = p.LockOf(ctx, channel, w.OpenerID); err != nil {
			return err
		}
		if err := w.note(ctx, d, lock); err != nil {
			return err
		}
	}
	return p.ArchiveChannel(ctx, channel, lock)
}

// errChannelLease says that the lease on a ticket's channel is over.
var errChannelLease = errors.New("the lease on the channel is over")

// note writes down what archiving changes.
func (w *channelWork) note(ctx context.Context, d db.Doer, lock chat.Lock) error {
	text, err := json.Marshal(lock)
	if err != nil {
		return err
	}
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := db.Exec(ctx, tx, `
			UPDATE tickets
			SET channel_lock = $4
			WHERE guild_id = $1
			  AND id = $2
			  AND channel_lease_gen = $3
			  AND channel_id = $5`, w.GuildID, w.TicketID, w.LeaseGen, string(text), w.ChannelID)
		if err == nil && n == 0 {
			return errChannelLease
		}
		return fault.Wrap(err, "note the lock of ticket", w.TicketID, "of guild", w.GuildID)
	})
}

// settle gives the lease back, and reports whether there is work again or still.
// A channel that is gone leaves the ticket without one, of which nothing is due. Where the bot
// has given it another meanwhile, it keeps that, which is due as the old one was. When the lease was lost, the
// order in which the platform was asked by us and by whoever had it next is not known: then
// the ticket's present state is due once more.
func (w *channelWork) settle(ctx context.Context, d db.Doer, failed error) (again bool, err error) {
	done, gone := failed == nil, failed == nil && w.Status == closed && w.Action == "delete"
	if f, ok := errors.AsType[*chat.Failure](failed); ok && f.Lasting() {
		gone = f.Code == chat.CodeUnknownChannel
		done = gone || w.Old || f.Foreign()
	}
	done = done || errors.Is(failed, chat.ErrFinal)
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		again, err = db.Get[bool](ctx, tx, `
			WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
			UPDATE tickets
			SET channel_lease_until = NULL,
			    channel_due_at = CASE WHEN NOT $4 OR channel_due_at <> $5 AND NOT $7 OR channel_id <> $8 THEN channel_due_at END,
			    channel_lock = CASE WHEN $4 AND $6 THEN NULL ELSE channel_lock END,
			    channel_id = CASE WHEN NOT $7 OR channel_id <> $8 THEN channel_id END,
			    updated_at = CASE WHEN $7 AND channel_id = $8 THEN `+db.Next("instant.at", "updated_at")+` ELSE updated_at END
			FROM instant
			WHERE guild_id = $1
			  AND id = $2
			  AND channel_lease_gen = $3
			RETURNING channel_due_at IS NOT NULL AND channel_id IS NOT NULL`,
			w.GuildID, w.TicketID, w.LeaseGen, done, w.DueAt, w.Status == open || gone, gone, w.ChannelID)
		if !db.Missing(err) {
			return err
		}
		again = true
		_, err = db.Exec(ctx, tx, `
			WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
			UPDATE tickets
			SET channel_due_at = instant.at
			FROM instant
			WHERE guild_id = $1
			  AND id = $2
			  AND channel_id IS NOT NULL`, w.GuildID, w.TicketID)
		return err
	})
	return again, fault.Wrap(err, "note what became of the channel of ticket", w.TicketID, "of guild", w.GuildID)
}

// answered reports whether the bot has answered all that it was asked to do with the channel.
// It is asked when the lease is back: the job of an answer that was earlier has found it
// taken, and has left the channel to us.
func (w *channelWork) answered(ctx context.Context, d db.Doer) (all bool, err error) {
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		asked, err := chat.OnChannel(ctx, tx, w.GuildID, w.TicketID)
		all = !asked
		return err
	})
	return all, err
}

// SweepChannels enqueues the work that lost jobs have left undone.
func SweepChannels(ctx context.Context, d db.Doer) error {
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		left, err := db.Select[db.Found](ctx, tx, `
			SELECT guild_id, id
			FROM tickets
			WHERE channel_due_at < now() - interval '1 minute'
			  AND channel_id IS NOT NULL
			  AND NOT EXISTS (SELECT FROM guilds g WHERE g.id = guild_id AND g.removed_at IS NOT NULL)
			ORDER BY channel_due_at
			LIMIT 100`)
		if err != nil {
			return fault.Wrap(err, "look for channels to put away")
		}
		work := make([]jobs.Args, len(left))
		for i, t := range left {
			work[i] = ChannelJob{GuildID: t.GuildID, TicketID: t.ID}
		}
		return jobs.EnqueueOnce(ctx, tx, work...)
	})
}

package tickets

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/lanes"
	"guildhall/internal/outbound/chat"
)

// Channels is the queue of tickets whose channels have to be updated. After a day of refusals a
// ticket is given up (see finish), but not because of an outage.
var Channels = lanes.Queue{
	Table: "tickets", At: "channel_try_at", Failures: "channel_tries", Condition: "channel_try_at IS NOT NULL", Since: "channel_due_at",
}

// The slots of the lane, its polling interval, and its timeout for one ticket.
const (
	channelSlots    = 16
	channelInterval = 200 * time.Millisecond
	syncTimeout     = 30 * time.Second
)

// Following returns the lane that updates the channels of tickets.
func Following(d *db.DB, p chat.Platform) lanes.Lane {
	return lanes.Lane{
		Kind: "sync_ticket_channel", Queue: Channels, Slots: channelSlots, Interval: channelInterval, Timeout: syncTimeout,
		Do: func(ctx context.Context, guild, ticket string) error {
			return SyncChannel(chat.Background(ctx), d, p, guild, ticket)
		},
	}
}

const (
	// channelTimeout is the timeout of one attempt, channelLease how long no other worker may try
	// meanwhile.
	channelTimeout = 12 * time.Second
	channelLease   = 20 * time.Second
	// giveUpAfter is for how long a refused change of a channel is retried.
	giveUpAfter = 24 * time.Hour
)

// channelWork is what has to be done for a ticket's channel now, with the lease for it.
type channelWork struct {
	GuildID   string           `db:"guild_id"`
	TicketID  string           `db:"id"`
	ChannelID string           `db:"channel_id"`
	Status    string           `db:"status"`
	OpenerID  string           `db:"opener_id"`
	DueAt     time.Time        `db:"channel_due_at"`
	TryAt     time.Time        `db:"channel_try_at"`
	LeaseGen  int64            `db:"channel_lease_gen"`
	Lock      *json.RawMessage `db:"channel_lock"`
	Old       bool             `db:"old"` // due for so long that a refusal is final
	Action    string           `db:"-"`
}

// The actions for a closed ticket whose channel has become that of another open ticket: leave the
// channel, or undo what was archived under the other ticket.
const (
	leave   = "leave"
	restore = "restore"
)

// SyncChannel updates a ticket's channel to match the ticket. The channel of a closed ticket is
// archived or deleted, as the guild's settings say, unless another open ticket has the channel by
// now; the channel of an open ticket is restored. A channel that was being archived while another
// ticket was opened in it is restored, too, and one that was being deleted is lost to both tickets.
// SyncChannel may be called at any time and repeatedly. One call at a time works on a ticket, until
// nothing is left to do or the operator's bot has been asked. A refusal is returned as an error, and
// the channel stays due for a day. A channel of another guild is not changed.
func SyncChannel(ctx context.Context, d db.Doer, p chat.Platform, guild, ticket string) error {
	for {
		work, err := takeChannel(ctx, d, guild, ticket)
		if err != nil || work == nil {
			return err
		}
		acting, cancel := context.WithTimeout(ctx, channelTimeout)
		failed := work.act(acting, d, p)
		cancel()
		again, err := work.finish(context.WithoutCancel(ctx), d, failed)
		if errors.Is(failed, chat.ErrAsked) {
			failed = nil // Answered makes the ticket due again
		}
		f, ok := errors.AsType[*chat.Failure](failed)
		if ok && f.Code == chat.CodeUnknownChannel || errors.Is(failed, chat.ErrFinal) {
			failed = nil // there is nothing to update
		}
		if failed != nil || err != nil {
			return errors.Join(failed, err)
		}
		if !again {
			return nil
		}
		// The ticket was closed or reopened meanwhile, or the bot has answered: start again.
	}
}

// takeChannel leases the work on a ticket's channel. It returns nil if there is none, or if another
// call has the lease. That call will notice later changes; if its node has died, the ticket is due
// when the lease ends.
func takeChannel(ctx context.Context, d db.Doer, guild, ticket string) (*channelWork, error) {
	var work channelWork
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		work, err = db.Get[channelWork](ctx, tx, `
			WITH instant AS MATERIALIZED (
				SELECT now() - make_interval(secs => $4) AS day_ago, now() + make_interval(secs => $3) AS lease
			)
			UPDATE tickets t
			SET channel_lease_until = instant.lease, channel_try_at = instant.lease, channel_lease_gen = channel_lease_gen + 1
			FROM instant
			WHERE guild_id = $1
			  AND id = $2
			  AND channel_due_at IS NOT NULL
			  AND channel_id IS NOT NULL
			  AND (channel_lease_until IS NULL OR channel_lease_until <= now())
			RETURNING guild_id, id, channel_id, status, opener_id, channel_due_at, channel_try_at, channel_lease_gen, channel_lock, channel_due_at < instant.day_ago AS old`,
			guild, ticket, channelLease.Seconds(), giveUpAfter.Seconds())
		if err != nil {
			return err
		}
		p, err := policyOf(ctx, tx, guild)
		if work.Action = p.Action; err != nil || work.Status == open {
			return err
		}
		err = channelFree(ctx, tx, row{GuildID: guild, ID: ticket, ChannelID: &work.ChannelID})
		if fault.Is(err, "channel_in_use") {
			work.Action, err = leave, nil
			if work.Lock != nil { // archiving has begun
				work.Action = restore
			}
		}
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

// act makes the change on the platform. Before archiving it stores the permissions that archiving
// will change.
func (w *channelWork) act(ctx context.Context, d db.Doer, p chat.Platform) error {
	channel := chat.Channel{GuildID: w.GuildID, ID: w.ChannelID, For: chat.Purpose{SubjectID: w.TicketID, Change: w.DueAt.UTC().Format(time.RFC3339Nano)}}
	var lock chat.Lock
	if w.Lock != nil {
		if err := json.Unmarshal(*w.Lock, &lock); err != nil {
			return fault.Wrap(err, "read the lock of ticket", w.TicketID, "of guild", w.GuildID)
		}
	}
	switch {
	case w.Status == open, w.Action == restore:
		return p.RestoreChannel(ctx, channel, lock)
	case w.Action == leave:
		return nil
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

// errChannelLease says that the lease on a ticket's channel was lost.
var errChannelLease = errors.New("the lease on the channel is over")

// note stores the permissions that archiving changes.
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

// finish ends the lease and reports whether there is new work: the ticket was closed or reopened
// meanwhile, or the operator's bot has answered. If the channel is gone, the ticket loses it and is
// not due any more, and so does another ticket that was opened in the channel meanwhile. If such a
// ticket was opened while the channel was archived, the channel is made due again, to be restored.
// If the bot has meanwhile assigned another channel, the ticket keeps the new channel and the old
// due time. Work that the operator's bot was asked for waits for the answer. If the lease was lost,
// it is unknown in which order this call and the next holder of the lease have called the platform,
// so the ticket's present state is made due again.
func (w *channelWork) finish(ctx context.Context, d db.Doer, failed error) (again bool, err error) {
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
			    channel_try_at = CASE WHEN $4 AND channel_due_at = $5 AND channel_id = $8 OR $7 AND channel_id = $8 OR $10 AND channel_try_at = $9
			                          THEN NULL ELSE channel_try_at END,
			    channel_tries = CASE WHEN $4 THEN 0 ELSE channel_tries END,
			    channel_lock = CASE WHEN $4 AND $6 THEN NULL ELSE channel_lock END,
			    channel_id = CASE WHEN NOT $7 OR channel_id <> $8 THEN channel_id END,
			    updated_at = CASE WHEN $7 AND channel_id = $8 THEN `+db.Next("instant.at", "updated_at")+` ELSE updated_at END
			FROM instant
			WHERE guild_id = $1
			  AND id = $2
			  AND channel_lease_gen = $3
			RETURNING channel_try_at IS NOT NULL`,
			w.GuildID, w.TicketID, w.LeaseGen, done, w.DueAt, w.Status == open || w.Action == restore || gone, gone, w.ChannelID, w.TryAt,
			errors.Is(failed, chat.ErrAsked))
		switch {
		case db.Missing(err):
			again = true
			return w.makeDue(ctx, tx)
		case err != nil:
			return err
		case gone:
			return loseChannel(ctx, tx, w.GuildID, w.TicketID, w.ChannelID)
		case failed == nil && w.Status != open && w.Action != leave:
			changed, err := w.overtaken(ctx, tx)
			if changed {
				again, err = true, w.makeDue(ctx, tx)
			}
			return err
		}
		return nil
	})
	return again, fault.Wrap(err, "note what became of the channel of ticket", w.TicketID, "of guild", w.GuildID)
}

// overtaken reports whether another ticket was opened in the channel while it was archived, or
// closed while it was restored for that ticket. A ticket that is opened later finds the channel
// as the call of the platform has left it.
func (w *channelWork) overtaken(ctx context.Context, tx *db.Tx) (bool, error) {
	err := channelFree(ctx, tx, row{GuildID: w.GuildID, ID: w.TicketID, ChannelID: &w.ChannelID})
	taken := fault.Is(err, "channel_in_use")
	if err != nil && !taken {
		return false, err
	}
	return taken != (w.Action == restore), nil
}

// makeDue makes the ticket's channel due now.
func (w *channelWork) makeDue(ctx context.Context, tx *db.Tx) error {
	_, err := db.Exec(ctx, tx, `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE tickets
		SET channel_due_at = instant.at, channel_try_at = instant.at
		FROM instant
		WHERE guild_id = $1
		  AND id = $2
		  AND channel_id IS NOT NULL`, w.GuildID, w.TicketID)
	return err
}

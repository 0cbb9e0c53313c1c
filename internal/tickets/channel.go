package tickets

import (
	"context"
	"errors"
	"fmt"
	"time"

	"guildhall/internal/chat"
	"guildhall/internal/db"
	"guildhall/internal/jobs"
)

// due is what the bot has still to do for a ticket's channel.
type due struct {
	ChannelID *string    `db:"channel_id"`
	Status    string     `db:"status"`
	DueAt     *time.Time `db:"channel_due_at"`
	Action    string     `db:"-"`
}

// SyncChannel brings a ticket's channel in line with the ticket: archived or
// deleted, as the guild wants it, when it is closed, restored when it is open.
// It is called by a job, and may be called at any time and more than once. A
// lasting refusal of the platform is given up and returned.
func SyncChannel(ctx context.Context, d db.Doer, p chat.Platform, guild, ticket string) error {
	for {
		var work due
		err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			work, err = dueFor(ctx, tx, guild, ticket)
			return err
		})
		if err != nil || work.DueAt == nil || work.ChannelID == nil {
			return err
		}
		gone := false
		switch {
		case work.Status == open:
			err = p.RestoreChannel(ctx, *work.ChannelID)
		case work.Action == "delete":
			err = p.DeleteChannel(ctx, *work.ChannelID)
			gone = err == nil
		default:
			err = p.ArchiveChannel(ctx, *work.ChannelID)
		}
		if f := (*chat.Failure)(nil); errors.As(err, &f) {
			if !f.Lasting() {
				return err
			}
			gone = f.Code == chat.CodeUnknownChannel
		}
		settled := false
		if e := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			settled, err = settle(ctx, tx, guild, ticket, work, gone)
			return err
		}); e != nil {
			return e
		}
		if settled {
			return err
		}
		// The ticket was closed or reopened meanwhile: once more.
	}
}

// SweepChannels enqueues the work that lost jobs have left undone.
func SweepChannels(ctx context.Context, d db.Doer) error {
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		var left []struct {
			GuildID string `db:"guild_id"`
			ID      string `db:"id"`
		}
		if err := tx.SelectContext(ctx, &left, `
			SELECT guild_id, id
			FROM tickets
			WHERE channel_due_at < now() - interval '1 minute'
			ORDER BY channel_due_at
			LIMIT 100`); err != nil {
			return fmt.Errorf("look for channels to put away: %w", err)
		}
		for _, t := range left {
			if err := jobs.EnqueueOnce(ctx, tx, jobs.SyncTicketChannel{GuildID: t.GuildID, TicketID: t.ID}); err != nil {
				return err
			}
		}
		return nil
	})
}

// dueFor returns what is to be done for a ticket's channel.
func dueFor(ctx context.Context, tx *db.Tx, guild, ticket string) (due, error) {
	var work due
	err := tx.GetContext(ctx, &work, `
		SELECT channel_id, status, channel_due_at
		FROM tickets
		WHERE guild_id = $1
		  AND id = $2`, guild, ticket)
	if db.Missing(err) {
		return due{}, nil
	}
	if err != nil {
		return due{}, fmt.Errorf("read the channel of ticket %s of guild %s: %w", ticket, guild, err)
	}
	p, err := policyOf(ctx, tx, guild)
	work.Action = p.Action
	return work, err
}

// settle notes that the work is done, unless there is new work. A channel that
// is gone leaves the ticket without one.
func settle(ctx context.Context, tx *db.Tx, guild, ticket string, done due, gone bool) (bool, error) {
	res, err := tx.ExecContext(ctx, `
		UPDATE tickets
		SET channel_due_at = NULL,
		    channel_id = CASE WHEN $4 THEN NULL ELSE channel_id END,
		    updated_at = CASE WHEN $4 THEN now() ELSE updated_at END
		WHERE guild_id = $1
		  AND id = $2
		  AND channel_due_at = $3`, guild, ticket, *done.DueAt, gone)
	if err != nil {
		return false, fmt.Errorf("note what became of the channel of ticket %s of guild %s: %w", ticket, guild, err)
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

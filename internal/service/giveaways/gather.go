package giveaways

import (
	"context"
	"errors"
	"strings"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/service/transfer"
)

// maxWait is how long a giveaway waits for the platform to return the reactions. Then it is drawn
// from the entries that are known.
const maxWait = 24 * time.Hour

// lease is how long one worker alone may read a giveaway's reactions; each page renews it. It is
// longer than a call of the platform.
const lease = time.Minute

// errPostUnknown says that it is not known yet whether the giveaway's message was posted.
var errPostUnknown = errors.New("it is not known yet whether the giveaway's message was posted")

// Gather reads the reactions to the message of a giveaway that is being drawn, and freezes its
// entries. Every member whose reaction exists when it is read gets an entry, in whichever way the
// member has reacted, unless there is an entry already; bots get none. First the message is edited
// to say that the giveaway has ended. Each page of a hundred reactors is stored with the position
// where reading continues, so after a crash another worker continues there. No connection is held
// during a call of the platform. If a page cannot be read, Gather returns an error and must be
// called again; after a day it freezes the entries without the missing ones.
func Gather(ctx context.Context, d db.Doer, p chat.Platform, guild, id string) error {
	g, err := claim(ctx, d, guild, id)
	if err == nil && g.Pot == gathering && g.MessageID != nil {
		_ = Edit(ctx, d, p, guild, id) // a failed edit is retried by its own lane, and the draw continues
	}
	for err == nil && g.Pot == gathering {
		if g.MessageID == nil {
			return endUnposted(ctx, d, g)
		}
		way, after := g.readUntil()
		var page []chat.Reactor
		page, err = p.Reactors(ctx, g.channel(), *g.MessageID, emoji, way, after)
		if err != nil {
			return missed(ctx, d, g, err)
		}
		g, err = enter(ctx, d, g, page)
	}
	return err
}

// claim leases the reading of a giveaway's reactions. The returned row is not in state gathering if
// there is nothing to read or another worker has the lease.
func claim(ctx context.Context, d db.Doer, guild, id string) (row, error) {
	return leased(ctx, d, "the reactions of", guild, id, `
		UPDATE giveaways
		SET redraw_at = now() + make_interval(secs => $3)
		WHERE guild_id = $1
		  AND id = $2
		  AND pot = 'gathering'
		  AND redraw_at <= now()
		RETURNING `+columns)
}

// leased runs a statement that leases a part of a giveaway's work. The zero row means that there
// was nothing to lease.
func leased(ctx context.Context, d db.Doer, what, guild, id, statement string) (g row, err error) {
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		g, err = db.Get[row](ctx, tx, statement, guild, id, lease.Seconds())
		return err
	})
	if db.Missing(err) {
		return row{}, nil
	}
	return g, fault.Wrap(err, "claim", what, "giveaway", id, "in guild", guild)
}

// superAfter is the prefix of the position once the normal reactions have been read and the super
// reactions are being read.
const superAfter = "super:"

// readUntil returns which reactions are being read, and the last user who was read.
func (g row) readUntil() (way chat.Reaction, after string) {
	if after, super := strings.CutPrefix(g.ReactionAfter, superAfter); super {
		return chat.Super, after
	}
	return chat.Normal, g.ReactionAfter
}

// reads reports whether current still has the message whose reactions are being read: a record may
// have replaced it.
func (g row) reads(current row) bool {
	return current.Pot == gathering && current.ChannelID == g.ChannelID && transfer.Same(current.MessageID, g.MessageID)
}

// enter stores a page of reactors as entries, with the position where reading continues. The last
// page freezes the entries. If another worker has read on meanwhile, nothing is stored, and the
// returned row is not in state gathering.
func enter(ctx context.Context, d db.Doer, g row, page []chat.Reactor) (row, error) {
	way, begun := g.readUntil()
	after, members := begun, make([]string, 0, len(page))
	for _, r := range page {
		if chat.Later(r.UserID, after) {
			after = r.UserID
		}
		if !r.Bot {
			members = append(members, r.UserID)
		}
	}
	last := len(page) < chat.ReactorsPage || after == begun
	state, at := gathering, after
	switch {
	case way == chat.Super && last:
		state, at = frozen, superAfter+after
	case way == chat.Super:
		at = superAfter + after
	case last:
		at = superAfter
	}
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		current, err := lock(ctx, tx, g.GuildID, g.ID)
		if err != nil || !g.reads(current) || current.ReactionAfter != g.ReactionAfter {
			g = row{}
			return err
		}
		if members, err = without(ctx, tx, g, members); err != nil {
			return err
		}
		g, err = advance(ctx, tx, g, state, at, members)
		return err
	})
	if fault.Is(err, "not_found") {
		return row{}, nil
	}
	return g, err
}

// advance adds entries of weight 1 for members without an entry, updates the counters (counting
// those who have reacted in both ways once), and stores the position. It is the only way in which
// entries are added while reactions are read; the transaction has locked the row.
func advance(ctx context.Context, tx *db.Tx, g row, state, after string, members []string) (row, error) {
	stored, err := db.Get[row](ctx, tx, `
		WITH added AS (
			INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id, entries, entered_at)
			SELECT g.guild_id, g.id, u, 1, clock_timestamp()
			FROM giveaways g, unnest($5::text[]) u
			WHERE g.guild_id = $1
			  AND g.id = $2
			ON CONFLICT (guild_id, giveaway_id, user_id) DO NOTHING
			RETURNING entries
		), counted AS (
			SELECT count(*) AS entrants, coalesce(sum(entries), 0) AS entries
			FROM added
		), instant AS MATERIALIZED (
			SELECT clock_timestamp() AS at
		)
		UPDATE giveaways
		SET pot = $3, reaction_after = $4, 
		    reaction_count = reaction_count + CASE WHEN reaction_after LIKE '`+superAfter+`%' THEN counted.entrants ELSE cardinality($5::text[]) END, failures = 0,
		    entrant_count = entrant_count + counted.entrants, entry_count = entry_count + counted.entries,
		    updated_at = CASE WHEN counted.entrants > 0 THEN `+next+` ELSE updated_at END,
		    redraw_at = now() + make_interval(secs => $6)
		FROM counted, instant
		WHERE guild_id = $1
		  AND id = $2
		  AND pot = 'gathering'
		RETURNING `+columns, g.GuildID, g.ID, state, after, db.Array(members), leaseOf(state).Seconds())
	return stored, fault.Wrap(err, "store the reactions to giveaway", g.ID, "of guild", g.GuildID)
}

// leaseOf returns for how long the giveaway is leased to the reader of its reactions. Once all are
// read, the draw is due at once.
func leaseOf(state string) time.Duration {
	if state == gathering {
		return lease
	}
	return 0
}

// endUnposted ends the reading for a giveaway without a message: nobody can have reacted. If the
// message may have been posted, it waits.
func endUnposted(ctx context.Context, d db.Doer, g row) error {
	known, lost := true, false
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		current, err := lock(ctx, tx, g.GuildID, g.ID)
		if err != nil || current.Pot != gathering || current.MessageID != nil {
			return err // just posted: the next attempt reads its reactions
		}
		if current.PostID != nil {
			if known, lost, err = withdrawMessage(ctx, tx, current); err != nil || !known {
				return err
			}
		}
		var problem *string
		if lost {
			problem = &postDeleted
		}
		return freeze(ctx, tx, current, problem)
	})
	if err == nil && !known {
		return missed(ctx, d, g, errPostUnknown)
	}
	return err
}

// withdrawMessage withdraws the message of a giveaway that has none yet. known is false while the
// message may have been posted. lost says that it was posted and deleted before its reactions could
// be read.
func withdrawMessage(ctx context.Context, tx *db.Tx, g row) (known, lost bool, err error) {
	if _, err := chat.Withdraw(ctx, tx, g.GuildID, *g.PostID); err != nil {
		return false, false, err
	}
	state, err := chat.State(ctx, tx, g.GuildID, *g.PostID)
	return state == "" || state == chat.Sent, state == chat.Sent, err
}

// missed decides what happens if reactions could not be read. If the message is gone, or a day is
// over, the giveaway is drawn from the known entries; otherwise missed returns the error.
func missed(ctx context.Context, d db.Doer, g row, failed error) error {
	if errors.Is(failed, chat.ErrAsked) {
		return nil // the bot's answer makes it due again
	}
	if !isGone(failed) && (g.DrawingAt == nil || time.Since(*g.DrawingAt) < maxWait) {
		return failed
	}
	return errors.Join(unlessFinal(failed), d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		current, err := lock(ctx, tx, g.GuildID, g.ID)
		if err != nil || !g.reads(current) {
			return err
		}
		return freeze(ctx, tx, current, problemOf(failed))
	}))
}

// freeze ends the reading of reactions. A problem says why not all of them could be read.
func freeze(ctx context.Context, tx *db.Tx, g row, problem *string) error {
	_, err := db.Exec(ctx, tx, `
		UPDATE giveaways
		SET pot = 'frozen', reactions_missed = $3, failures = 0, redraw_at = now()
		WHERE guild_id = $1
		  AND id = $2`, g.GuildID, g.ID, problem != nil)
	if err != nil || problem == nil {
		return fault.Wrap(err, "freeze the entries of giveaway", g.ID, "in guild", g.GuildID)
	}
	return noteProblem(ctx, tx, g, problem)
}

// maxFailures is how often the bot's own reaction is tried: with growing pauses, for about a day.
const maxFailures = 100

// React adds the bot's own reaction to the message of a giveaway, so that members see which one to
// use. After an error it must be called again. It gives up in the end, and at once if the message
// is gone: members can add the reaction themselves.
func React(ctx context.Context, d db.Doer, p chat.Platform, guild, id string) error {
	g, err := claimReaction(ctx, d, guild, id)
	if err != nil || g.MessageID == nil {
		return err
	}
	failed := p.AddReaction(ctx, g.channel(), *g.MessageID, emoji)
	if failed != nil && !isGone(failed) && g.Failures < maxFailures {
		return failed
	}
	return errors.Join(unlessFinal(failed), d.Do(context.WithoutCancel(ctx), func(ctx context.Context, tx *db.Tx) error {
		_, err := db.Exec(ctx, tx, `
			UPDATE giveaways SET react_at = NULL, failures = 0
			WHERE guild_id = $1
			  AND id = $2`, guild, id)
		return err
	}))
}

// isGone reports whether the platform says that the message or its channel is gone, or that nothing
// will be done.
func isGone(err error) bool {
	f, ok := errors.AsType[*chat.Failure](err)
	return ok && (f.Code == chat.CodeUnknownMessage || f.Code == chat.CodeUnknownChannel) || errors.Is(err, chat.ErrFinal)
}

// unlessFinal returns err, or nil if err only says that nothing will be done.
func unlessFinal(err error) error {
	if errors.Is(err, chat.ErrFinal) {
		return nil
	}
	return err
}

// claimReaction leases adding the bot's reaction. The returned row has no message if there is
// nothing to add.
func claimReaction(ctx context.Context, d db.Doer, guild, id string) (row, error) {
	return leased(ctx, d, "the reaction to", guild, id, `
		UPDATE giveaways
		SET react_at = now() + make_interval(secs => $3)
		WHERE guild_id = $1
		  AND id = $2
		  AND react_at <= now()
		RETURNING `+columns)
}

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

// maxWait is how long a giveaway waits for the chat platform to say who has
// reacted. Then it is drawn with what is known.
const maxWait = 24 * time.Hour

// lease is how long one worker has the reading of a giveaway's reactions to
// itself; it is renewed with each page. It is longer than a call to the platform.
const lease = time.Minute

// errUnsettled says that nobody knows yet whether the giveaway's message was
// posted.
var errUnsettled = errors.New("it is not known yet whether the giveaway's message was posted")

// Gather reads who has reacted to the message of a giveaway that is being drawn
// and freezes its entries: every member who stands there when it asks has one, in
// whichever way the member has reacted, unless an entry is there already; bots have
// none. Before it asks, the message says that the giveaway has ended. Each page of a hundred is stored with the place
// where reading goes on, so whoever comes after a crash begins there, and no
// connection is held while the platform is asked. A page that cannot be read is an
// error, and the caller comes again; after a day the entries are frozen without.
func Gather(ctx context.Context, d db.Doer, p chat.Platform, guild, id string) error {
	g, err := claim(ctx, d, guild, id)
	if err == nil && g.Pot == gathering && g.MessageID != nil {
		_ = Edit(ctx, d, p, guild, id) // its own lane tries a failed one again, and the drawing goes on
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

// claim takes the reading of a giveaway's reactions; the row it returns is not
// gathering when there is nothing to read, or somebody else is at it.
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

// leased runs a statement that takes a lease on part of a giveaway's work. The
// zero row says that there was nothing to take.
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

// superAfter stands before the last user who was read where the normal reactions
// have been read and the super ones are being read.
const superAfter = "super:"

// readUntil is which reactions are being read, and the last user who was.
func (g row) readUntil() (way chat.Reaction, after string) {
	if after, super := strings.CutPrefix(g.ReactionAfter, superAfter); super {
		return chat.Super, after
	}
	return chat.Normal, g.ReactionAfter
}

// reads reports whether the reactions to be read are still those to the message of g: a
// record may have put another in its place.
func (g row) reads(current row) bool {
	return current.Pot == gathering && current.ChannelID == g.ChannelID && transfer.Same(current.MessageID, g.MessageID)
}

// enter stores a page of reactors as entries and where reading goes on. The last
// page freezes the entries. When somebody else has read on meanwhile nothing is
// stored, and the row that is returned is not gathering.
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
		g, err = advance(ctx, tx, g, state, at, members)
		return err
	})
	if fault.Is(err, "not_found") {
		return row{}, nil
	}
	return g, err
}

// advance stores entries of weight 1 for those who have none yet, counts them (those
// who have reacted in both ways once), and notes how far the reactions are read. Only the entries of a giveaway whose
// reactions are being read grow that way; the unit holds the row.
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

// leaseOf is how long the giveaway is left to whoever reads its reactions; once
// they are read it is to be drawn at once.
func leaseOf(state string) time.Duration {
	if state == gathering {
		return lease
	}
	return 0
}

// endUnposted ends the reading of a giveaway without a message: nobody can have
// reacted to what was never posted. A message that may have been posted is waited for.
func endUnposted(ctx context.Context, d db.Doer, g row) error {
	settled, lost := true, false
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		current, err := lock(ctx, tx, g.GuildID, g.ID)
		if err != nil || current.Pot != gathering || current.MessageID != nil {
			return err // posted just now: the next look reads it
		}
		if current.PostID != nil {
			if settled, lost, err = withdrawMessage(ctx, tx, current); err != nil || !settled {
				return err
			}
		}
		return freeze(ctx, tx, current, lost)
	})
	if err == nil && !settled {
		return missed(ctx, d, g, errUnsettled)
	}
	return err
}

// withdrawMessage withdraws the message of a giveaway that has none yet. It is not
// settled while the message may be posted, and lost when it was posted and
// deleted before anybody could read its reactions.
func withdrawMessage(ctx context.Context, tx *db.Tx, g row) (settled, lost bool, err error) {
	if _, err := chat.Withdraw(ctx, tx, g.GuildID, *g.PostID); err != nil {
		return false, false, err
	}
	state, err := chat.State(ctx, tx, g.GuildID, *g.PostID)
	return state == "" || state == chat.Sent, state == chat.Sent, err
}

// missed decides what becomes of a giveaway whose reactions could not be read:
// when the message is gone, or a day is over, it is drawn with what is known.
// Otherwise the failure is returned.
func missed(ctx context.Context, d db.Doer, g row, failed error) error {
	if errors.Is(failed, chat.ErrAsked) {
		return nil // with the answer it is due again
	}
	if !isGone(failed) && (g.DrawingAt == nil || time.Since(*g.DrawingAt) < maxWait) {
		return failed
	}
	return errors.Join(unlessFinal(failed), d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		current, err := lock(ctx, tx, g.GuildID, g.ID)
		if err != nil || !g.reads(current) {
			return err
		}
		return freeze(ctx, tx, current, true)
	}))
}

// freeze ends the reading; lost says that there was more to read.
func freeze(ctx context.Context, tx *db.Tx, g row, lost bool) error {
	_, err := db.Exec(ctx, tx, `
		UPDATE giveaways
		SET pot = 'frozen', reactions_missed = $3, failures = 0, redraw_at = now()
		WHERE guild_id = $1
		  AND id = $2`, g.GuildID, g.ID, lost)
	return fault.Wrap(err, "freeze the entries of giveaway", g.ID, "in guild", g.GuildID)
}

// maxFailures is how often the bot's own reaction is tried: with growing pauses
// that is about a day.
const maxFailures = 100

// React adds the bot's own reaction to the message of a giveaway, by which
// members see what to press. A failure asks to be called again; in the end, and
// when the message is gone, it is given up: members can add the reaction
// themselves.
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

// isGone reports whether the platform says that the message, or its channel, is
// no longer there, or that nothing will be done.
func isGone(err error) bool {
	f, ok := errors.AsType[*chat.Failure](err)
	return ok && (f.Code == chat.CodeUnknownMessage || f.Code == chat.CodeUnknownChannel) || errors.Is(err, chat.ErrFinal)
}

// unlessFinal is err where it is a failure: that nothing will be done is none.
func unlessFinal(err error) error {
	if errors.Is(err, chat.ErrFinal) {
		return nil
	}
	return err
}

// claimReaction takes the adding of the bot's reaction; the row it returns has
// no message when there is nothing to add.
func claimReaction(ctx context.Context, d db.Doer, guild, id string) (row, error) {
	return leased(ctx, d, "the reaction to", guild, id, `
		UPDATE giveaways
		SET react_at = now() + make_interval(secs => $3)
		WHERE guild_id = $1
		  AND id = $2
		  AND react_at <= now()
		RETURNING `+columns)
}

package giveaways

import (
	"context"
	"slices"
	"time"

	"guildhall/gen"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/transfer"
)

// writer creates and changes giveaways by records.
var writer = transfer.Writer[row]{
	Schema: "RecordGiveaway",
	Key:    idOf,
	Hold:   holdNamed,
	Revise: revise,
	Shown:  func(g *row) transfer.Shown { return transfer.Shown{ID: g.ID, UpdatedAt: &g.UpdatedAt} },
	Store:  store,
	Emit:   emit,
	Finish: closeEntries,
}

func idOf(g *row) string { return g.ID }

var heldGiveaways = `
		SELECT ` + columns + `
		FROM giveaways
		WHERE guild_id = $1
		  AND id = ANY ($2)
		ORDER BY id`

// holdNamed locks the giveaways that records name. From then on the bot runs those with the source
// bot.
func holdNamed(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[row]) error {
	if err := transfer.Held(idOf, heldGiveaways)(ctx, tx, c, rows); err != nil || c.Import != nil {
		return err
	}
	var named []string
	for _, r := range rows {
		if r.Was != nil && r.Was.Source != fromAPI && !r.Was.BotRun {
			r.Was.BotRun = true
			named = append(named, r.Was.ID)
		}
	}
	return takeOver(ctx, tx, c.By.GuildID, named)
}

// takeOver stores that the bot runs the giveaways.
func takeOver(ctx context.Context, tx *db.Tx, guild string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := db.Exec(ctx, tx, `
		UPDATE giveaways SET bot_run = true
		WHERE guild_id = $1
		  AND id = ANY ($2)`, guild, db.Array(ids))
	return fault.Wrap(err, "leave giveaways of guild", guild, "to the bot")
}

// errDrawn returns the refusal of a change that comes after the draw.
func errDrawn(g *row) error {
	switch g.Status {
	case ended:
		return fault.New(fault.Refused, "giveaway_not_active", "The giveaway has ended: its winners and entries do not change any more.")
	case cancelled:
		return fault.New(fault.Refused, "giveaway_not_active", "The giveaway was cancelled: its entries do not change any more.")
	}
	return fault.New(fault.Refused, "giveaway_not_active", "The giveaway is being drawn: its entries do not change any more.")
}

// revise completes a giveaway and allows the changes of status that a record may make.
func revise(c *transfer.Call, r *transfer.Row[row]) error {
	is, was := &r.Is, r.Was
	if was != nil {
		is.Source = was.Source
		is.PausedAt, is.EndedAt = transfer.Stands(is.PausedAt, was.PausedAt, c.Now), transfer.Stands(is.EndedAt, was.EndedAt, c.Now)
		if err := mayMove(was, is); err != nil {
			return err
		}
		if was.Status == paused && is.Status != paused {
			is.PausedAt = nil
		}
	}
	stays := was != nil && is.PausedAt != nil && was.PausedAt != nil && is.PausedAt.Alike(*was.PausedAt)
	if err := complete(is, c.Now); err != nil {
		return err
	}
	if is.over() && is.EndedAt == nil {
		at := wire.At(c.Now)
		is.EndedAt = &at
	}
	if was == nil {
		is.BotRun = is.Source != fromAPI && c.Import == nil
		return nil
	}
	is.CreatedAt, is.UpdatedAt = was.CreatedAt, was.UpdatedAt
	if was.over() {
		is.EndedAt = was.EndedAt
	}
	switch moved := !is.EndsAt.Alike(was.EndsAt); {
	case stays && moved && !r.Gives("paused_at"): // the pause moves the new end from now on
		at := transfer.Latest(wire.At(c.Now), was.PausedAt)
		is.PausedAt = &at
	case stays:
		is.PausedAt = was.PausedAt // the giveaway may have been paused after the call began
	}
	if is.ChannelID == "" {
		return transfer.Broken("channel_id", "must not be null")
	}
	if was.Source == fromAPI && was.MessageID != nil && is.ChannelID != was.ChannelID && !r.Gives("message_id") {
		return transfer.Wrong("channel_id", "is %s, where its message stands: another channel needs the message_id there", was.ChannelID)
	}
	return nil
}

// mayMove returns an error unless a record may change a giveaway from one status to the other.
func mayMove(was, is *row) error {
	switch {
	case is.Status == cancelled && was.running():
		return nil
	case is.Status == cancelled && was.Status == ended:
		return transfer.Wrong("status", "a record does not cancel a giveaway that has ended")
	case was.Status == ended && (is.Status != ended || !slices.Equal(was.Winners, is.Winners)):
		return errDrawn(was)
	case was.Status == is.Status:
		return nil
	case is.Status == ended && was.BotRun && was.Status != cancelled:
		return nil
	case is.Status == active && (was.Status == scheduled || was.Status == paused), is.Status == paused && was.Status == active:
		return nil
	}
	return transfer.Wrong("status", "a record does not make a giveaway %s that is %s", is.Status, was.Status)
}

// changes lists the changed members for the event giveaway.updated. The status and the members that
// follow from it have events of their own.
func changes(was, is *row) []string {
	return members.Changed(was, is, "status", "winners", "paused_at", "ended_at")
}

// step is one event of a change.
type step struct {
	typ     string
	changed []string
}

// steps returns the events of a created or changed giveaway in their order.
func steps(r *transfer.Row[row]) (list []step) {
	if r.Was == nil {
		list = append(list, step{typ: event.GiveawayCreated})
		switch r.Is.Status {
		case ended:
			list = append(list, step{typ: event.GiveawayEnded})
		case cancelled:
			list = append(list, step{typ: event.GiveawayCancelled})
		}
		return list
	}
	if changed := changes(r.Was, &r.Is); len(changed) > 0 {
		list = append(list, step{event.GiveawayUpdated, changed})
	}
	switch was, is := r.Was.Status, r.Is.Status; {
	case was == is:
	case is == ended:
		list = append(list, step{typ: event.GiveawayEnded})
	case is == cancelled:
		list = append(list, step{typ: event.GiveawayCancelled})
	case is == paused:
		list = append(list, step{typ: event.GiveawayPaused})
	case was == paused:
		list = append(list, step{typ: event.GiveawayResumed})
	default:
		list = append(list, step{typ: event.GiveawayStarted})
	}
	return list
}

// store inserts and updates giveaways. The call may also bring the entries of a giveaway that it
// ends.
func store(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[row]) error {
	for _, r := range rows {
		if n := len(steps(r)); n > 1 && c.Import == nil {
			r.At = wire.Bounded(r.At.Time.Add(time.Duration(n-1) * time.Millisecond))
		}
		r.Is.UpdatedAt = r.At
		if r.Is.over() && (r.Was == nil || !r.Was.over()) {
			c.Knows(refOf(c.By.GuildID, r.Is.ID))
		}
	}
	if err := transfer.StoreRows(ctx, tx, c, rows, idOf, storing, c.Import == nil); err != nil {
		return fault.Wrap(err, "store giveaways of guild", c.By.GuildID)
	}
	for _, r := range rows {
		err := moveMessage(ctx, tx, r)
		if err == nil && r.Is.Status == cancelled {
			err = withdraw(ctx, tx, r.Is)
		}
		if err == nil && r.Is.Status == active && (r.Was == nil || r.Was.Status == scheduled) {
			err = present(ctx, tx, r.Is)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// moveMessage changes the channel of the message by which members enter to the one in the record,
// or withdraws the intent if the record names a posted message. If the message may have been posted
// already, it stays where it is, and the giveaway gets that channel; see posted.
func moveMessage(ctx context.Context, tx *db.Tx, r *transfer.Row[row]) error {
	is, was := &r.Is, r.Was
	if was == nil || was.PostID == nil || is.ChannelID == was.ChannelID && (was.MessageID != nil || is.MessageID == nil) {
		return nil
	}
	gone, err := chat.Withdraw(ctx, tx, is.GuildID, *was.PostID)
	if err != nil || !gone {
		return err
	}
	is.PostID = nil
	return present(ctx, tx, *is)
}

// A giveaway that the bot has ended has had its first round, without a record of it; rerolls draw
// from the entries that are frozen then. In an import they are frozen at the end.
var storing = `
		WITH given AS MATERIALIZED (
			SELECT ` + members.Moved() + `
			FROM jsonb_populate_recordset(NULL::giveaways, $2)
		), instant AS MATERIALIZED (
			SELECT clock_timestamp() AS at
		), ` + closes + `, changed AS (
			UPDATE giveaways
			SET ` + members.Set("g", nil) + `,
			    reaction_after = CASE WHEN giveaways.message_id = g.message_id THEN reaction_after ELSE '' END,
			    shown = CASE WHEN giveaways.message_id = g.message_id THEN shown END,
			    post_problem = CASE WHEN giveaways.message_id = g.message_id THEN post_problem END,
			    edit_at = CASE WHEN giveaways.source = 'api' AND giveaways.message_id = g.message_id
			                    AND (giveaways.status, giveaways.prize, giveaways.description, giveaways.winner_count, giveaways.ends_at, giveaways.host_id)
			                        IS DISTINCT FROM (g.status, g.prize, g.description, g.winner_count, g.ends_at, g.host_id)
			               THEN ` + nextEdit + ` ELSE edit_at END,
			    rounds = CASE WHEN g.status = 'ended' THEN greatest(rounds, 1) ELSE rounds END,
			    pot = CASE WHEN g.status IN ('ended', 'cancelled') AND $4 THEN 'frozen' ELSE pot END,
			    drawing_at = CASE WHEN g.status = 'ended' THEN coalesce(drawing_at, instant.at) ELSE drawing_at END
			FROM given g, instant
			WHERE giveaways.guild_id = $1 AND giveaways.id = g.id AND giveaways.id = ANY ($3)
			RETURNING giveaways.id
		), made AS (
			INSERT INTO giveaways (` + members.Moved() + `, bot_run, rounds, pot, drawing_at, redraw_at)
			SELECT ` + members.From("g", nil) + `,
			       $4 AND g.source = 'bot',
			       CASE WHEN g.status = 'ended' AND g.source = 'bot' THEN 1 ELSE 0 END,
			       CASE WHEN NOT $4 THEN 'open'
			            WHEN g.status IN ('ended', 'cancelled') THEN 'frozen'
			            WHEN g.status = 'drawing' AND g.source = 'api' THEN 'gathering'
			            ELSE 'open' END,
			       CASE WHEN g.status IN ('drawing', 'ended') THEN instant.at END,
			       CASE WHEN g.source = 'bot' AND $4 THEN closes.at ELSE instant.at END
			FROM given g JOIN guilds home ON home.id = $1
			CROSS JOIN instant
			CROSS JOIN closes
			WHERE g.id <> ALL ($3)
			ON CONFLICT DO NOTHING
			RETURNING id
		)
		SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM made)`

// emit records the events of created and changed giveaways, each a millisecond after the previous
// one and all with the final state.
func emit(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[row]) error {
	stored, err := transfer.Stored(ctx, tx, c, rows, idOf, heldGiveaways)
	if err != nil {
		return fault.Wrap(err, "read giveaways of guild", c.By.GuildID)
	}
	changes := make(map[string][]event.Change)
	for _, r := range rows {
		// The counters include the entries of the same call by now.
		g, list := *stored[r.Is.ID], steps(r)
		for i, s := range list {
			e := event.Change{At: g.UpdatedAt.Time.Add(time.Duration(i-len(list)+1) * time.Millisecond), Data: show(g)}
			switch s.typ {
			case event.GiveawayUpdated:
				e.Data = showChange(g, s.changed, nil)
			case event.GiveawayCancelled:
				e.Data = gen.GiveawayCancellation{Giveaway: show(g)}
			}
			changes[s.typ] = append(changes[s.typ], e)
		}
	}
	return event.RecordTypes(ctx, tx, event.From(c.By), changes)
}

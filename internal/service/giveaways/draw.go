package giveaways

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/event"
)

// Draw draws the winners of a giveaway in status drawing whose entries are frozen, and ends it. The
// draw's record, the winners, the event and the announcement are stored in one transaction. In any
// other status, and if the giveaway is locked or gone, Draw does nothing, so any number of workers
// may call it any number of times.
func Draw(ctx context.Context, d db.Doer, guild, id string) error {
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		g, err := lockFree(ctx, tx, guild, id)
		if fault.Is(err, "not_found") {
			return nil
		}
		if err != nil || g.Status != drawing || g.Pot == gathering {
			return err
		}
		if yet, err := botsTurn(ctx, tx, g); err != nil || yet {
			return err
		}
		if err := tx.TakeTime(ctx, drawTime); err != nil {
			return err
		}
		g, r, err := conduct(ctx, tx, g, order{count: g.WinnerCount, tokenID: g.EndedByTokenID})
		if err != nil {
			return err
		}
		if err := event.Record(ctx, tx, event.System(guild).On(g.UpdatedAt.Time), event.GiveawayEnded, show(g)); err != nil {
			return err
		}
		return announce(ctx, tx, g, chat.KindGiveawayEnded, endedTexts(g, r.Drawn)...)
	})
}

// botsTurn reports whether the bot runs the giveaway and may still send its result.
func botsTurn(ctx context.Context, tx *db.Tx, g row) (bool, error) {
	if !g.BotRun || g.DrawingAt == nil {
		return false, nil
	}
	now, err := tx.Now(ctx)
	return now.Before(g.DrawingAt.Add(botWindow)), err
}

// drawTime is the statement timeout of a draw. On a busy machine reading and drawing from a hundred
// thousand entries takes longer than other transactions may, and a draw that times out once would
// time out each time.
const drawTime = time.Minute

// order describes what a draw has to do.
type order struct {
	count    int      // how many winners to draw
	places   []int    // the positions of the winners to replace; nil: the first ones
	all      bool     // refuse if fewer can be drawn
	excluded []string // users who cannot win, besides all earlier winners
	tokenID  *string  // the token that asked for the draw
	reason   *string
}

// barred returns the set of those who cannot win a draw: who won before, and who is excluded.
func barred(past, excluded []string) map[string]bool {
	out := make(map[string]bool, len(past)+len(excluded))
	for _, id := range slices.Concat(past, excluded) {
		out[id] = true
	}
	return out
}

// conduct draws one round of a giveaway that tx has locked, records the draw and stores the
// winners: the new winners take the positions that o names, the others stay. If all are required
// and there are too few entrants, it returns a Refused fault and changes nothing.
func conduct(ctx context.Context, tx *db.Tx, g row, o order) (row, record, error) {
	past, err := pastWinners(ctx, tx, g)
	if err != nil {
		return row{}, record{}, err
	}
	all, err := pot(ctx, tx, g)
	if err != nil {
		return row{}, record{}, err
	}
	seed := make([]byte, 32)
	if _, err := rand.Read(seed); err != nil {
		return row{}, record{}, fault.Wrap(err, "draw a seed")
	}
	excluded := distinct(o.excluded)
	out := barred(past, excluded)
	drawn, err := pick(seed, all, out, o.count)
	if err != nil {
		return row{}, record{}, fault.Wrap(err, "draw giveaway", g.ID, "of guild", g.GuildID)
	}
	if o.all && len(drawn) < o.count {
		return row{}, record{}, fault.New(fault.Refused, "not_enough_entries",
			"Winners to replace: %d; eligible entrants that remain: %d.", o.count, len(drawn))
	}
	winners, replaced := replace(g.Winners, o.places, drawn)
	r := record{
		Round:       g.Rounds + 1,
		Seed:        seed,
		EntriesHash: potHash(all),
		EntryCount:  weight(all, out),
		Excluded:    excluded,
		Drawn:       drawn,
		Replaced:    replaced,
		TokenID:     o.tokenID,
		Reason:      o.reason,
	}
	g, err = storeDraw(ctx, tx, g, r, winners)
	return g, r, err
}

// distinct returns the ids sorted and without duplicates. It never returns nil.
func distinct(ids []string) []string {
	list := append([]string{}, ids...)
	slices.Sort(list)
	return slices.Compact(list)
}

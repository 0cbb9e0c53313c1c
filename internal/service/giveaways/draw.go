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

// Draw draws the winners of a giveaway that is in drawing and whose entries are
// frozen, and ends it: the record, the winners, the event and the announcement
// become real together, or none of them. In any other state, while somebody
// else holds the giveaway, and when it is gone, it does nothing, so it may be
// called by as many workers and as often as one likes.
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

// botsTurn reports whether the giveaway is one that the bot runs and may still tell of.
func botsTurn(ctx context.Context, tx *db.Tx, g row) (bool, error) {
	if !g.BotRun || g.DrawingAt == nil {
		return false, nil
	}
	now, err := tx.Now(ctx)
	return now.Before(g.DrawingAt.Add(botWindow)), err
}

// drawTime is how long a draw may take within and between its statements. On a busy
// machine a hundred thousand entries take longer to read and to draw from than the
// limits of other units, and a draw that met them would meet them each time.
const drawTime = time.Minute

// order says what one draw is to do.
type order struct {
	count    int      // how many winners to draw
	all      bool     // refuse to draw fewer
	excluded []string // who is left out besides everyone who ever won
	tokenID  *string  // who asked for it
	reason   *string
}

// conduct draws one round of a giveaway that tx has locked, records it and
// stores its winners: the drawn ones take the first places, those who stood
// further back stay. It is Refused, and nothing changes, when all are wanted
// and there are too few.
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
	out := make(map[string]bool, len(past)+len(excluded))
	for _, id := range slices.Concat(past, excluded) {
		out[id] = true
	}
	drawn, err := pick(seed, all, out, o.count)
	if err != nil {
		return row{}, record{}, fault.Wrap(err, "draw giveaway", g.ID, "of guild", g.GuildID)
	}
	if o.all && len(drawn) < o.count {
		return row{}, record{}, fault.New(fault.Refused, "not_enough_entries",
			"Winners to replace: %d; eligible entrants that remain: %d.", o.count, len(drawn))
	}
	count := weight(all, out)
	r := record{
		Round:       g.Rounds + 1,
		Seed:        seed,
		EntriesHash: potHash(all),
		EntryCount:  &count,
		PastWinners: past,
		Excluded:    excluded,
		Drawn:       drawn,
		Replaced:    slices.Clone(g.Winners[:min(len(drawn), len(g.Winners))]),
		Winners:     replace(g.Winners, drawn),
		TokenID:     o.tokenID,
		Reason:      o.reason,
	}
	g, err = settle(ctx, tx, g, r)
	return g, r, err
}

// pastWinners is everyone who ever won the giveaway: those of today, those of
// the last draw, and everyone who had won before that.
func pastWinners(ctx context.Context, tx *db.Tx, g row) ([]string, error) {
	last, err := lastRecord(ctx, tx, g)
	if err != nil {
		return nil, err
	}
	return distinct(slices.Concat(g.Winners, last.PastWinners, last.Drawn)), nil
}

// distinct returns the ids sorted, each once. It is never nil.
func distinct(ids []string) []string {
	list := append([]string{}, ids...)
	slices.Sort(list)
	return slices.Compact(list)
}

package giveaways

import (
	"context"
	"errors"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/chat"
)

// Answered handles an answer of the operator's bot, in the transaction that stores it: it makes the
// message due that the bot was to post, or the giveaway whose message it was to edit or whose
// entries it was to write.
func Answered(ctx context.Context, tx *db.Tx, a chat.Answered) error {
	if a.IntentID != "" {
		return chat.TryAgain(ctx, tx, a.GuildID, a.IntentID)
	}
	for _, again := range []string{`
		UPDATE giveaways SET edit_at = now()
		WHERE guild_id = $1
		  AND id = $2
		  AND edit_at IS NOT NULL`, `
		UPDATE giveaways SET redraw_at = now()
		WHERE guild_id = $1
		  AND id = $2
		  AND pot = 'gathering'`} {
		if _, err := db.Exec(ctx, tx, again, a.GuildID, a.GiveawayID); err != nil {
			return fault.Wrap(err, "go on with giveaway", a.GiveawayID, "of guild", a.GuildID)
		}
	}
	return nil
}

// unlessAsked returns err, or nil if err only says that the bot has not answered yet.
func unlessAsked(err error) error {
	if errors.Is(err, chat.ErrAsked) {
		return nil
	}
	return err
}

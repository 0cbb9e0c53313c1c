package giveaways

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/chat"
)

// Edit updates the message of a giveaway that the API runs, once it is over: first it says that the
// winners are being drawn, then who has won. Any number of workers may call it any number of times.
// After an error it must be called again; it gives up in the end, and at once if the message is
// gone or not the bot's own.
func Edit(ctx context.Context, d db.Doer, p chat.Platform, guild, id string) error {
	g, err := leased(ctx, d, "the message of", guild, id, `
		UPDATE giveaways
		SET edit_at = now() + make_interval(secs => $3)
		WHERE guild_id = $1
		  AND id = $2
		  AND edit_at <= now()
		RETURNING `+columns)
	if err != nil || g.MessageID == nil {
		return err
	}
	failed := p.EditMessage(ctx, g.channel(), *g.MessageID, overText(g))
	if errors.Is(failed, chat.ErrAsked) {
		return nil // the bot's answer makes it due again
	}
	if failed != nil && !isGone(failed) && !isLasting(failed) && g.EditFailures < maxFailures {
		return failed
	}
	return errors.Join(unlessFinal(failed), d.Do(context.WithoutCancel(ctx), func(ctx context.Context, tx *db.Tx) error {
		return edited(ctx, tx, g)
	}))
}

// edited stores that the message shows g. Later changes remain due for the next edit; the edit of a
// later lease stays due too.
func edited(ctx context.Context, tx *db.Tx, g row) error {
	_, err := db.Exec(ctx, tx, `
		WITH instant AS MATERIALIZED (
			SELECT clock_timestamp() AS at
		)
		UPDATE giveaways
		SET edit_at = CASE WHEN status = $4 AND winners = $5 THEN NULL ELSE instant.at END, edit_failures = 0
		FROM instant
		WHERE guild_id = $1
		  AND id = $2
		  AND edit_at = $3`, g.GuildID, g.ID, g.EditAt, g.Status, g.Winners)
	return fault.Wrap(err, "note the edited message of giveaway", g.ID, "in guild", g.GuildID)
}

// isLasting reports whether the platform will refuse until somebody changes something there.
func isLasting(err error) bool {
	f, ok := errors.AsType[*chat.Failure](err)
	return ok && f.Lasting()
}

// overText returns the message's text for a giveaway that is over.
func overText(g row) string {
	text := emoji + " **" + plain(g.Prize, maxPrize) + "**"
	if g.Description != nil && strings.TrimSpace(*g.Description) != "" {
		text += "\n" + plain(*g.Description, maxText)
	}
	text += "\n\nEnded. "
	switch {
	case g.Status != ended:
		return text + "The winners are being drawn."
	case len(g.Winners) == 0:
		return text + "Nobody has won."
	case len(g.Winners) == 1:
		text += "The winner: "
	default:
		text += "The winners: "
	}
	return text + mentions(g.Winners, maxMessage-utf8.RuneCountInString(text)) + "."
}

// mentions mentions as many users as fit into room characters, and counts the others.
func mentions(users []string, room int) string {
	const others = len(" and 100 others.")
	var names strings.Builder
	for n, user := range users {
		name := "<@" + user + ">"
		if n > 0 {
			name = ", " + name
		}
		if names.Len()+len(name) > room-others {
			return names.String() + " and " + strconv.Itoa(len(users)-n) + " others"
		}
		names.WriteString(name)
	}
	return names.String()
}

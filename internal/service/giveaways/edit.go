package giveaways

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/transfer"
)

// Edit updates the message of a giveaway that the API runs, so that it shows the giveaway as it is. Any
// number of workers may call it any number of times. After an error it must be called again; it
// gives up in the end, and at once if the message is gone or not the bot's own. The giveaway then
// says so in post_problem.
func Edit(ctx context.Context, d db.Doer, p chat.Platform, guild, id string) error {
	g, err := claimEdit(ctx, d, guild, id)
	if err != nil || g.MessageID == nil {
		return err
	}
	failed := p.EditMessage(ctx, g.editing(), *g.MessageID, postText(g))
	if errors.Is(failed, chat.ErrAsked) {
		return nil // the bot's answer makes it due again
	}
	if failed != nil && !isGone(failed) && !isLasting(failed) && g.EditFailures < maxFailures {
		return failed
	}
	return errors.Join(unlessFinal(failed), d.Do(context.WithoutCancel(ctx), func(ctx context.Context, tx *db.Tx) error {
		return edited(ctx, tx, g, problemOf(failed))
	}))
}

// editing is the channel for the next edit. Each edit is another request, since a message may have
// to show a text again that an earlier edit has shown.
func (g row) editing() chat.Channel {
	c := g.channel()
	if g.EditedAt != nil {
		c.For.Change = g.EditedAt.UTC().Format(time.RFC3339Nano)
	}
	return c
}

// claimEdit leases the edit of a giveaway's message. The returned row has no message if there is
// nothing to edit, or the message shows the giveaway already. Until the edit has ended, what the
// message shows is not known: the edit may be carried out without a response.
func claimEdit(ctx context.Context, d db.Doer, guild, id string) (g row, err error) {
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		g, err = db.Get[row](ctx, tx, byID+`
		  AND edit_at <= now()
		FOR NO KEY UPDATE`, guild, id)
		if err != nil {
			return err
		}
		if bytes.Equal(g.Shown, textHash(postText(g))) {
			g = row{}
			_, err = db.Exec(ctx, tx, `
				UPDATE giveaways SET edit_at = NULL, edit_failures = 0
				WHERE guild_id = $1
				  AND id = $2`, guild, id)
			return err
		}
		g, err = db.Get[row](ctx, tx, `
			UPDATE giveaways SET edit_at = now() + make_interval(secs => $3), shown = NULL
			WHERE guild_id = $1
			  AND id = $2
			RETURNING `+columns, guild, id, lease.Seconds())
		return err
	})
	if db.Missing(err) {
		return row{}, nil
	}
	return g, fault.Wrap(err, "claim the message of giveaway", id, "in guild", guild)
}

// edited stores that the message shows g, or which problem there is. If the giveaway has changed
// meanwhile, the next edit is due ten seconds later; the edit of a later lease stays due too.
func edited(ctx context.Context, tx *db.Tx, g row, problem *string) error {
	current, err := lock(ctx, tx, g.GuildID, g.ID)
	if fault.Is(err, "not_found") {
		return nil
	}
	if err != nil || current.EditAt == nil || !current.EditAt.Equal(*g.EditAt) {
		return err
	}
	var shown []byte
	same := transfer.Same(current.MessageID, g.MessageID)
	if !same {
		problem = current.PostProblem // the problem is that of another message
	} else if problem == nil {
		shown = textHash(postText(g))
	}
	_, err = db.Exec(ctx, tx, `
		WITH instant AS MATERIALIZED (
			SELECT clock_timestamp() AS at
		), later AS MATERIALIZED (
			SELECT at + interval '10 seconds' AS at FROM instant
		)
		UPDATE giveaways
		SET edit_at = CASE WHEN $4 THEN later.at END, edited_at = instant.at, shown = $3, edit_failures = 0
		FROM instant, later
		WHERE guild_id = $1
		  AND id = $2`, g.GuildID, g.ID, shown, !same || postText(current) != postText(g))
	if err != nil {
		return fault.Wrap(err, "note the edited message of giveaway", g.ID, "in guild", g.GuildID)
	}
	return noteProblem(ctx, tx, current, problem)
}

// noteProblem stores what is wrong with the message of a giveaway that tx has locked, or that
// nothing is. A change emits giveaway.updated.
func noteProblem(ctx context.Context, tx *db.Tx, g row, problem *string) error {
	if transfer.Same(g.PostProblem, problem) {
		return nil
	}
	noted, err := db.Get[row](ctx, tx, `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE giveaways
		SET post_problem = $3, updated_at = `+next+`
		FROM instant
		WHERE guild_id = $1
		  AND id = $2
		RETURNING `+columns, g.GuildID, g.ID, problem)
	if err != nil {
		return fault.Wrap(err, "note the problem with the message of giveaway", g.ID, "in guild", g.GuildID)
	}
	by := event.System(g.GuildID).On(noted.UpdatedAt.Time)
	return event.Record(ctx, tx, by, event.GiveawayUpdated, showChange(noted, []string{"post_problem"}, nil))
}

// The problems with a giveaway's message.
var (
	postDeleted   = "deleted"    // the message is gone
	postNoChannel = "no_channel" // the message's channel is gone, or belongs to another guild
	postForbidden = "forbidden"  // the bot may not read or edit it
	postFailed    = "failed"     // the platform does not do it for another reason
)

// problemOf returns the problem that the failure of a call for the message shows, or nil.
func problemOf(failed error) *string {
	if failed == nil {
		return nil
	}
	f, ok := errors.AsType[*chat.Failure](failed)
	switch {
	case !ok:
		return &postFailed
	case f.Code == chat.CodeUnknownMessage:
		return &postDeleted
	case f.Code == chat.CodeUnknownChannel:
		return &postNoChannel
	case f.Status == http.StatusForbidden:
		return &postForbidden
	case f.NotAllowed:
		return &postNoChannel
	}
	return &postFailed
}

// textHash is the hash by which an edit knows what a message shows.
func textHash(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// isLasting reports whether the platform will refuse until somebody changes something there.
func isLasting(err error) bool {
	f, ok := errors.AsType[*chat.Failure](err)
	return ok && f.Lasting()
}

// postText returns the text of the message for a giveaway in its present state.
func postText(g row) string {
	switch g.Status {
	case paused:
		return aboutText(g) + "Paused. Reactions count; " + strings.ToLower(winnersAre(g)) + " drawn once it runs on." + hostedBy(g)
	case cancelled:
		return aboutText(g) + "Cancelled. Nobody wins."
	case drawing, ended:
		return overText(g)
	}
	return startedText(g)
}

// overText returns the message's text for a giveaway that is over.
func overText(g row) string {
	text := aboutText(g) + "Ended. "
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

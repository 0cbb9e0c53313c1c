package giveaways

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/chat"
)

// emoji is the reaction by which members enter.
const emoji = "🎉"

// maxMessage is the platform's limit of characters in a message.
const maxMessage = 2000

func (g row) channel() chat.Channel {
	return chat.Channel{GuildID: g.GuildID, ID: g.ChannelID, For: chat.Purpose{SubjectID: g.ID}}
}

// notice is one message about a giveaway, with the users that it notifies.
type notice struct {
	text     string
	mentions []string
}

// announce stores, in the caller's unit, what the bot is to say in the giveaway's
// channel; a lane posts it. Giveaways run by the operator's bot are announced by that
// bot, so announce does nothing.
func announce(ctx context.Context, tx *db.Tx, g row, kind string, list ...notice) error {
	if g.BotRun {
		return nil
	}
	for _, n := range list {
		if _, err := prepare(ctx, tx, g, kind, n); err != nil {
			return err
		}
	}
	return nil
}

func prepare(ctx context.Context, tx *db.Tx, g row, kind string, n notice) (chat.Intent, error) {
	return chat.Prepare(ctx, tx, chat.Intent{
		GuildID:   g.GuildID,
		Kind:      kind,
		SubjectID: g.ID,
		ChannelID: g.ChannelID,
		ReplyTo:   g.MessageID,
		Content:   n.text,
		Mentions:  n.mentions,
	})
}

// present stores an intent to post the giveaway's message, on which members react to enter. It runs
// in the transaction that makes the giveaway active; a background worker posts the message later.
// It does nothing if the giveaway already has a message, or if the bot runs the giveaway and
// therefore posts the message itself.
func present(ctx context.Context, tx *db.Tx, g row) error {
	if g.Source != fromAPI || g.PostID != nil || g.MessageID != nil {
		return nil
	}
	in, err := prepare(ctx, tx, g, chat.KindGiveawayStarted, notice{text: startedText(g)})
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, tx, `
		UPDATE giveaways SET post_id = $3
		WHERE guild_id = $1
		  AND id = $2`, g.GuildID, g.ID, in.ID)
	return fault.Wrap(err, "note the message of giveaway", g.ID, "in guild", g.GuildID)
}

// Announce posts the message of an intent once, however often it is called. It returns nil when the
// message is posted, when it is no longer needed, and when the operator's bot has been asked to
// post it; after any other error it must be called again.
func Announce(ctx context.Context, d db.Doer, p chat.Platform, guild, intent string) error {
	var in chat.Intent
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		late, err := tooLate(ctx, tx, guild, intent)
		if err != nil {
			return err
		}
		if late {
			if gone, err := chat.Withdraw(ctx, tx, guild, intent); gone || err != nil {
				return err
			}
		}
		in, err = chat.Take(ctx, tx, guild, intent)
		return err
	})
	switch {
	case db.Missing(err): // the intent was withdrawn
		return nil
	case err != nil || in.ID == "" || in.State == chat.Sent:
		return err
	}
	var note func(context.Context, *db.Tx, string) error
	if in.Kind == chat.KindGiveawayStarted {
		note = func(ctx context.Context, tx *db.Tx, message string) error { return posted(ctx, tx, in, message) }
	}
	err = unlessAsked(chat.Post(ctx, d, p, in, note))
	if !errors.Is(err, chat.ErrFinal) {
		return err
	}
	return d.Do(context.WithoutCancel(ctx), func(ctx context.Context, tx *db.Tx) error {
		gone, failed := chat.Withdraw(ctx, tx, guild, intent) // the message is too late: it must never be posted
		if failed == nil && !gone {
			return err // an earlier attempt may have posted it: retry until it is a day old
		}
		return failed
	})
}

// tooLate reports whether an intent is for the message by which members enter a giveaway that can
// no longer be entered.
func tooLate(ctx context.Context, tx *db.Tx, guild, intent string) (bool, error) {
	in, err := chat.Get(ctx, tx, guild, intent)
	if err != nil || in.Kind != chat.KindGiveawayStarted {
		return false, err
	}
	g, err := get(ctx, tx, guild, in.SubjectID)
	return err == nil && g.PostID != nil && *g.PostID == intent && g.Status != active && g.Status != paused, err
}

// posted stores the id of the message by which members enter and the channel it was posted in,
// since the giveaway's channel may have changed meanwhile. It also makes the bot's own reaction
// due, and an edit if the giveaway has changed since the intent was stored.
func posted(ctx context.Context, tx *db.Tx, in chat.Intent, message string) error {
	g, err := lock(ctx, tx, in.GuildID, in.SubjectID)
	if fault.Is(err, "not_found") || err == nil && g.MessageID != nil {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, tx, `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE giveaways
		SET message_id = $3, channel_id = $4, updated_at = `+next+`,
		    react_at = CASE WHEN status IN ('active', 'paused') THEN instant.at END, failures = 0,
		    shown = $5, edit_at = CASE WHEN $6 THEN instant.at END
		FROM instant
		WHERE guild_id = $1
		  AND id = $2`, in.GuildID, in.SubjectID, message, in.ChannelID, textHash(in.Content), in.Content != postText(g))
	return fault.Wrap(err, "note the message of giveaway", in.SubjectID, "in guild", in.GuildID)
}

// startedText returns the message for a giveaway that becomes active.
func startedText(g row) string {
	return aboutText(g) + "React with " + emoji + " to enter. " + drawnAt(g) + hostedBy(g)
}

// aboutText returns the beginning of the message: what can be won, and more about it.
func aboutText(g row) string {
	text := emoji + " **" + plain(g.Prize, maxPrize) + "**"
	if g.Description != nil && strings.TrimSpace(*g.Description) != "" {
		text += "\n" + plain(*g.Description, maxText)
	}
	return text + "\n\n"
}

func hostedBy(g row) string {
	if g.HostID == nil {
		return ""
	}
	return " Hosted by <@" + *g.HostID + ">."
}

// resumedText returns the message for a paused giveaway that continues.
func resumedText(g row) string {
	return emoji + " **" + plain(g.Prize, maxPrize) + "** runs on. " + drawnAt(g)
}

// drawnAt says how many winners are drawn, and when in the reader's time zone.
func drawnAt(g row) string {
	at := strconv.FormatInt(g.EndsAt.Time.Add(time.Second-1).Unix(), 10)
	return winnersAre(g) + " drawn <t:" + at + ":R> (<t:" + at + ":f>)."
}

func winnersAre(g row) string {
	if g.WinnerCount > 1 {
		return strconv.Itoa(g.WinnerCount) + " winners are"
	}
	return "One winner is"
}

// endedTexts returns the messages for a giveaway that has been drawn.
func endedTexts(g row, winners []string) []notice {
	prize, after := emoji+" **"+plain(g.Prize, maxPrize)+"**", "."
	switch {
	case g.ReactionsMissed:
		after = ". The reactions could not be read, so only the entries that were known took part."
	case g.Source == fromAPI && (g.ReactionCount > 0 || g.EntrantCount == 0): // otherwise the bot has written the entries
		after = ". Entered by reaction: " + strconv.FormatInt(g.ReactionCount, 10) + "."
	}
	switch len(winners) {
	case 0:
		return []notice{{text: prize + ": nobody entered, so nobody wins" + after}}
	case 1:
		return named(prize+": the winner is ", prize+": another winner is ", winners, after)
	}
	return named(prize+": the winners are ", prize+": further winners are ", winners, after)
}

// rerolledTexts returns the messages for a reroll.
func rerolledTexts(g row, drawn []string, reason *string) []notice {
	prize, after := emoji+" **"+plain(g.Prize, maxPrize)+"**", "."
	if reason != nil {
		after = ". Reason: " + plain(*reason, maxText)
	}
	if len(drawn) == 1 {
		return named(prize+" was rerolled. The new winner is ", prize+": another new winner is ", drawn, after)
	}
	return named(prize+" was rerolled. The new winners are ", prize+": further new winners are ", drawn, after)
}

// named mentions the users between the texts first and after, in as many messages as needed;
// further messages begin with further.
func named(first, further string, users []string, after string) []notice {
	var list []notice
	for len(users) > 0 {
		var names strings.Builder
		room := maxMessage - utf8.RuneCountInString(first) - utf8.RuneCountInString(after)
		n := 0
		for ; n < len(users); n++ {
			name := "<@" + users[n] + ">"
			if n > 0 {
				name = ", " + name
			}
			if names.Len()+len(name) > room {
				break
			}
			names.WriteString(name)
		}
		list = append(list, notice{first + names.String() + after, users[:n]})
		first, after, users = further, ".", users[n:]
	}
	return list
}

// The most characters of a prize, and of any other text by people, in a message. With the text
// around them they fit into one message.
const (
	maxPrize = 400
	maxText  = 1200
)

// special are the characters that start formatting: links with another text, mentions, hidden or
// struck text, code. The underscore is not included, since it occurs in URLs.
const special = "\\[<`*~|"

// customEmoji matches a custom emoji in a message.
var customEmoji = regexp.MustCompile(`^<a?:[A-Za-z0-9_]{2,32}:[0-9]{1,20}>`)

// plain returns text escaped for a message, so that it mentions nobody and hides no link behind
// other words. Custom emoji are kept. Text longer than limit is cut, but never inside a custom
// emoji.
func plain(text string, limit int) string {
	var b strings.Builder
	n, fits := 0, 0 // characters so far, and the byte position up to which an ellipsis still fits
	for text != "" {
		part := ""
		if text[0] == '<' {
			part = customEmoji.FindString(text)
		}
		if part == "" {
			_, size := utf8.DecodeRuneInString(text)
			if part = text[:size]; strings.Contains(special, part) {
				b.WriteByte('\\')
				n++
			}
		}
		b.WriteString(part)
		n += utf8.RuneCountInString(part)
		if text = text[len(part):]; n < limit {
			fits = b.Len()
		}
	}
	if n <= limit {
		return b.String()
	}
	return b.String()[:fits] + "…"
}

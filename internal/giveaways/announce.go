package giveaways

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"guildhall/internal/chat"
	"guildhall/internal/db"
	"guildhall/internal/jobs"
)

// maxMessage is how many characters the chat platform takes in one message.
const maxMessage = 2000

// announce stores, in the caller's unit, what the bot is to say in the
// giveaway's channel, and the job that says it.
func announce(ctx context.Context, tx *db.Tx, g row, kind, text string) error {
	in, err := chat.Prepare(ctx, tx, chat.Intent{
		GuildID:   g.GuildID,
		Kind:      kind,
		SubjectID: g.ID,
		ChannelID: g.ChannelID,
		ReplyTo:   g.MessageID,
		Content:   text,
	})
	if err != nil {
		return err
	}
	return jobs.Enqueue(ctx, tx, jobs.AnnounceGiveaway{GuildID: g.GuildID, IntentID: in.ID}, nil)
}

// sweepBatch is how many lost announcements one sweep makes up for.
const sweepBatch = 50

// SweepAnnouncements posts what the bot was to say and did not: the job was
// lost, or its worker died. It is the work of a sweep; several may run at once,
// and each message is posted once.
func SweepAnnouncements(ctx context.Context, d db.Doer, p chat.Platform) error {
	var group errgroup.Group
	group.SetLimit(8) // one channel that hangs must not hold up the rest
	for _, kind := range []string{chat.KindGiveawayEnded, chat.KindGiveawayRerolled} {
		left, err := chat.Abandoned(ctx, d, kind, sweepBatch)
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		for _, in := range left {
			group.Go(func() error {
				err := chat.Announce(ctx, d, p, in.GuildID, in.ID)
				if errors.Is(err, chat.ErrTaken) {
					return nil // somebody else is at it
				}
				return err
			})
		}
	}
	return group.Wait()
}

// endedText is what the bot says when a giveaway has been drawn.
func endedText(prize string, winners []string) string {
	switch len(winners) {
	case 0:
		return "🎉 **" + prize + "**: nobody entered, so nobody wins."
	case 1:
		return named("🎉 **"+prize+"**: the winner is ", winners, ".")
	}
	return named("🎉 **"+prize+"**: the winners are ", winners, ".")
}

// rerolledText is what the bot says when winners have been replaced.
func rerolledText(prize string, drawn []string, reason *string) string {
	after := "."
	if reason != nil {
		after = ". Reason: " + *reason
	}
	if len(drawn) == 1 {
		return named("🎉 **"+prize+"** was rerolled. The new winner is ", drawn, after)
	}
	return named("🎉 **"+prize+"** was rerolled. The new winners are ", drawn, after)
}

// named puts the users' names between before and after, as many as one message
// has room for, and says how many are missing.
func named(before string, users []string, after string) string {
	room := maxMessage - utf8.RuneCountInString(before) - utf8.RuneCountInString(after)
	var b strings.Builder
	for i, u := range users {
		name, left := "<@"+u+">", len(users)-i-1
		if i > 0 {
			name = ", " + name
		}
		need := len(name)
		if left > 0 {
			need += len(more(left)) // there must be room for this in case it is the last
		}
		if b.Len()+need > room {
			b.WriteString(more(left + 1))
			break
		}
		b.WriteString(name)
	}
	return before + b.String() + after
}

func more(n int) string { return " and " + strconv.Itoa(n) + " more" }

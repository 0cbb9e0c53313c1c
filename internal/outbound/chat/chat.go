// Package chat speaks to the chat platform: it posts messages as the bot and
// puts channels away. It knows nothing of tickets or giveaways; what must be
// said exactly once is kept as an intent (intent.go) by whoever wants it said.
package chat

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Channel is a channel, and the guild that wants something of it. Nothing is
// done in a channel that belongs to another guild, however its id came in.
type Channel struct {
	GuildID, ID string
	For         Purpose
}

// Purpose is what something is to be done for: a ticket or giveaway, and which change of
// it. Two requests with one purpose are one thing to do.
type Purpose struct{ SubjectID, Change string }

// Message is one message to be posted as the bot. Mentions in it notify nobody
// but the users that it names.
type Message struct {
	Channel Channel
	Content string
	// Nonce names the message to the platform: while the platform remembers it
	// (a few minutes), posting it again returns the first message.
	Nonce string
	// ReplyTo is the id of a message in the same channel, or empty. A message
	// that is gone does not hinder the reply.
	ReplyTo string
	// Mentions are the users whom a mention in the content notifies, at most 100.
	Mentions []string
	// Kind and IntentID are those of the message's intent.
	Kind, IntentID string
}

// Platform is everything Guildhall asks of the chat platform. Each call ends
// within its budget of eight seconds. A failure is a *Failure; nothing else is
// returned. Each call that names a channel checks first whose it is, as
// CheckChannel does.
type Platform interface {
	// CheckChannel asks whose the channel is. A failure that is
	// ErrChannelNotAllowed means that it is another guild's, or none that the
	// bot can see; any other means that the platform could not be asked. An answer of the
	// platform is remembered for ten minutes; a refusal is not.
	CheckChannel(ctx context.Context, c Channel) error
	// SendMessage posts m and returns the platform's id for it. The id is empty
	// when the platform says that the message was posted and deleted since.
	SendMessage(ctx context.Context, m Message) (string, error)
	// EditMessage gives a message of the bot's another content. Mentions in it notify
	// nobody. Editing it again changes nothing.
	EditMessage(ctx context.Context, c Channel, messageID, content string) error
	// FindMessages returns the ids of the bot's own messages in m's channel that
	// have its content and were posted at since or in the few minutes after it,
	// oldest first. Later ones may be among them.
	FindMessages(ctx context.Context, m Message, since time.Time) ([]string, error)
	// LockOf reads the channel and returns what archiving it will change, as it
	// is now, with user as the one whose conversation it is.
	LockOf(ctx context.Context, c Channel, user string) (Lock, error)
	// ArchiveChannel closes the channel to further conversation and keeps it. A
	// thread is archived and locked. In any other channel those whom lock names
	// may write no more.
	ArchiveChannel(ctx context.Context, c Channel, lock Lock) error
	// RestoreChannel undoes what ArchiveChannel has done with lock.
	RestoreChannel(ctx context.Context, c Channel, lock Lock) error
	// DeleteChannel removes the channel. A channel that is gone already counts
	// as removed.
	DeleteChannel(ctx context.Context, c Channel) error
	Reactions
}

// Lock is what archiving a channel changes about it, as it was before.
type Lock struct {
	// Thread: the platform archives threads itself, and nothing else changes.
	Thread bool `json:"thread,omitempty"`
	// Before are the permissions to write of those who lose them.
	Before []Overwrite `json:"before,omitempty"`
}

// Overwrite is what a channel allows and denies to a role or a member beyond
// what holds in the whole guild, as bits.
type Overwrite struct {
	ID     string        `json:"id"`
	Type   OverwriteType `json:"type"`
	Allow  uint64        `json:"allow,string"`
	Deny   uint64        `json:"deny,string"`
	Absent bool          `json:"absent,omitempty"` // in a Lock: there was none
}

// OverwriteType says of whom an Overwrite is.
type OverwriteType int

// The types of overwrites.
const (
	RoleOverwrite   OverwriteType = 0
	MemberOverwrite OverwriteType = 1
)

// ErrChannelNotAllowed is what a *Failure is when the guild may not use the
// channel: it belongs to another guild, or the bot cannot see it.
var ErrChannelNotAllowed = errors.New("the channel is not one that the bot may use for this guild")

// ErrFinal is what a *Failure is when nothing was done and asking again is pointless: the
// platform is switched off, or the operator's bot has refused.
var ErrFinal = errors.New("it will not be done on the chat platform")

// ErrAsked is what a *Failure is when the operator's bot has been asked and has not
// answered yet. With its answer the same is to be asked for once more.
var ErrAsked = errors.New("the operator's bot has been asked")

// Codes of the platform's refusals that callers tell apart.
const (
	CodeUnknownChannel    = 10003
	CodeUnknownMessage    = 10008
	CodeMissingAccess     = 50001
	CodeMissingPermission = 50013
	CodeThreadArchived    = 50083
)

// Failure is a call that did not succeed. Its text is for logs: it holds
// neither the bot token nor the content of a message.
type Failure struct {
	Status  int    // HTTP status, 0 when there was no response
	Code    int    // the platform's own error code, 0 when it gave none
	Message string // the platform's or the transport's words
	// Uncertain is true when the platform may have done what was asked: an
	// answer was lost, came too late or was a server error. False means that
	// nothing happened.
	Uncertain bool
	// RetryAfter is how long the platform asked to be left alone, or 0.
	RetryAfter time.Duration
	// NotAllowed is true when the platform's word is that the channel is
	// another guild's, or none that the bot can see.
	NotAllowed bool

	unsent unsent // why the platform was not asked; empty: it was
}

// unsent is why a call was not made: our own doing, never the platform's word.
type unsent string

const (
	unsentToken     unsent = "token"        // the bot's token was refused before
	unsentGuild     unsent = "guild_budget" // too many refusals for this guild
	unsentBot       unsent = "bot_budget"   // too many refusals for the bot
	unsentLimit     unsent = "rate_limit"   // the wait for a rate limit was too long
	unsentTransport unsent = "transport"    // there was no connection
	unsentChannel   unsent = "channel"      // known to be another guild's channel
	unsentOff       unsent = "off"          // the platform is switched off
	unsentAsked     unsent = "asked"        // the operator's bot is to do it, and has not answered
	unsentRefused   unsent = "refused"      // the operator's bot will not do it
)

// Foreign reports whether the channel is known to belong to another guild: no
// permission will ever change that.
func (f *Failure) Foreign() bool { return f.unsent == unsentChannel }

// Is lets errors.Is find ErrChannelNotAllowed, ErrFinal and ErrAsked.
func (f *Failure) Is(target error) bool {
	switch target {
	case ErrChannelNotAllowed:
		return f.NotAllowed
	case ErrFinal:
		return f.unsent == unsentOff || f.unsent == unsentRefused
	case ErrAsked:
		return f.unsent == unsentAsked
	}
	return false
}

// Error is the text for logs.
func (f *Failure) Error() string {
	text := "chat platform: " + f.Message
	if f.Status != 0 {
		text = fmt.Sprintf("chat platform answered %d (code %d): %s", f.Status, f.Code, f.Message)
	}
	if f.Uncertain {
		text += " (outcome unknown)"
	}
	return text
}

// Lasting reports whether asking again is pointless until somebody changes
// something on the platform: the channel is gone, another guild's, or the bot
// may not use it. A call that was not made is never that.
func (f *Failure) Lasting() bool {
	return f.NotAllowed || f.unsent == "" && !f.Uncertain && f.Status >= 400 && f.Status < 500 && f.Status != 429 && f.Status != 401
}

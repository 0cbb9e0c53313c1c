// Package chat calls the chat platform, Discord: it posts messages as the bot and archives
// channels. It knows nothing of tickets or giveaways. A message that must be posted exactly once is
// stored as an intent (intent.go) by the caller.
package chat

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Channel is a channel, with the guild on whose behalf it is used. A call for a channel that
// belongs to another guild is refused, wherever the id came from.
type Channel struct {
	GuildID, ID string
	For         Purpose
}

// Purpose says what a call is for: a ticket or giveaway, and which change of it. Two calls with the
// same purpose are the same request.
type Purpose struct{ SubjectID, Change string }

// Message is a message to post as the bot. Mentions in it notify only the users in Mentions.
type Message struct {
	Channel Channel
	Content string
	// Nonce identifies the message: while the platform remembers the nonce (a few minutes), posting
	// again returns the first message.
	Nonce string
	// ReplyTo is the id of a message in the same channel, or empty. If that message was deleted,
	// the reply is posted anyway.
	ReplyTo string
	// Mentions are the users that mentions in the content notify, at most 100.
	Mentions []string
	// Kind and IntentID come from the message's intent.
	Kind, IntentID string
}

// Platform is everything that Guildhall calls on the chat platform. Each call ends within eight
// seconds. Every error is a *Failure. Calls that name a channel first check, as CheckChannel does,
// that it belongs to the guild.
type Platform interface {
	// CheckChannel checks that the channel belongs to the guild. An error that is
	// ErrChannelNotAllowed says that it belongs to another guild or that the bot cannot see it; any
	// other error, that the platform could not be asked. The platform's answer is cached for ten
	// minutes, a refusal is not.
	CheckChannel(ctx context.Context, c Channel) error
	// SendMessage posts m and returns the platform's id of the message. The id is empty if the
	// platform says that the message was posted and has been deleted since.
	SendMessage(ctx context.Context, m Message) (string, error)
	// EditMessage replaces the content of a message of the bot. Mentions in it notify nobody. The
	// call may be repeated.
	EditMessage(ctx context.Context, c Channel, messageID, content string) error
	// FindMessages returns, oldest first, the ids of the bot's own messages in m's channel that
	// have m's content and were posted in the few minutes after since. Later messages may be among
	// them.
	FindMessages(ctx context.Context, m Message, since time.Time) ([]string, error)
	// LockOf reads the channel and returns the permissions that archiving would change, as they are
	// now. user is the member whose ticket the channel is.
	LockOf(ctx context.Context, c Channel, user string) (Lock, error)
	// ArchiveChannel closes the channel for messages and keeps it. A thread is archived and locked;
	// in any other channel those named in lock may no longer write.
	ArchiveChannel(ctx context.Context, c Channel, lock Lock) error
	// RestoreChannel undoes ArchiveChannel with the same lock.
	RestoreChannel(ctx context.Context, c Channel, lock Lock) error
	// DeleteChannel deletes the channel. It succeeds if the channel is already gone.
	DeleteChannel(ctx context.Context, c Channel) error
	Reactions
}

// Lock holds the permissions that archiving a channel changes, as they were before.
type Lock struct {
	// Thread says that the channel is a thread, which the platform itself can archive without
	// changing permissions.
	Thread bool `json:"thread,omitempty"`
	// Before are the overwrites of the roles and members that lose the permission to write.
	Before []Overwrite `json:"before,omitempty"`
}

// Overwrite is a channel's permission overwrite for a role or a member: bits that it allows or
// denies, whatever the permissions in the guild.
type Overwrite struct {
	ID     string        `json:"id"`
	Type   OverwriteType `json:"type"`
	Allow  uint64        `json:"allow,string"`
	Deny   uint64        `json:"deny,string"`
	Absent bool          `json:"absent,omitempty"` // in a Lock: there was no overwrite
}

// OverwriteType says whether an Overwrite is for a role or a member.
type OverwriteType int

// The types of overwrites.
const (
	RoleOverwrite   OverwriteType = 0
	MemberOverwrite OverwriteType = 1
)

// ErrChannelNotAllowed matches a *Failure when the guild may not use the channel: it belongs to
// another guild, or the bot cannot see it.
var ErrChannelNotAllowed = errors.New("the channel is not one that the bot may use for this guild")

// ErrFinal matches a *Failure when nothing was done and a retry is pointless: the platform is
// switched off, or the operator's bot has refused.
var ErrFinal = errors.New("it will not be done on the chat platform")

// ErrAsked matches a *Failure when the operator's bot has been asked and has not answered. Once it
// has, the same call must be made again.
var ErrAsked = errors.New("the operator's bot has been asked")

// Error codes of the platform that callers distinguish.
const (
	CodeUnknownChannel    = 10003
	CodeUnknownMessage    = 10008
	CodeMissingAccess     = 50001
	CodeMissingPermission = 50013
	CodeThreadArchived    = 50083
	CodeTooManyEdits      = 30046 // of a message older than an hour; later ones are accepted
)

// Failure is the error of a call. Its text is for logs: it contains neither the bot token nor the
// content of a message.
type Failure struct {
	Status  int    // HTTP status; 0: no response
	Code    int    // the platform's error code; 0: none
	Message string // the error message of the platform or of the transport
	// Uncertain says that the platform may have carried out the call: the response was lost, came
	// too late or was a server error. If false, the platform did nothing.
	Uncertain bool
	// RetryAfter is how long the platform asked us to wait, or 0.
	RetryAfter time.Duration
	// NotAllowed says that, as the platform responded, the channel belongs to another guild or
	// cannot be seen by the bot.
	NotAllowed bool

	unsent unsent // why no call was made; empty: a call was made
}

// unsent is the reason why a call was not made. It is our own decision, not the platform's
// response.
type unsent string

const (
	unsentToken     unsent = "token"        // the bot's token was refused earlier
	unsentGuild     unsent = "guild_budget" // too many calls for this guild were refused
	unsentBot       unsent = "bot_budget"   // too many calls of the bot were refused
	unsentLimit     unsent = "rate_limit"   // waiting for a rate limit would take too long
	unsentTransport unsent = "transport"    // no connection
	unsentChannel   unsent = "channel"      // the channel is known to belong to another guild
	unsentOff       unsent = "off"          // the platform is switched off
	unsentAsked     unsent = "asked"        // the operator's bot was asked and has not answered
	unsentRefused   unsent = "refused"      // the operator's bot has refused
)

// Foreign reports whether the channel is known to belong to another guild, which never changes.
func (f *Failure) Foreign() bool { return f.unsent == unsentChannel }

// Is makes errors.Is match ErrChannelNotAllowed, ErrFinal and ErrAsked.
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

// Error returns the text for logs.
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

// Lasting reports whether a retry is pointless until somebody changes something on the platform:
// the channel is gone, belongs to another guild, or is closed to the bot. It is false for a call
// that was not made, and for an edit that comes too soon after others.
func (f *Failure) Lasting() bool {
	refused := f.unsent == "" && !f.Uncertain && f.Status >= 400 && f.Status < 500
	return f.NotAllowed || refused && f.Status != 429 && f.Status != 401 && f.Code != CodeTooManyEdits
}

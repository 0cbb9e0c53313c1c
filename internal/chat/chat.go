// Package chat speaks to the chat platform: it posts messages as the bot and
// puts channels away. It knows nothing of tickets or giveaways; what must be
// said exactly once is kept as an intent (intent.go) by whoever wants it said.
package chat

import (
	"context"
	"fmt"
	"time"
)

// Message is one message to be posted as the bot. Mentions in it never ping.
type Message struct {
	ChannelID string
	Content   string
	// Nonce names the message to the platform: while the platform remembers it
	// (a few minutes), posting it again returns the first message.
	Nonce string
	// ReplyTo is the id of a message in the same channel, or empty. A message
	// that is gone does not hinder the reply.
	ReplyTo string
}

// Platform is everything Guildhall asks of the chat platform. Each call ends
// within its budget of eight seconds. A failure is a *Failure; nothing else is
// returned.
type Platform interface {
	// SendMessage posts m and returns the platform's id for it. The id is empty
	// when the platform says that the message was posted and deleted since.
	SendMessage(ctx context.Context, m Message) (string, error)
	// FindMessages returns the ids of the bot's own messages in a channel that
	// have this content and were posted at or after since, oldest first.
	FindMessages(ctx context.Context, channelID, content string, since time.Time) ([]string, error)
	// ArchiveChannel closes the channel to further conversation and keeps it.
	ArchiveChannel(ctx context.Context, channelID string) error
	// RestoreChannel opens an archived channel again.
	RestoreChannel(ctx context.Context, channelID string) error
	// DeleteChannel removes the channel. A channel that is gone already counts
	// as removed.
	DeleteChannel(ctx context.Context, channelID string) error
}

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
	Status  int    // HTTP status, 0 when there was no answer
	Code    int    // the platform's own error code, 0 when it gave none
	Message string // the platform's or the transport's words
	// Uncertain is true when the platform may have done what was asked: an
	// answer was lost, came too late or was a server error. False means that
	// nothing happened.
	Uncertain bool
	// RetryAfter is how long the platform asked to be left alone, or 0.
	RetryAfter time.Duration
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
// something on the platform: the channel is gone or the bot may not use it.
func (f *Failure) Lasting() bool {
	return !f.Uncertain && f.Status >= 400 && f.Status < 500 && f.Status != 429 && f.Status != 401
}

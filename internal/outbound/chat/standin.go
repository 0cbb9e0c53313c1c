package chat

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"strconv"
	"time"
	"unicode/utf8"
)

// StandIn is a Platform without a bot, for development: it accepts every call and logs it, without
// content.
type StandIn struct {
	log     *slog.Logger
	members []string
}

// NewStandIn returns a stand-in that logs to log. Its members, in the order of their ids, have
// reacted to every message, so that giveaways have entries.
func NewStandIn(log *slog.Logger, members ...string) *StandIn {
	return &StandIn{log: log, members: members}
}

// CheckChannel accepts every channel.
func (s *StandIn) CheckChannel(context.Context, Channel) error { return nil }

// SendMessage logs m and returns an id. As on the platform, the same nonce gets the same id.
func (s *StandIn) SendMessage(ctx context.Context, m Message) (string, error) {
	sum := sha256.Sum256([]byte(m.Channel.ID + "/" + m.Nonce))
	id := strconv.FormatUint(1<<59|binary.BigEndian.Uint64(sum[:])>>5, 10)
	s.log.InfoContext(ctx, "chat stand-in: message accepted",
		"channel_id", m.Channel.ID, "message_id", id, "characters", utf8.RuneCountInString(m.Content))
	return id, nil
}

// EditMessage logs the call.
func (s *StandIn) EditMessage(ctx context.Context, c Channel, messageID, content string) error {
	s.log.InfoContext(ctx, "chat stand-in: message edited",
		"channel_id", c.ID, "message_id", messageID, "characters", utf8.RuneCountInString(content))
	return nil
}

// FindMessages returns nothing: a message that is sent again gets the same id.
func (s *StandIn) FindMessages(context.Context, Message, time.Time) ([]string, error) {
	return nil, nil
}

// LockOf returns an empty Lock.
func (s *StandIn) LockOf(context.Context, Channel, string) (Lock, error) { return Lock{}, nil }

// ArchiveChannel logs the call.
func (s *StandIn) ArchiveChannel(ctx context.Context, c Channel, _ Lock) error {
	s.log.InfoContext(ctx, "chat stand-in: channel archived", "channel_id", c.ID)
	return nil
}

// RestoreChannel logs the call.
func (s *StandIn) RestoreChannel(ctx context.Context, c Channel, _ Lock) error {
	s.log.InfoContext(ctx, "chat stand-in: channel restored", "channel_id", c.ID)
	return nil
}

// DeleteChannel logs the call.
func (s *StandIn) DeleteChannel(ctx context.Context, c Channel) error {
	s.log.InfoContext(ctx, "chat stand-in: channel deleted", "channel_id", c.ID)
	return nil
}

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

// StandIn takes the platform's place where there is no bot: it accepts every
// call and logs that it did. It logs no content.
type StandIn struct {
	log     *slog.Logger
	members []string
}

// NewStandIn returns a stand-in that logs to log. Its members, in the order of their
// ids, react to every message, so that a giveaway has entrants.
func NewStandIn(log *slog.Logger, members ...string) *StandIn {
	return &StandIn{log: log, members: members}
}

// CheckChannel takes every channel for the guild's.
func (s *StandIn) CheckChannel(context.Context, Channel) error { return nil }

// SendMessage accepts m. The same nonce always gets the same id, as the
// platform would do it.
func (s *StandIn) SendMessage(ctx context.Context, m Message) (string, error) {
	sum := sha256.Sum256([]byte(m.Channel.ID + "/" + m.Nonce))
	id := strconv.FormatUint(1<<59|binary.BigEndian.Uint64(sum[:])>>5, 10)
	s.log.InfoContext(ctx, "chat stand-in: message accepted",
		"channel_id", m.Channel.ID, "message_id", id, "characters", utf8.RuneCountInString(m.Content))
	return id, nil
}

// EditMessage accepts.
func (s *StandIn) EditMessage(ctx context.Context, c Channel, messageID, content string) error {
	s.log.InfoContext(ctx, "chat stand-in: message edited",
		"channel_id", c.ID, "message_id", messageID, "characters", utf8.RuneCountInString(content))
	return nil
}

// FindMessages finds nothing: a message that is sent again gets its old id.
func (s *StandIn) FindMessages(context.Context, Message, time.Time) ([]string, error) {
	return nil, nil
}

// LockOf knows of no permissions.
func (s *StandIn) LockOf(context.Context, Channel, string) (Lock, error) { return Lock{}, nil }

// ArchiveChannel accepts.
func (s *StandIn) ArchiveChannel(ctx context.Context, c Channel, _ Lock) error {
	s.log.InfoContext(ctx, "chat stand-in: channel archived", "channel_id", c.ID)
	return nil
}

// RestoreChannel accepts.
func (s *StandIn) RestoreChannel(ctx context.Context, c Channel, _ Lock) error {
	s.log.InfoContext(ctx, "chat stand-in: channel restored", "channel_id", c.ID)
	return nil
}

// DeleteChannel accepts.
func (s *StandIn) DeleteChannel(ctx context.Context, c Channel) error {
	s.log.InfoContext(ctx, "chat stand-in: channel deleted", "channel_id", c.ID)
	return nil
}

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
type StandIn struct{ log *slog.Logger }

// NewStandIn returns a stand-in that logs to log.
func NewStandIn(log *slog.Logger) *StandIn { return &StandIn{log: log} }

// SendMessage accepts m. The same nonce always gets the same id, as the
// platform would do it.
func (s *StandIn) SendMessage(ctx context.Context, m Message) (string, error) {
	sum := sha256.Sum256([]byte(m.ChannelID + "/" + m.Nonce))
	id := strconv.FormatUint(1<<59|binary.BigEndian.Uint64(sum[:])>>5, 10)
	s.log.InfoContext(ctx, "chat stand-in: message accepted",
		"channel_id", m.ChannelID, "message_id", id, "characters", utf8.RuneCountInString(m.Content))
	return id, nil
}

// FindMessages finds nothing: a message that is sent again gets its old id.
func (s *StandIn) FindMessages(context.Context, string, string, time.Time) ([]string, error) {
	return nil, nil
}

// ArchiveChannel accepts.
func (s *StandIn) ArchiveChannel(ctx context.Context, channelID string) error {
	s.log.InfoContext(ctx, "chat stand-in: channel archived", "channel_id", channelID)
	return nil
}

// RestoreChannel accepts.
func (s *StandIn) RestoreChannel(ctx context.Context, channelID string) error {
	s.log.InfoContext(ctx, "chat stand-in: channel restored", "channel_id", channelID)
	return nil
}

// DeleteChannel accepts.
func (s *StandIn) DeleteChannel(ctx context.Context, channelID string) error {
	s.log.InfoContext(ctx, "chat stand-in: channel deleted", "channel_id", channelID)
	return nil
}

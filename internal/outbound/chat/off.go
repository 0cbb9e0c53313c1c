package chat

import (
	"context"
	"time"
)

// Off is the Platform of an installation that has switched the chat platform off. Every call that
// needs the platform fails with ErrFinal.
type Off struct{}

func off() error {
	return &Failure{Message: "switched off by GUILDHALL_DISCORD_URL", unsent: unsentOff}
}

// CheckChannel accepts every channel, since nothing is ever done in one.
func (Off) CheckChannel(context.Context, Channel) error { return nil }

// SendMessage returns ErrFinal.
func (Off) SendMessage(context.Context, Message) (string, error) { return "", off() }

// EditMessage returns ErrFinal.
func (Off) EditMessage(context.Context, Channel, string, string) error { return off() }

// FindMessages returns ErrFinal.
func (Off) FindMessages(context.Context, Message, time.Time) ([]string, error) {
	return nil, off()
}

// LockOf returns ErrFinal.
func (Off) LockOf(context.Context, Channel, string) (Lock, error) { return Lock{}, off() }

// ArchiveChannel returns ErrFinal.
func (Off) ArchiveChannel(context.Context, Channel, Lock) error { return off() }

// RestoreChannel returns ErrFinal.
func (Off) RestoreChannel(context.Context, Channel, Lock) error { return off() }

// DeleteChannel returns ErrFinal.
func (Off) DeleteChannel(context.Context, Channel) error { return off() }

// AddReaction returns ErrFinal.
func (Off) AddReaction(context.Context, Channel, string, string) error { return off() }

// Reactors returns ErrFinal.
func (Off) Reactors(context.Context, Channel, string, string, Reaction, string) ([]Reactor, error) {
	return nil, off()
}

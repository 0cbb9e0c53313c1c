package chat

import (
	"context"
	"time"
)

// Off takes the platform's place where an operator has switched it off: what can
// only be done there is refused with ErrFinal, and nothing is asked.
type Off struct{}

func off() error {
	return &Failure{Message: "switched off by GUILDHALL_DISCORD_URL", unsent: unsentOff}
}

// CheckChannel takes every channel for the guild's: nothing is ever done in one.
func (Off) CheckChannel(context.Context, Channel) error { return nil }

// SendMessage refuses.
func (Off) SendMessage(context.Context, Message) (string, error) { return "", off() }

// EditMessage refuses.
func (Off) EditMessage(context.Context, Channel, string, string) error { return off() }

// FindMessages cannot look.
func (Off) FindMessages(context.Context, Message, time.Time) ([]string, error) {
	return nil, off()
}

// LockOf refuses.
func (Off) LockOf(context.Context, Channel, string) (Lock, error) { return Lock{}, off() }

// ArchiveChannel refuses.
func (Off) ArchiveChannel(context.Context, Channel, Lock) error { return off() }

// RestoreChannel refuses.
func (Off) RestoreChannel(context.Context, Channel, Lock) error { return off() }

// DeleteChannel refuses.
func (Off) DeleteChannel(context.Context, Channel) error { return off() }

// AddReaction refuses.
func (Off) AddReaction(context.Context, Channel, string, string) error { return off() }

// Reactors cannot be asked for.
func (Off) Reactors(context.Context, Channel, string, string, Reaction, string) ([]Reactor, error) {
	return nil, off()
}

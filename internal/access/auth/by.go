package auth

import (
	"context"
	"encoding/json"
	"strings"
)

// keyIDs is the prefix of every bot key's id. No token's id has it, so an id alone tells the kind
// of its owner.
const keyIDs = "bk_"

// By identifies who acts, and in which guild. Events, ledger entries, transcripts, draws, intents
// and idempotency keys take their author from it.
type By struct {
	GuildID string
	ID      string // the id of the token or bot key; empty: Guildhall itself
}

// System returns Guildhall itself as the actor in guild.
func System(guild string) By { return By{GuildID: guild} }

// Stored returns the actor that a row names; nil stands for Guildhall itself.
func Stored(guild string, id *string) By {
	if id == nil {
		return System(guild)
	}
	return By{GuildID: guild, ID: *id}
}

// Acting returns the actor of the current request.
func Acting(ctx context.Context) By { return From(ctx).By }

// Type returns the kind of actor: api, bot or system.
func (b By) Type() string {
	switch {
	case b.ID == "":
		return "system"
	case b.IsKey():
		return "bot"
	}
	return "api"
}

// IsKey reports whether the actor is a bot key.
func (b By) IsKey() bool { return strings.HasPrefix(b.ID, keyIDs) }

// TokenID returns the token's id, or nil if the actor is no token.
func (b By) TokenID() *string {
	if b.ID == "" || b.IsKey() {
		return nil
	}
	id := b.ID // a pointer into b would allocate b in each caller, even for nil
	return &id
}

// KeyID returns the bot key's id, or nil if the actor is no bot key.
func (b By) KeyID() *string {
	if !b.IsKey() {
		return nil
	}
	id := b.ID // a pointer into b would allocate b in each caller, even for nil
	return &id
}

// Note returns the actor as the ledger stores it.
func (b By) Note() string {
	switch {
	case b.ID == "":
		return "system"
	case b.IsKey():
		return "bot:key=" + b.ID
	}
	return "api:token=" + b.ID
}

// Origin returns the actor as the API's JSON shows it.
func (b By) Origin() string {
	shown, err := json.Marshal(struct {
		Type    string  `json:"type"`
		TokenID *string `json:"token_id"`
		KeyID   *string `json:"key_id"`
	}{b.Type(), b.TokenID(), b.KeyID()})
	if err != nil {
		panic("auth: an origin is three strings: " + err.Error())
	}
	return string(shown)
}

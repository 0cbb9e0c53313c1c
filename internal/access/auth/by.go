package auth

import (
	"context"
	"encoding/json"
	"strings"
)

// keyIDs is what every bot key's id begins with, and no token's: the kind of a
// caller is known wherever its id is stored.
const keyIDs = "bk_"

// By is who acts, and in which guild. It is the one value that events, ledger,
// transcripts, draws, intents and the keys of requests take their author from.
type By struct {
	GuildID string
	ID      string // the token's or the bot key's; empty: the service on its own
}

// System is the service on its own in guild.
func System(guild string) By { return By{GuildID: guild} }

// Stored is who acted, by what a row says of it: null is the service on its own.
func Stored(guild string, id *string) By {
	if id == nil {
		return System(guild)
	}
	return By{GuildID: guild, ID: *id}
}

// Acting returns who makes the request being served.
func Acting(ctx context.Context) By { return From(ctx).By }

// Type is the kind of who acts: api, bot or system.
func (b By) Type() string {
	switch {
	case b.ID == "":
		return "system"
	case b.IsKey():
		return "bot"
	}
	return "api"
}

// IsKey reports whether it is a bot key.
func (b By) IsKey() bool { return strings.HasPrefix(b.ID, keyIDs) }

// TokenID is the token's id; nil where it is none.
func (b By) TokenID() *string {
	if b.ID == "" || b.IsKey() {
		return nil
	}
	return &b.ID
}

// KeyID is the bot key's id; nil where it is none.
func (b By) KeyID() *string {
	if !b.IsKey() {
		return nil
	}
	return &b.ID
}

// Note is what the ledger says of who acts.
func (b By) Note() string {
	switch {
	case b.ID == "":
		return "system"
	case b.IsKey():
		return "bot:key=" + b.ID
	}
	return "api:token=" + b.ID
}

// Origin is who acts as the API shows it.
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

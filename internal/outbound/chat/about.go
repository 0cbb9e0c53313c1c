package chat

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/disgoorg/disgo/discord"
	"github.com/disgoorg/disgo/rest"
)

// About is what the platform says of a guild, unchecked.
type About struct {
	Name     string
	IconURL  string // empty: the guild has no icon
	OwnerID  string
	Members  int64 // approximately
	Locale   string
	JoinedAt time.Time // when the bot joined the guild
}

// iconBase is the platform's base URL of guild icons.
const iconBase = "https://cdn.discordapp.com/icons/"

// About asks the platform about a guild. It makes two calls and retries neither. Before each it
// calls turn to wait, and gives up if turn fails. It returns ErrNotInGuild if the bot is no member.
func (d *Discord) About(ctx context.Context, guild string, turn func(context.Context) error) (About, error) {
	call := func(at *rest.CompiledEndpoint, out any) error {
		if err := turn(ctx); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, d.budget)
		defer cancel()
		f := d.try(ctx, Channel{GuildID: guild}, at, nil, out)
		d.count(f)
		if f != nil {
			return absent(f)
		}
		return nil
	}
	var is struct {
		Name    string `json:"name"`
		Icon    string `json:"icon"`
		OwnerID string `json:"owner_id"`
		Members int64  `json:"approximate_member_count"`
		Locale  string `json:"preferred_locale"`
	}
	if err := call(rest.GetGuild.Compile(discord.QueryValues{"with_counts": true}, guild), &is); err != nil {
		return About{}, err
	}
	self, err := d.askMe(func(out any) error { return call(rest.GetCurrentUser.Compile(nil), out) })
	if err != nil {
		return About{}, err
	}
	var member struct {
		JoinedAt time.Time `json:"joined_at"`
	}
	if err := call(rest.GetMember.Compile(nil, guild, self), &member); err != nil {
		return About{}, err
	}
	about := About{Name: is.Name, OwnerID: is.OwnerID, Members: is.Members, Locale: is.Locale, JoinedAt: member.JoinedAt}
	if is.Icon != "" {
		about.IconURL = iconBase + guild + "/" + is.Icon + ".png"
	}
	return about, nil
}

// ForAll reports whether calls for any other guild would now fail too: the bot's token is refused,
// the bot's budget is spent, the platform limits the bot as a whole, or it cannot be reached.
func ForAll(err error) bool {
	f, ok := errors.AsType[*Failure](err)
	if !ok {
		return false
	}
	switch f.unsent {
	case unsentToken, unsentBot, unsentLimit, unsentTransport:
		return true
	default:
		return f.Status == http.StatusUnauthorized || f.Status == http.StatusTooManyRequests
	}
}
